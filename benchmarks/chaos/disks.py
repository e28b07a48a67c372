"""A disk of one peer's own that can be full: a small one in memory or, without the right to mount it, a pretence."""

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from coterie import files

SIZE = 24 << 20
BALLAST = "ballast"
PAGE = 4096


@dataclass(frozen=True)
class Disk:
    """Where one peer keeps its files."""

    folder: Path
    mounted: bool

    @property
    def kind(self) -> str:
        """What it is."""
        return f"a tmpfs of {SIZE >> 20} MB" if self.mounted else "a pretended one"

    @property
    def ballast(self) -> Path:
        """What fills it; where nothing is mounted, the sign that it is full."""
        return self.folder / BALLAST

    def fill(self) -> None:
        """Leave no room, nor what has become free since."""
        with contextlib.suppress(OSError), open(self.ballast, "ab", buffering=0) as file:
            while self.mounted:
                file.write(bytes(PAGE))

    def free(self) -> None:
        """Make room again."""
        self.ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def small(folder: Path, plain: bool = False) -> Iterator[Disk]:
    """A new folder that is such a disk; what is on it stays when it is gone."""
    folder.mkdir(parents=True)
    mounted = not plain and _mount(folder)
    try:
        yield Disk(folder, mounted)
    finally:
        if mounted:
            kept = folder.with_name(f"{folder.name}-kept")
            shutil.copytree(folder, kept, ignore=shutil.ignore_patterns(BALLAST))
            subprocess.run(["umount", "--lazy", folder], check=True)
            folder.rmdir()
            kept.rename(folder)


def _mount(folder: Path) -> bool:
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "coterie-chaos", folder]
    return subprocess.run(words, capture_output=True).returncode == 0


class Pretended(files.FileSystem):
    """A disk that is full while the ballast lies there."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def write(self, file: FileIO, content: files.Bytes) -> None:
        if self.disk.ballast.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(file, content)

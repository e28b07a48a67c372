"""A folder as its publisher packed it: unpacked, in a tar archive, or in such an archive inside a zip archive."""

import contextlib
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Self

from coterie.datasets._files import damaged, incomplete, read_bytes

_CHUNK = 1 << 20


@contextlib.contextmanager
def open_tar(archive: Path, inner: str = "") -> Iterator[tarfile.TarFile]:
    """A tar archive to be read from front to back, or the one of the name `inner` in a zip archive; never unpacked."""
    try:
        with contextlib.ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(archive.open("rb"))
            if archive.suffix == ".zip":
                outer = stack.enter_context(zipfile.ZipFile(file))
                found = next((name for name in outer.namelist() if PurePosixPath(name).name == inner), None)
                if found is None:
                    raise ValueError(f"without {inner}")
                file = stack.enter_context(outer.open(found))
            yield stack.enter_context(tarfile.open(fileobj=file, mode="r|*", bufsize=_CHUNK))
    except (OSError, EOFError, ValueError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        raise damaged(archive, error) from error


@dataclass(frozen=True)
class PublishedFolder:
    """The files below a published folder, by their paths in it, wherever `path` has them."""

    name: str
    path: Path

    @classmethod
    def find(cls, place: Path, name: str, *archives: str) -> Self | None:
        """This folder in a place, or the first of these archives of it; copies at Kaggle have it twice, nested."""
        folders = (path for path in (place / name / name, place / name) if path.is_dir())
        files = (path for path in (place / archive for archive in archives) if path.is_file())
        path = next(folders, None) or next(files, None)
        return cls(name, path) if path is not None else None

    def files(self) -> list[str]:
        """What is in it, in an order that no file system has a say in."""
        if self.path.is_dir():
            return sorted(path.relative_to(self.path).as_posix() for path in self.path.rglob("*") if path.is_file())
        with open_tar(self.path, f"{self.name}.tar.gz") as tar:
            return sorted(filter(None, map(self._inside, tar)))

    def read(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """The contents of these files, of an archive in its order; IncompleteError if some are not there."""
        missing = set(wanted)
        for file, content in self._unpacked(wanted) if self.path.is_dir() else self._packed(missing):
            missing.discard(file)
            yield file, content
            if not missing:
                return
        if missing:
            some = [*sorted(missing)[:5], *([f"{len(missing) - 5} more"] if len(missing) > 5 else [])]
            raise incomplete(self.name, self.path, some)

    def _unpacked(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        for file in wanted:
            path = self.path / file
            if path.is_file():
                yield file, read_bytes(path)

    def _packed(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        with open_tar(self.path, f"{self.name}.tar.gz") as tar:
            for member in tar:
                file = self._inside(member)
                content = tar.extractfile(member) if file in wanted else None
                if content is not None:
                    yield file, content.read()

    def _inside(self, member: tarfile.TarInfo) -> str:
        """The path of a member in the folder; empty if it is none of its files."""
        parts = PurePosixPath(member.name).parts
        return "/".join(parts[parts.index(self.name) + 1 :]) if member.isfile() and self.name in parts else ""

"""How Coterie writes files and reads them back: whole or not at all, with a checksum, the one before kept if asked.

A checksum stands in the file itself, as a *mark* of eight digits: it is that of the file with zeros in their place. So
it gets to the disk with the content or not at all, and every file stays one of its kind, for any reader: the mark is an
entry of a JSON object, of the metadata of a safetensors file, or of those in a Parquet file's footer. A file that has
no mark, from an earlier version or written anew by another program, is read as it is.
"""

import contextlib
import errno
import importlib
import json
import os
import re
import shutil
import stat
import zlib
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from polars.exceptions import PanicException, PolarsError
from safetensors import SafetensorError

from coterie import waiting
from coterie.errors import ConfigError, DataError, RunError
from coterie.failpoints import reach

Bytes = bytes | bytearray | memoryview

MARK = "coterie-sum:00000000"
"""What stands where the checksum is to be."""
MARKED = "checksum"
"""The name under which a file has its mark, where it has names for things."""
BLOCK = 64 << 10
_FOUND = re.compile(rb"coterie-sum:([0-9a-f]{8})")


def cache_folder() -> Path:
    """`COTERIE_CACHE`, else `coterie` in the user's cache folder."""
    if chosen := os.environ.get("COTERIE_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "coterie"


# Changing what is on the disk.


class FileSystem:
    """All that changes files of a run goes through here; a test may put a worse disk in its place."""

    def write(self, file: FileIO, content: Bytes) -> None:
        """Write all of it where the file stands."""
        reach("before write", file.name)
        view = memoryview(content)
        while len(view):
            view = view[file.write(view) :]
        reach("after write", file.name)

    def truncate(self, file: FileIO, length: int) -> None:
        """Cut a file off."""
        reach("before cut", file.name)
        file.truncate(length)
        reach("after cut", file.name)

    def sync(self, file: FileIO) -> None:
        """Wait until what was written is on the disk."""
        reach("before sync", file.name)
        os.fsync(file.fileno())
        reach("after sync", file.name)

    def sync_folder(self, folder: Path) -> None:
        """Wait until the names in a folder are on the disk."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not to be had on this file system
                raise
        finally:
            os.close(handle)
        reach("after sync", folder)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or folder another name, at once."""
        reach("before rename", target)
        os.replace(source, target)
        reach("after rename", target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        os.link(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file or a folder, if it is there."""
        reach("before removal", path)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        reach("after removal", path)


system = FileSystem()


def make_folder(path: Path) -> None:
    """Make a folder, with those it is in, whose names are then on the disk."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        system.sync_folder(folder.parent)


def write(path: Path, *pieces: Bytes, before: Path | None = None) -> None:
    """Write a file whole or not at all; what stood there until then is kept as `before`, if that is named."""
    making = path.with_name(f".{path.name}.new")  # the next try takes the place of one that was cut short
    try:
        put(making, *pieces)
        if before is not None and path.exists():
            _keep(path, before)
        system.rename(making, path)
        system.sync_folder(path.parent)
    finally:
        if making.exists():
            making.unlink()


def put(path: Path, *pieces: Bytes) -> None:
    """Write a file that nobody looks for yet, down to the disk."""
    with open(path, "wb", buffering=0) as file:
        for piece in pieces:
            system.write(file, piece)
        system.sync(file)


def size(path: Path) -> int:
    """How many bytes a file has; none if it is not there."""
    return path.stat().st_size if path.exists() else 0


def extend(path: Path, length: int, content: bytes) -> None:
    """Write on, down to the disk, in a file of which so many bytes count; what lay there behind them is gone.

    A file that has fewer is refused: the gap would be filled with zeros.
    """
    if size(path) < length:
        raise OSError(f"{length} bytes of {path.name} count, and there are {size(path)}")
    new = not path.exists()
    with open(path, "x+b" if new else "r+b", buffering=0) as file:
        if not new:
            system.truncate(file, length)
        file.seek(length)
        system.write(file, content)
        system.sync(file)
    if new:
        system.sync_folder(path.parent)


def _keep(path: Path, before: Path) -> None:
    """Give what is at `path` a second name, so that the first is never without a file."""
    second = before.with_name(f".{before.name}.new")
    second.unlink(missing_ok=True)
    try:
        system.link(path, second)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        second = path  # a file system without links
    system.rename(second, before)


# Checksums.


def checksum(content: Bytes) -> int:
    """The CRC-32 of 64-bit sums, one for each block of the content, and of what is left at its end.

    It is there for accidents, not for forgers, and is taken several times faster than a CRC of all bytes.
    """
    view, whole = memoryview(content), len(content) - len(content) % BLOCK
    return zlib.crc32(view[whole:], add_blocks(view[:whole], 0))


def add_blocks(blocks: Bytes, before: int) -> int:
    """The checksum of some more whole blocks."""
    sums = np.frombuffer(blocks, "<u8").reshape(-1, BLOCK // 8).sum(axis=1, dtype="<u8")
    return zlib.crc32(sums.tobytes(), before)


def sealed(content: bytes) -> bytes:
    """The same with the checksum in its mark; content without one, or with several, stays as it is."""
    if (at := _mark(content)) is None:
        return content
    return content[: at.start] + b"%08x" % _unmarked(content, at) + content[at.stop :]


def sealed_pieces(pieces: list[Bytes], within: int) -> list[Bytes]:
    """The same in pieces, whose mark is in the first `within` bytes of the first of them."""
    first, *others = pieces
    at, so_far, left = _mark(memoryview(first)[:within]), 0, bytearray()
    for piece in pieces:
        view = memoryview(piece)
        if left:
            need = min(BLOCK - len(left), len(view))
            left += view[:need]
            view = view[need:]
            if len(left) == BLOCK:
                so_far, left = add_blocks(left, so_far), bytearray()
        whole = len(view) - len(view) % BLOCK
        so_far = add_blocks(view[:whole], so_far)
        left += view[whole:]
    digits = b"%08x" % zlib.crc32(left, so_far)
    return pieces if at is None else [bytes(first[: at.start]) + digits + bytes(first[at.stop :]), *others]


def check(content: Bytes, within: int | None = None) -> None:
    """Raise a ValueError if the content is not what its checksum is of; the mark is in the first `within` bytes."""
    view = memoryview(content)
    at = _mark(view[:within])
    if at is not None and bytes(view[at]) != b"%08x" % _unmarked(view, at):
        raise ValueError("its checksum does not match")


def _mark(content: Bytes) -> slice | None:
    """Where the digits are."""
    found = [slice(*match.span(1)) for match in _FOUND.finditer(content)]
    return found[0] if len(found) == 1 else None


def _unmarked(content: Bytes, at: slice) -> int:
    """The checksum with zeros in place of the digits, which alone are copied, with their blocks."""
    view, low = memoryview(content), at.start - at.start % BLOCK
    high = min(at.stop + -at.stop % BLOCK, len(view))
    around = bytearray(view[low:high])
    around[at.start - low : at.stop - low] = b"0" * (at.stop - at.start)
    whole, rest = len(around) - len(around) % BLOCK, len(view) - len(view) % BLOCK
    so_far = add_blocks(memoryview(around)[:whole], add_blocks(view[:low], 0))
    if whole < len(around):
        return zlib.crc32(around[whole:], so_far)
    return zlib.crc32(view[rest:], add_blocks(view[high:rest], so_far))


def opened(path: str | os.PathLike[str]) -> FileIO:
    """A file to read from, which must be one: who opens a named pipe waits until somebody writes to it."""
    file = open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return file


def content(path: Path, most: int = -1) -> bytes:
    """What is in a file as it is: all, or its first bytes."""
    with opened(path) as file:
        return file.read(most)


def read(path: Path) -> bytes:
    """The content of a file, checked; ValueError if it is damaged."""
    found = content(path)
    check(found)
    return found


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON object, with its checksum."""
    write(path, as_json(data))


def as_json(data: Mapping[str, Any]) -> bytes:
    """A JSON object with its checksum."""
    return sealed(json.dumps({MARKED: MARK, **data}, indent=1).encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, checked; ValueError if it is damaged or anything else."""
    said = json.loads(read(path))
    if not isinstance(said, dict):
        raise ValueError(f"a JSON object is expected, and there is {type(said).__name__}")
    if isinstance(said.get(MARKED), str):
        del said[MARKED]
    return said


# What goes wrong.


@contextlib.contextmanager
def disk(path: Path, cure: str = "") -> Iterator[None]:
    """Turn a disk's refusal into an error with a cure; what was written before stays whole."""
    try:
        yield
    except (OSError, SafetensorError, PolarsError) as error:
        number = getattr(error, "errno", None) or _system_error(str(error))
        full = number in (errno.ENOSPC, errno.EDQUOT)
        why = os.strerror(number) if number else " ".join(str(error).split())
        what = f"the disk is full: cannot write to {path}" if full else f"cannot write to {path} ({why})"
        usual = f"Earlier records and checkpoints are whole: mend it, then `coterie resume {path}`."
        raise RunError(what, cure=cure or usual) from error


def _system_error(text: str) -> int | None:
    """The number of the system's error in the text of a library that writes files by itself."""
    found = re.search(r"\(os error (\d+)\)", text)
    return int(found[1]) if found else None


UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError, RecursionError, SafetensorError)
"""What is raised over a damaged file, beside what Polars raises, whose panics are no `Exception`."""


@contextlib.contextmanager
def undamaged(path: Path, cure: str) -> Iterator[None]:
    """Turn the many ways in which a damaged file is refused into an error with a cure."""
    try:
        yield
    except (*UNREADABLE, PolarsError, PanicException) as error:
        raise RunError(f"{path} is damaged ({' '.join(str(error).split())})", cure=cure) from error


# What is fetched by name, from the hub of Hugging Face.

HUB = "hf://"
"""How a path begins that is a name on the hub: `hf://stanfordnlp/imdb`."""
MODEL_FILES = ("*.safetensors", "*.json", "*.txt", "*.model")
"""What a model consists of: no file that would run somebody's code when it is read."""
FETCHED = ".whole"
"""Lies in a folder that was downloaded to its end."""


def named(path: str) -> Path:
    """A folder of the user's, or that of the cache with a model of this name on the hub."""
    return fetched(path, allow_patterns=list(MODEL_FILES)) if path.startswith(HUB) else Path(path).expanduser()


def fetched(name: str, **how: Any) -> Path:
    """The folder of the cache with what is called so on the hub, downloaded if it is not there."""
    repository = name.removeprefix(HUB)
    target = cache_folder() / "hub" / f"{how.get('repo_type', 'model')}s" / repository.replace("/", "--")
    if (target / FETCHED).is_file():
        return target
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        cure = 'Install it: pip install "coterie[transformers]"; or download it elsewhere, and name its folder.'
        raise ConfigError(f"{name} needs huggingface_hub", cure=cure) from None
    waiting.tell(f"downloading {repository} from the hub")
    try:
        hub.snapshot_download(repository, local_dir=target, **how)
    except Exception as error:  # the library raises of all kinds
        said = str(error).strip().partition("\n")[0]
        cure = "Check the name and the connection; or download it elsewhere, and name its folder."
        raise DataError(f"cannot download {name} ({type(error).__name__}: {said})", cure=cure) from error
    (target / FETCHED).touch()
    return target

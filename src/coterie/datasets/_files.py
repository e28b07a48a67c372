"""Finding the files of a data set: in the user's folder, then in the cache, then at the publisher's server."""

import contextlib
import hashlib
import http.client
import os
import struct
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from coterie import files, waiting
from coterie.errors import DataError

T = TypeVar("T")

# What Python's own readers raise over a file that is not what it should be.
_UNREADABLE: tuple[type[Exception], ...] = (
    OSError, EOFError, ValueError, TypeError, RuntimeError, SyntaxError, struct.error, zlib.error, zipfile.BadZipFile,
    MemoryError,
)  # fmt: skip


LARGE, RATIO = 256 << 20, 400
"""What samples take in memory is not held against a file up to so many bytes, or so many times its own size."""


@dataclass(frozen=True)
class Source:
    """A published file: its name, its MD5 as published, and the servers that offer it, of which there may be none."""

    name: str
    md5: str = ""
    urls: tuple[str, ...] = ()


class IncompleteError(DataError):
    """Some files of a data set are in a folder, others are missing."""


def incomplete(dataset: str, place: Path, missing: Sequence[str]) -> IncompleteError:
    """The error for a folder that holds only part of a data set."""
    return IncompleteError(f"{dataset} in {place} is incomplete", cure=f"Add {', '.join(missing)}.")


def damaged(path: Path | str, why: object) -> DataError:
    """The error for a file that cannot be read as what it should be."""
    return DataError(f"{path} is damaged or of another format ({_reason(why)})", cure="Delete or replace it.")


def read_bytes(path: Path) -> bytes:
    """The content of a published file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise damaged(path, error) from error


def check_size(numbers: int, packed: int) -> None:
    """Refuse, before any memory is taken, so many numbers if they are beyond all measure or this machine; ValueError.

    `packed` is the size of the file that promises them; in memory each takes four bytes.
    """
    promised, memory = 4 * numbers, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if promised > memory:
        raise ValueError(f"samples of {promised} bytes, where this machine has {memory}")
    if promised > LARGE and promised > RATIO * packed:
        raise ValueError(f"{packed} bytes that become samples of {promised}: save them uncompressed if that is meant")


@contextlib.contextmanager
def reading(path: Path, expected: str, *also: type[BaseException]) -> Iterator[None]:
    """Turn an error over the user's own file into a DataError, which never says to delete it: there is no other."""
    try:
        yield
    except _UNREADABLE + also as error:
        cure = "Check that the file is whole and may be read, or write it again."
        raise DataError(f"cannot read {path}", expected=expected, got=_reason(error), cure=cure) from error


def find_path(folder: Path | None, path: str, expected: str, exists: Callable[[Path], bool] = Path.is_file) -> Path:
    """Find a file of the user's own: a relative path is looked for in the data folder, then in the current one."""
    wanted = Path(path).expanduser()
    tried = [*([folder.expanduser() / wanted] if folder is not None else []), Path.cwd() / wanted]
    for file in tried:
        if exists(file):
            return file
    cure = "Check the path; a relative one is looked for in --data-dir or COTERIE_DATA, then in the current folder."
    raise DataError("no such data file", expected=expected, got=path, cure=cure)


def cache_folder(dataset: str) -> Path:
    """The folder of the cache that holds downloads of this data set."""
    return files.cache_folder() / "datasets" / dataset


def places(folder: Path, dataset: str, also: Sequence[str] = ()) -> list[Path]:
    """The folders in the user's folder that may hold this data set, the one with its name first."""
    folder = folder.expanduser()
    if not folder.is_dir():
        raise DataError(
            "no such data folder", expected="a folder", got=str(folder), cure="Check --data-dir or COTERIE_DATA."
        )
    subfolders = [dataset, dataset.replace("_", "-"), *also]
    return [place for place in [*(folder / name for name in subfolders), folder] if place.is_dir()]


def load(
    dataset: str,
    folder: Path | None,
    readers: Sequence[Callable[[Path], T | None]],
    sources: Sequence[Source],
    also: Sequence[str] = (),
    page: str = "",
) -> T:
    """Load a data set from the first folder in which a reader finds it; else download its sources into the cache.

    A reader returns None where it finds nothing and raises a DataError where it finds something it cannot use. `page`
    is an address that says where the sources are, for whoever must fetch them by hand.
    """
    for place in places(folder, dataset, also) if folder is not None else ():
        if (found := _first(readers, place)) is not None:
            return found
    cache = cache_folder(dataset)
    with contextlib.suppress(IncompleteError):  # a download that was stopped half-way goes on below
        if (found := _first(readers, cache)) is not None:
            return found
    for source in sources:
        try:
            download(source, cache / source.name)
        except OSError as error:
            raise _unobtainable(dataset, folder, cache, sources, page, error) from error
    found = _first(readers, cache)
    assert found is not None, f"no reader of {dataset} takes its own sources"
    return found


def download(source: Source, target: Path) -> None:
    """Fetch a file from the first server that gives it whole, unless it is there; OSError if none does."""
    if target.is_file():
        return
    if not source.urls:
        raise OSError(f"no server offers {source.name} any more")
    target.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    for url in source.urls:
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            _check_md5(source, _copy(url, part))
            os.replace(part, target)
            return
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"{urlsplit(url).netloc}: {' '.join(str(error).split()) or type(error).__name__}")
        finally:
            part.unlink(missing_ok=True)
    raise OSError("; ".join(failures))


def _reason(why: object) -> str:
    return " ".join(str(why).split()) or type(why).__name__


def _first(readers: Sequence[Callable[[Path], T | None]], place: Path) -> T | None:
    return next((found for read in readers if (found := read(place)) is not None), None)


def _copy(url: str, target: Path) -> str:
    """Write what the server sends to the target, and tell how far it is; returns its MD5."""
    digest = hashlib.md5(usedforsecurity=False)
    request = urllib.request.Request(url, headers={"User-Agent": "coterie"})
    text = f"downloading {urlsplit(url).path.rpartition('/')[2]} from {urlsplit(url).netloc}"
    waiting.tell(text)
    with urllib.request.urlopen(request, timeout=30) as response, target.open("wb") as file:
        length = int(response.headers.get("Content-Length") or 0)
        text += f", {length / 1e6:.1f} MB" if length else ""
        while chunk := response.read(1 << 20):
            file.write(chunk)
            digest.update(chunk)
            waiting.tell(text, file.tell(), length or None)
    return digest.hexdigest()


def _check_md5(source: Source, md5: str) -> None:
    if md5 != source.md5:
        raise OSError(f"{source.name} came with checksum {md5} instead of {source.md5}")


def _unobtainable(
    dataset: str, folder: Path | None, cache: Path, sources: Sequence[Source], page: str, why: OSError
) -> DataError:
    files = ", ".join(source.name for source in sources) + (f" ({page})" if page else "")
    there = folder / dataset.replace("_", "-") if folder is not None else cache
    or_else = "the folder given" if folder is not None else "or into a folder of yours that you give"
    cure = f"Put {files} into {there}, {or_else} with --data-dir or COTERIE_DATA."
    return DataError(f"{dataset} is not on this machine and cannot be downloaded ({why})", cure=cure)

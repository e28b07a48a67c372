"""A table that only grows: a line for each row, with its checksum. Who keeps it says how many bytes of it count."""

import contextlib
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from coterie import files


class GrowingTable:
    """Adds rows to a file as they come, so that a checkpoint need not hold all rows there are.

    What lies behind the `length` that a checkpoint tells is of a future that never was, and the next rows go there.
    """

    def __init__(self, path: Path, length: int = 0) -> None:
        self.path, self.length = path, length
        self._fresh: list[bytes] = []

    def add(self, rows: pl.DataFrame) -> None:
        """Take some rows, to be written with the next checkpoint."""
        self._fresh += [_line(row) for row in rows.iter_rows(named=True)]

    def write(self, whole: pl.DataFrame) -> bool:
        """Get all rows to the disk, `length` is then that of what counts; what it refuses is tried again next time.

        If the file has been removed or cut since, the `whole` table is written anew, and this gives False.
        """
        if files.size(self.path) >= self.length:
            content = b"".join(self._fresh)
            if content:
                files.extend(self.path, self.length, content)
            if self._joined():
                self.length, self._fresh = self.length + len(content), []
                return True
        content = b"".join(_line(row) for row in whole.iter_rows(named=True))
        files.write(self.path, content)
        self.length, self._fresh = len(content), []
        return False

    def _joined(self) -> bool:
        """Whether the last line that was there still ends where it did: zeros are there if it was cut meanwhile."""
        if not self.length:
            return True
        with self.path.open("rb") as file:
            file.seek(self.length - 1)
            return file.read(1) == b"\n"


@dataclass(frozen=True)
class Sifted:
    """What there is of a table that may be damaged."""

    rows: list[dict[str, Any]]
    """Those that are whole."""
    content: bytes
    """The file as it is to be: as long as it was, with blanks in place of what is lost."""
    lost: list[str]
    """Where rows are lost, in words; those that were blank already are not told again."""


def sift(path: Path, length: int) -> Sifted:
    """The rows in the first `length` bytes of a file that may be damaged, cut short or gone."""
    with contextlib.suppress(OSError):
        return _sifted(files.content(path, length) if length else b"", length)
    return _sifted(b"", length)


def _sifted(content: bytes, length: int) -> Sifted:
    rows: list[dict[str, Any]] = []
    kept, lost, torn = list[bytes](), list[str](), False
    for line in content.split(b"\n"):
        row = _row(line) if line.strip(b" ") else None
        if row is not None:
            lost += [_between(rows[-1:], row)] if torn else []
            rows.append(row)
        torn = row is None and (torn or bool(line.strip(b" ")))
        kept.append(b" " * len(line) if row is None else line)
    short = length - len(content)
    lost += [_between(rows[-1:])] if torn or short else []
    text = b"\n".join(kept) + b" " * max(short - 1, 0) + b"\n" * bool(short)
    return Sifted(rows, text, lost)


def _between(before: list[dict[str, Any]], after: dict[str, Any] | None = None) -> str:
    """Where rows are lost."""
    first = [f"after round {before[0].get('round')}"] if before else []
    last = [f"before round {after.get('round')}"] if after else []
    return " and ".join(first + last) or "all of them"


def read(path: Path, length: int, types: dict[str, Any]) -> pl.DataFrame:
    """The rows in the first `length` bytes, whose columns have these types; ValueError if they are damaged."""
    found = sift(path, length)
    if found.lost:
        raise ValueError(f"rows are lost: {'; '.join(found.lost)}")
    return frame(found.rows, types)


def frame(rows: list[dict[str, Any]], types: dict[str, Any]) -> pl.DataFrame:
    """Rows as a table whose columns have these types."""
    return pl.DataFrame(rows, schema=types, orient="row")


def _line(row: dict[str, Any]) -> bytes:
    text = json.dumps(row).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _row(line: bytes) -> dict[str, Any] | None:
    """The row that a line holds, if it is whole."""
    digits, _, text = line.partition(b" ")
    if digits != b"%08x" % zlib.crc32(text):
        return None
    row: dict[str, Any] = json.loads(text)
    return row

"""A Parquet file of the user's own: one row a sample, one column its label."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from coterie.datasets._arrays import Found
from coterie.datasets._files import check_size, reading
from coterie.errors import DataError

LABELS = ("label", "y", "target")
TEXT = "text"


def read_table(path: Path) -> Found:
    """The samples of a Parquet file, in two parts if a column `test` says which are for testing."""
    with reading(path, "a Parquet file", pl.exceptions.PolarsError, pl.exceptions.PanicException), _silent():
        promised = pl.scan_parquet(path, glob=False)
        rows = int(promised.select(pl.len()).collect().item())
        check_size(rows * len(promised.collect_schema()), path.stat().st_size)
        frame = pl.read_parquet(path, glob=False)
    return from_frame(str(path), frame)


def read_csv(path: Path) -> Found:
    """The samples of a table of values with commas between them, whose first line names the columns."""
    with reading(path, "a csv file with a first line of names", pl.exceptions.PolarsError):
        frame = pl.read_csv(path, glob=False, infer_schema_length=10_000)
    return from_frame(str(path), frame)


def from_frame(path: str, frame: pl.DataFrame) -> Found:
    """The samples of a table that came from `path`."""
    if frame.is_empty():
        raise DataError(f"{path} is empty", expected="at least one row", got="none", cure="Add samples.")
    label = _label(path, frame.columns)
    y, names = _numbered(path, frame[label])
    is_test = _is_test(path, frame["test"]) if "test" in frame.columns else np.zeros(len(frame), np.bool_)
    x = _features(path, frame.drop([label, "test"], strict=False))
    if not is_test.any():
        return Found((x, y), names=names)
    return Found((x[~is_test], y[~is_test]), (x[is_test], y[is_test]), names)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep what Polars says to the terminal itself when it panics, before it raises: the error says it."""
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


def _label(path: str, columns: list[str]) -> str:
    found = [column for column in columns if column in LABELS]
    if len(found) != 1:
        got = " and ".join(found) if found else _some(columns)
        cure = "Rename the column of labels to label, and any other of these."
        raise DataError(
            f"{path}: which column is the label?", expected=f"one of {', '.join(LABELS)}", got=got, cure=cure
        )
    return found[0]


def _numbered(path: str, column: pl.Series) -> tuple[NDArray[Any], tuple[str, ...]]:
    """The labels as they are, or the places of text labels among all of them in alphabetical order."""
    _no_gaps(path, column)
    if isinstance(column.dtype, pl.List | pl.Array):
        return _lists(path, column), ()
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return column.to_numpy(), ()
    names, numbers = np.unique(column.cast(pl.String).to_numpy().astype(np.str_), return_inverse=True)
    return numbers.astype(np.int64), tuple(names.tolist())


def _is_test(path: str, column: pl.Series) -> NDArray[np.bool_]:
    if column.dtype != pl.Boolean:
        cure = "Make it true for the samples to test on, or rename it if it is a feature."
        raise DataError(f"{path}, column test", expected="true or false", got=column.dtype, cure=cure)
    _no_gaps(path, column)
    return column.to_numpy().astype(np.bool_)


def _features(path: str, frame: pl.DataFrame) -> NDArray[Any]:
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List | pl.Array)]
    if not frame.columns or (lists and frame.width > 1):
        expected = "columns of numbers, or one column of lists, beside the label"
        raise DataError(
            f"features of {path}", expected=expected, got=_some(frame.columns), cure="Add or remove columns."
        )
    for column in frame:
        _no_gaps(path, column)
    if frame.columns == [TEXT] and frame.dtypes[0] == pl.String:
        return frame.to_series().to_numpy().astype(np.str_)
    return _lists(path, frame[lists[0]]) if lists else _columns(path, frame)


def _columns(path: str, frame: pl.DataFrame) -> NDArray[Any]:
    for name, kind in frame.schema.items():
        # pandas writes an index that is no plain count beside the columns; learnt from, it gives the order away.
        if name.startswith("__index_level_"):
            cure = "Write the file again with to_parquet(…, index=False)."
            raise DataError(f"{path}, column {name}", expected="a feature", got="the row names of pandas", cure=cure)
        if not (kind.is_numeric() or kind == pl.Boolean):
            cure = f"Turn it into numbers or remove it; texts to be learnt from stand alone, in a column called {TEXT}."
            raise DataError(f"{path}, column {name}", expected="numbers", got=kind, cure=cure)
    x = np.stack([column.cast(pl.Float32).to_numpy() for column in frame], axis=1)
    if not np.isfinite(x).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(x))[0])
        got = f"{frame[row, column]} in row {row}"
        cure = "Correct or remove these rows."
        expected = "finite numbers of 32 bits"
        raise DataError(f"{path}, column {frame.columns[column]}", expected=expected, got=got, cure=cure)
    return x


def _lists(path: str, column: pl.Series) -> NDArray[Any]:
    what, cure = f"{path}, column {column.name}", "Make all lists equally long and of one kind of number."
    if isinstance(column.dtype, pl.Array):
        x = column.to_numpy()
        if not np.issubdtype(x.dtype, np.number):
            raise DataError(what, expected="lists of numbers", got=column.dtype, cure=cure)
        return x
    assert isinstance(column.dtype, pl.List)
    if not column.dtype.inner.is_numeric():
        raise DataError(what, expected="lists of numbers", got=column.dtype, cure=cure)
    lengths = column.list.len().to_numpy()
    if (lengths != lengths[0]).any() or lengths[0] == 0:
        row = int(np.argmax(lengths != lengths[0]))
        expected = f"{lengths[0] or 'one or more'} numbers in every row"
        raise DataError(what, expected=expected, got=f"{lengths[row]} in row {row}", cure=cure)
    flat = column.explode()
    if flat.null_count():
        row = int(flat.is_null().arg_max() or 0) // int(lengths[0])
        raise DataError(
            what, expected="numbers", got=f"an empty value in row {row}", cure="Fill it in or drop the row."
        )
    return flat.to_numpy().reshape(len(column), -1)


def _no_gaps(path: str, column: pl.Series) -> None:
    if column.null_count():
        got = f"{column.null_count()} empty, the first in row {column.is_null().arg_max()}"
        cure = "Fill them in or drop the rows."
        raise DataError(f"{path}, column {column.name}", expected="a value in every row", got=got, cure=cure)


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + ("…" if len(names) > 6 else "") if names else "no other columns"

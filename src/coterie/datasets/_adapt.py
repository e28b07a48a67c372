"""Data that are in hand in Python already: arrays, tensors, tables, data sets of PyTorch."""

import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor
from torch.utils.data import default_collate

from coterie.datasets import Dataset, Inputs, each
from coterie.datasets._arrays import Found
from coterie.datasets._assembly import Words, assemble, check_settings, set_aside
from coterie.datasets._table import LABELS, from_frame
from coterie.datasets.own import own
from coterie.errors import DataError
from coterie.parts import Part

KINDS = "(x, y), ((x, y), (x_test, y_test)), a polars or pandas table with a column label, or data sets of PyTorch"
SOURCE = "the data in hand"


def adapt(thing: Any) -> Callable[..., Any]:
    """A user's function as it is; data in hand as a function that gives them."""
    if inspect.isroutine(thing) or inspect.isclass(thing):
        made: Callable[..., Any] = thing
        return made

    def data(
        folder: Path | None = None,
        *,
        classes: int | None = None,
        test: float = 0.2,
        length: int = 32,
        pieces: int = 2000,
        tokenizer: str | None = None,
    ) -> Dataset:
        """Data in hand: arrays, a table, or data sets of PyTorch."""
        return _from_objects(thing, classes, test, Words(length, pieces, tokenizer))

    return data


@functools.cache
def of_file(where: str) -> Part:
    """The data in a file or folder of one's own, by its path alone."""

    @functools.wraps(own)
    def named(folder: Path | None = None, **settings: Any) -> Dataset:
        return own(folder, **{"path": where, **settings})

    known = inspect.signature(own)
    path = known.parameters["path"].replace(default=where)
    vars(named)["__signature__"] = known.replace(parameters=[*({**known.parameters, "path": path}).values()])
    return Part("datasets", "own", named)


def _from_objects(thing: Any, classes: int | None, test: float, words: Words) -> Dataset:
    """The data set that some Python object is, with the share `test` set aside if it has no test part."""
    check_settings(classes, test)
    if isinstance(thing, Dataset):
        return thing
    if _is_table(thing):
        return assemble(from_frame("the table", _frame(thing)), "the table", "table", classes, test, words)
    parts = _parts(thing)
    whole, names = _numbered([_pair(part) for part in parts])
    if all(_plain(x) and not _real(y) for x, y in whole):
        train, *aside = [(np.asarray(x), np.asarray(y)) for x, y in whole]
        found = Found(train, aside[0] if aside else None, names)
        return assemble(found, SOURCE, "data", classes, test)
    return _as_they_are(whole, classes, test)


def _parts(thing: Any) -> list[Any]:
    """What is to be learnt from, and what is to be tested on if there is such a part."""
    if _is_map(thing):
        return [thing]
    if isinstance(thing, Sequence) and not isinstance(thing, str):
        if len(thing) == 4 and all(map(_is_array, thing)):
            return [thing[:2], thing[2:]]
        if len(thing) == 2:
            return [thing] if _is_array(thing[1]) else list(thing)
    raise DataError("data in hand", expected=KINDS, got=f"a {type(thing).__name__}")


def _pair(part: Any) -> tuple[Any, Any]:
    """Samples and targets of a part."""
    if _is_map(part):
        part = _parted(default_collate([part[i] for i in range(len(part))]))
    if not isinstance(part, Sequence) or len(part) != 2:
        got = f"{len(part)} things" if isinstance(part, Sequence) else f"a {type(part).__name__}"
        raise DataError("a part of the data in hand", expected="samples and targets, (x, y)", got=got)
    return part[0], part[1]


def _parted(together: Any) -> Any:
    """Samples and targets of a data set of PyTorch; where it gives dicts, its label is one of them by name."""
    named = [name for name in together if name in LABELS] if isinstance(together, Mapping) else []
    if len(named) != 1:
        return together
    rest = {name: values for name, values in together.items() if name not in named}
    return (next(iter(rest.values())) if len(rest) == 1 else rest), together[named[0]]


def _numbered(whole: list[tuple[Any, Any]]) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
    """The parts with numbers for labels that are names, in alphabetical order; and these names, if there are any."""
    said = [np.asarray(y) for _, y in whole if not isinstance(y, Tensor)]
    if len(said) < len(whole) or any(y.ndim != 1 or not all(isinstance(name, str) for name in y) for y in said):
        return whole, ()
    names = np.unique(np.concatenate([y.astype(np.str_) for y in said]))
    numbered = [(x, np.searchsorted(names, y.astype(np.str_))) for (x, _), y in zip(whole, said, strict=True)]
    return numbered, tuple(names.tolist())


def _as_they_are(whole: list[tuple[Any, Any]], classes: int | None, test: float) -> Dataset:
    """Samples of several tensors or of whole numbers, such as tokens, and targets of any kind."""
    ready = [(_structure(x), _tensor(y)) for x, y in whole]
    x, y = ready[0]
    labels = not y.is_floating_point() and y.ndim == 1
    if len(ready) == 1:
        count = torch.arange(len(y)).unsqueeze(1)
        (train, _), (aside, _) = set_aside(SOURCE, count, y if labels else torch.zeros(len(y), dtype=torch.long), test)
        ready = [(each(x, operator.itemgetter(rows)), y[rows]) for rows in (train.flatten(), aside.flatten())]
    largest = max(int(targets.max()) for _, targets in ready) if labels else -1
    return Dataset("data", *ready[0], *ready[1], classes=(classes or largest + 1) if labels else 0)


def _structure(x: Any) -> Inputs:
    if isinstance(x, Mapping):
        return {str(name): _tensor(values) for name, values in x.items()}
    return tuple(map(_tensor, x)) if isinstance(x, list | tuple) else _tensor(x)


def _tensor(values: Any) -> Tensor:
    made = values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    return made.float() if made.dtype == torch.float64 else made


def _plain(x: Any) -> bool:
    """Whether samples are one array of numbers to calculate with, rather than of tokens."""
    return _is_array(x) and (np.asarray(x).dtype == np.uint8 or _real(x))


def _real(x: Any) -> bool:
    return bool(np.issubdtype(np.asarray(x).dtype, np.floating))


def _is_array(thing: Any) -> bool:
    return hasattr(thing, "__array__") and not _is_table(thing)


def _is_map(thing: Any) -> bool:
    """Whether it is a data set as PyTorch has them: samples by number."""
    plain = isinstance(thing, Sequence | Mapping) or _is_array(thing) or _is_table(thing)
    return not plain and hasattr(thing, "__getitem__") and hasattr(thing, "__len__")


def _is_table(thing: Any) -> bool:
    return isinstance(thing, pl.DataFrame) or (hasattr(thing, "columns") and hasattr(thing, "iloc"))


def _frame(thing: Any) -> pl.DataFrame:
    """A table of polars, or of pandas without its row names."""
    if isinstance(thing, pl.DataFrame):
        return thing
    return pl.DataFrame({str(name): thing[name].to_numpy() for name in thing.columns})

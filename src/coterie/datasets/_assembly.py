"""The user's own samples, wherever they were found: checked, divided into two parts, classes counted."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.contract import finite
from coterie.datasets import Dataset
from coterie.datasets._arrays import Found, floats, labels, with_channels
from coterie.datasets._split import stratified
from coterie.datasets._tokens import tokenise
from coterie.errors import ConfigError, DataError
from coterie.randomness import generator

MOST_CLASSES = 100_000
"""A label beyond these is taken for a mistake: every model has an output for each class."""


@dataclass(frozen=True)
class Words:
    """How texts become tokens."""

    length: int = 32
    pieces: int = 2000
    tokenizer: str | None = None


def check_settings(classes: int | None, test: float) -> None:
    """Refuse a number of classes or a share of test samples that cannot be."""
    if classes is not None and not 0 <= classes <= MOST_CLASSES:
        cure = "Leave it out to count the classes here; 0 is for targets that are numbers."
        raise ConfigError("dataset.classes", expected=f"0 to {MOST_CLASSES}", got=classes, cure=cure)
    if not 0 < test < 1:
        cure = "0.2 sets one sample in five aside."
        raise ConfigError("dataset.test", expected="a share between 0 and 1", got=test, cure=cure)


def assemble(
    found: Found, source: str, name: str, classes: int | None, test: float, words: Words | None = None
) -> Dataset:
    """The data set of samples found in `source`, with the share `test` set aside if there is no test part.

    Targets that are real numbers, or several to a sample, are no classes: they are learnt as numbers.
    """
    targets = found.train[1]
    numbers = classes == 0 or np.issubdtype(targets.dtype, np.floating) or (targets.ndim == 2 and targets.shape[1] > 1)
    if numbers or _is_text(found.train[0]):
        return _of_any_kind(found, source, name, numbers, classes, test, words)
    train = _part(f"{source}, training part" if found.test else source, *found.train)
    if found.test is None:
        train, aside = set_aside(source, *train, test)
    else:
        aside = _part(f"{source}, test part", *found.test)
        _check_alike(source, found.train[0], found.test[0])
    largest = max(int(train[1].max()), int(aside[1].max()))
    return Dataset(name, *train, *aside, classes=_count(source, found.names, largest, classes))


def _of_any_kind(
    found: Found, source: str, name: str, numbers: bool, classes: int | None, test: float, words: Words | None
) -> Dataset:
    """Texts, as tokens with a mask; and targets that are numbers."""
    parts = [found.train, *([found.test] if found.test else [])]
    wheres = [f"{source}, {part} part" for part in ("training", "test")] if found.test else [source]
    targets = [
        _numbers(where, y) if numbers else _labels(where, y, len(x))
        for where, (x, y) in zip(wheres, parts, strict=True)
    ]
    samples: list[Any] = [x if _is_text(x) else _samples(where, x) for where, (x, _) in zip(wheres, parts, strict=True)]
    if not found.test:
        common = torch.zeros(len(targets[0]), dtype=torch.int64) if numbers else targets[0]
        rows = aside(source, common, test)
        samples, targets = [samples[0][r.numpy()] for r in rows], [targets[0][r] for r in rows]
    if _is_text(found.train[0]):
        how = words or Words()
        samples = tokenise([x.tolist() for x in samples], how.length, how.pieces, how.tokenizer)
    largest = -1 if numbers else max(int(y.max()) for y in targets)
    count = 0 if numbers else _count(source, found.names, largest, classes)
    return Dataset(name, samples[0], targets[0], samples[1], targets[1], classes=count)


def _is_text(x: NDArray[Any]) -> bool:
    return x.dtype.kind in "UO"


def _numbers(where: str, y: NDArray[Any]) -> Tensor:
    """Targets as numbers: one to a sample, or several, such as 0 and 1 for labels that may go together."""
    if not (np.issubdtype(y.dtype, np.number) or y.dtype == np.bool_):
        raise DataError(f"targets of {where}", expected="numbers", got=y.dtype, cure="Turn them into numbers.")
    made = torch.from_numpy(np.ascontiguousarray(y, np.float32))
    if not finite(made):
        row = int((~made.isfinite()).view(len(made), -1).any(1).nonzero()[0])
        cure = "Correct or remove these samples."
        raise DataError(f"targets of {where}", expected="finite numbers", got=f"another in sample {row}", cure=cure)
    return made


def _part(where: str, x: NDArray[Any], y: NDArray[Any]) -> tuple[Tensor, Tensor]:
    return _samples(where, x), _labels(where, y, len(x))


def _samples(where: str, x: NDArray[Any]) -> Tensor:
    if x.ndim < 2 or x.size == 0:
        cure = "Give every sample a row: one feature is x.reshape(-1, 1)."
        raise DataError(f"samples of {where}", expected="shape [N, …], at least one", got=list(x.shape), cure=cure)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is named below
        samples = floats(where, with_channels(x))
    _check_finite(where, samples)
    return samples


def _labels(where: str, y: NDArray[Any], count: int) -> Tensor:
    numbers = labels(where, y)
    if numbers.shape != (count,):
        cure = "Give every sample one label."
        raise DataError(f"labels of {where}", expected=f"shape [{count}]", got=list(y.shape), cure=cure)
    if int(numbers.min()) < 0:
        got = f"{int(numbers.min())} in sample {int(numbers.argmin())}"
        raise DataError(f"labels of {where}", expected="0 or more", got=got, cure="Number the classes from 0.")
    if int(numbers.max()) >= MOST_CLASSES:
        got = f"{int(numbers.max())} in sample {int(numbers.argmax())}"
        cure = "Number the classes from 0, without gaps."
        raise DataError(f"labels of {where}", expected=f"0 to {MOST_CLASSES - 1}", got=got, cure=cure)
    return numbers


def _check_finite(where: str, x: Tensor) -> None:
    if finite(x):
        return
    place = (~x.isfinite()).nonzero()[0].tolist()
    position = f"column {place[1]}" if x.ndim == 2 else f"position {place[1:]}"
    got = f"{x[tuple(place)].item()} in sample {place[0]}, {position}"
    cure = "Correct or remove these samples."
    raise DataError(f"samples of {where}", expected="finite numbers of 32 bits", got=got, cure=cure)


def _check_alike(source: str, train: NDArray[Any], test: NDArray[Any]) -> None:
    """Refuse training and test parts of different shapes, or of which only one is bytes: those are scaled."""
    if train.shape[1:] != test.shape[1:] or (train.dtype == np.uint8) != (test.dtype == np.uint8):
        expected, got = (f"{part.dtype} {list(part.shape[1:])}" for part in (train, test))
        what = f"{source}: test samples are not like the training samples"
        raise DataError(what, expected=expected, got=got, cure="Prepare both parts in the same way.")


def set_aside(source: str, x: Tensor, y: Tensor, share: float) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The samples to learn from and this share of every class to test on."""
    train, test = aside(source, y, share)
    return (x[train], y[train]), (x[test], y[test])


def aside(source: str, y: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Which samples to learn from, and which to test on: this share of every class."""
    if len(y) < 2:
        cure = "Add samples: at least one to train on and one to test on."
        raise DataError(f"too few samples in {source}", expected="2 or more", got=len(y), cure=cure)
    train, test = (torch.from_numpy(part) for part in stratified(y.numpy(), share, "own"))
    if not len(test):  # no class has two samples to divide
        order = torch.from_numpy(generator(0, "test part of own").permutation(len(y)))
        size = min(max(round(share * len(y)), 1), len(y) - 1)
        train, test = order[size:].sort().values, order[:size].sort().values
    return train, test


def _count(source: str, names: tuple[str, ...], largest: int, classes: int | None) -> int:
    here = len(names) or largest + 1
    if classes is None:
        return here
    if names and len(names) != classes:
        got = f"{len(names)}: {', '.join(names[:6])}{'…' if len(names) > 6 else ''}"
        cure = (
            "Names are numbered alike on every machine only if all are there: add empty folders for classes without "
            "pictures, number the labels of a table from 0, or correct dataset.classes."
        )
        raise DataError(f"names of classes in {source}", expected=f"all {classes}", got=got, cure=cure)
    if largest >= classes:
        cure = f"Set dataset.classes to {here} on every machine, or correct the labels."
        raise DataError(f"labels of {source}", expected=f"0 to {classes - 1}", got=largest, cure=cure)
    return classes

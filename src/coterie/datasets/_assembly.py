"""The user's own samples, wherever they were found: checked, divided into two parts, classes counted."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.contract import finite
from coterie.datasets import Dataset
from coterie.datasets._arrays import Found, floats, labels, with_channels
from coterie.datasets._split import stratified
from coterie.errors import ConfigError, DataError
from coterie.randomness import generator

MOST_CLASSES = 100_000
"""A label beyond these is taken for a mistake: every model has an output for each class."""


def check_settings(classes: int | None, test: float) -> None:
    """Refuse a number of classes or a share of test samples that cannot be."""
    if classes is not None and not 1 <= classes <= MOST_CLASSES:
        cure = "Leave it out to count the classes here."
        raise ConfigError("dataset.classes", expected=f"1 to {MOST_CLASSES}", got=classes, cure=cure)
    if not 0 < test < 1:
        cure = "0.2 sets one sample in five aside."
        raise ConfigError("dataset.test", expected="a share between 0 and 1", got=test, cure=cure)


def assemble(found: Found, source: str, name: str, classes: int | None, test: float) -> Dataset:
    """The data set of samples found in `source`, with the share `test` set aside if there is no test part."""
    train = _part(f"{source}, training part" if found.test else source, *found.train)
    if found.test is None:
        train, aside = set_aside(source, *train, test)
    else:
        aside = _part(f"{source}, test part", *found.test)
        _check_alike(source, found.train[0], found.test[0])
    largest = max(int(train[1].max()), int(aside[1].max()))
    return Dataset(name, *train, *aside, classes=_count(source, found.names, largest, classes))


def _part(where: str, x: NDArray[Any], y: NDArray[Any]) -> tuple[Tensor, Tensor]:
    if x.ndim < 2 or x.size == 0:
        cure = "Give every sample a row: one feature is x.reshape(-1, 1)."
        raise DataError(f"samples of {where}", expected="shape [N, …], at least one", got=list(x.shape), cure=cure)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is named below
        samples = floats(where, with_channels(x))
    numbers = labels(where, y)
    if numbers.shape != samples.shape[:1]:
        cure = "Give every sample one label."
        raise DataError(f"labels of {where}", expected=f"shape [{len(x)}]", got=list(y.shape), cure=cure)
    if int(numbers.min()) < 0:
        got = f"{int(numbers.min())} in sample {int(numbers.argmin())}"
        raise DataError(f"labels of {where}", expected="0 or more", got=got, cure="Number the classes from 0.")
    if int(numbers.max()) >= MOST_CLASSES:
        got = f"{int(numbers.max())} in sample {int(numbers.argmax())}"
        cure = "Number the classes from 0, without gaps."
        raise DataError(f"labels of {where}", expected=f"0 to {MOST_CLASSES - 1}", got=got, cure=cure)
    _check_finite(where, samples)
    return samples, numbers


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
    if len(y) < 2:
        cure = "Add samples: at least one to train on and one to test on."
        raise DataError(f"too few samples in {source}", expected="2 or more", got=len(y), cure=cure)
    train, test = (torch.from_numpy(part) for part in stratified(y.numpy(), share, "own"))
    if not len(test):  # no class has two samples to divide
        order = torch.from_numpy(generator(0, "test part of own").permutation(len(y)))
        size = min(max(round(share * len(y)), 1), len(y) - 1)
        train, test = order[size:].sort().values, order[:size].sort().values
    return (x[train], y[train]), (x[test], y[test])


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

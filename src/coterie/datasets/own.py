from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.contract import finite
from coterie.datasets import Dataset
from coterie.datasets._arrays import Found, floats, labels, members, with_channels
from coterie.datasets._files import find_path, reading
from coterie.datasets._idx import PICTURES, decode, labels_beside, picture_files
from coterie.datasets._pictures import read_pictures
from coterie.datasets._split import stratified
from coterie.datasets._table import read_table
from coterie.errors import ConfigError, DataError
from coterie.randomness import generator

KINDS = "an .npz, .parquet or idx file, or a folder of idx files or of pictures"


def own(folder: Path | None = None, *, path: str = "", classes: int | None = None, test: float = 0.2) -> Dataset:
    """Your own data on this machine: an .npz, Parquet or idx file, or a folder of pictures.

    `path` names one of these; a relative one is looked for in the data folder, then where you are.

    - `.npz`: the arrays x and y, and x_test and y_test if there is a test part.
    - `.parquet`: a column label, y or target; every other column a number, or one column of equally long lists; a
      column test, true or false, if there is a test part.
    - idx, as MNIST is published: the file of pictures, its labels beside it, or the folder of both parts.
    - a folder CLASS/picture.png or .jpg, or train/ and test/ with these; a class may be empty, transparency is dropped.

    Bytes are scaled to [0, 1], other numbers and plain columns of a table kept. Labels count from 0; names of classes
    are numbered in alphabetical order. `classes` is their number in the whole network, of which this machine may lack
    some: by default one more than the largest label here. Names are numbered alike only where all are known, so with
    `classes` they must all be there. Without a test part, the share `test` of every class is set aside, the same
    samples each time.
    """
    _check_settings(path, classes, test)
    source = find_path(folder, path, KINDS, Path.exists)
    found = _reader(source)(source)
    name = source.stem or "own"
    train = _part(f"{source}, training part" if found.test else str(source), *found.train)
    if found.test is None:
        train, aside = _set_aside(source, *train, test)
    else:
        aside = _part(f"{source}, test part", *found.test)
        _check_alike(source, found.train[0], found.test[0])
    largest = max(int(train[1].max()), int(aside[1].max()))
    return Dataset(name, *train, *aside, classes=_count(source, found.names, largest, classes))


def _check_settings(path: str, classes: int | None, test: float) -> None:
    if not path:
        cure = "Name it with --dataset.path, or path under [dataset]."
        raise ConfigError("data set own has no dataset.path", expected=KINDS, got="nothing", cure=cure)
    if classes is not None and classes < 1:
        cure = "Leave it out to count the classes here."
        raise ConfigError("dataset.classes", expected="1 or more", got=classes, cure=cure)
    if not 0 < test < 1:
        cure = "0.2 sets one sample in five aside."
        raise ConfigError("dataset.test", expected="a share between 0 and 1", got=test, cure=cure)


def _reader(source: Path) -> Callable[[Path], Found]:
    if source.is_dir():
        with reading(source, KINDS):
            return _idx_folder if picture_files(source) else read_pictures
    if source.suffix.lower() == ".npz":
        return _npz
    if source.suffix.lower() in (".parquet", ".pq"):
        return read_table
    if PICTURES.fullmatch(source.name):
        return lambda pictures: Found(_idx_pair(pictures))
    cure = "Give the file the ending of its kind; of a pair of idx files, name the one of pictures."
    raise DataError("data of an unknown kind", expected=KINDS, got=source, cure=cure)


def _npz(path: Path) -> Found:
    cure = "Write it with numpy.savez(path, x=…, y=…), and x_test and y_test if there is a test part."
    with reading(path, "an .npz file of plain arrays"):
        found = members(path, ("x", "y", "x_test", "y_test", "x_train", "y_train"))
    x, y = found.get("x", found.get("x_train")), found.get("y", found.get("y_train"))
    if x is None or y is None or ("x_test" in found) != ("y_test" in found):
        expected = "arrays x and y, with x_test and y_test or without both"
        raise DataError(f"{path} is incomplete", expected=expected, got=", ".join(found) or "none of them", cure=cure)
    return Found((x, y), (found["x_test"], found["y_test"]) if "x_test" in found else None)


def _idx_pair(pictures: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    def read(file: Path) -> NDArray[Any]:
        with reading(file, "an idx file of bytes, compressed with gzip or not"):
            return decode(file.read_bytes())

    return read(pictures), read(labels_beside(pictures))


def _idx_folder(path: Path) -> Found:
    files = picture_files(path)
    test = [file for stem, file in files.items() if "test" in stem or "t10k" in stem]
    train = [file for file in files.values() if file not in test]
    if len(train) != 1 or len(test) > 1:
        expected = "one file of pictures to train on and at most one (t10k or test) to test on"
        cure = "Name the file rather than the folder, or move the others."
        raise DataError(
            f"idx files in {path}", expected=expected, got=", ".join(p.name for p in files.values()), cure=cure
        )
    return Found(_idx_pair(train[0]), _idx_pair(test[0]) if test else None)


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


def _check_alike(source: Path, train: NDArray[Any], test: NDArray[Any]) -> None:
    """Refuse training and test parts of different shapes, or of which only one is bytes: those are scaled."""
    if train.shape[1:] != test.shape[1:] or (train.dtype == np.uint8) != (test.dtype == np.uint8):
        expected, got = (f"{part.dtype} {list(part.shape[1:])}" for part in (train, test))
        what = f"{source}: test samples are not like the training samples"
        raise DataError(what, expected=expected, got=got, cure="Prepare both parts in the same way.")


def _set_aside(source: Path, x: Tensor, y: Tensor, share: float) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    if len(y) < 2:
        cure = "Add samples: at least one to train on and one to test on."
        raise DataError(f"too few samples in {source}", expected="2 or more", got=len(y), cure=cure)
    train, test = (torch.from_numpy(part) for part in stratified(y.numpy(), share, "own"))
    if not len(test):  # no class has two samples to divide
        order = torch.from_numpy(generator(0, "test part of own").permutation(len(y)))
        size = min(max(round(share * len(y)), 1), len(y) - 1)
        train, test = order[size:].sort().values, order[:size].sort().values
    return (x[train], y[train]), (x[test], y[test])


def _count(source: Path, names: tuple[str, ...], largest: int, classes: int | None) -> int:
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

"""Conversion of NumPy arrays, as files hold them, to the tensors of a data set."""

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from coterie.datasets import Dataset
from coterie.datasets._files import check_size, damaged
from coterie.errors import ConfigError, DataError

KEYS = ("x_train", "y_train", "x_test", "y_test")


class Arrays(NamedTuple):
    """Samples and labels as they stand in the files."""

    train_x: NDArray[Any]
    train_y: NDArray[Any]
    test_x: NDArray[Any]
    test_y: NDArray[Any]


class Found(NamedTuple):
    """The user's own samples: one part or two, and the names of the classes where these were names."""

    train: tuple[NDArray[Any], NDArray[Any]]
    test: tuple[NDArray[Any], NDArray[Any]] | None = None
    names: tuple[str, ...] = ()


def members(path: Path, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read these arrays, if there, from an .npz file, never unpickled; raises what NumPy raises.

    What they promise is looked at before any memory is taken for them.
    """
    with zipfile.ZipFile(path) as archive:
        there = [key for key in keys if f"{key}.npy" in archive.namelist()]
        check_size(sum(_promised(archive, key) for key in there), path.stat().st_size)
    with np.load(path, allow_pickle=False) as arrays:
        return {key: arrays[key] for key in there}


def _promised(archive: zipfile.ZipFile, key: str) -> int:
    """How many numbers an array has by its head, of which the archive must have as many."""
    info = archive.getinfo(f"{key}.npy")
    with archive.open(info) as file:
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
            size, there = math.prod(shape) * dtype.itemsize, info.file_size - file.tell()
        except ValueError as error:
            raise ValueError(f"{key} is no plain array: {error}") from None
    if dtype.hasobject:
        raise ValueError(f"{key} holds Python objects")
    if size != there:
        raise ValueError(f"{key} promises {size} bytes, and there are {there}")
    return math.prod(shape)


def read_npz(path: Path) -> Arrays:
    """The arrays x_train, y_train, x_test and y_test of an .npz file."""
    try:
        found = members(path, KEYS)
        if len(found) < len(KEYS):
            raise ValueError(f"it needs the arrays {', '.join(KEYS)}")
        return Arrays(*(found[key] for key in KEYS))
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise damaged(path, error) from error


def find_npz(place: Path, *names: str) -> Arrays | None:
    """The arrays of the first of these .npz files that is in the folder."""
    paths = (place / name for name in names)
    return next((read_npz(path) for path in paths if path.is_file()), None)


def images(
    name: str,
    arrays: Arrays,
    *,
    shape: tuple[int, int, int],
    classes: int,
    mean: Sequence[float],
    std: Sequence[float],
    normalise: bool,
    size: int | None = None,
) -> Dataset:
    """A data set of pictures in [0, 1], or, normalised, with about mean 0 and standard deviation 1 in each channel.

    With `size` they are scaled down to that many pixels a side by adaptive average pooling: each new pixel is the mean
    of the old ones it touches, in a row those from ⌊i · old / new⌋ up to ⌈(i + 1) · old / new⌉. Where the sizes divide
    (32 to 16) that is the mean of whole blocks, which the wider filter of an antialiased interpolation is not. `mean`
    and `std` stay those of the published size.
    """
    if size is not None and not 1 <= size <= min(shape[1:]):
        cure = "Pictures are only scaled down: leave it out for the published size."
        raise ConfigError("dataset.size", expected=f"1 to {min(shape[1:])} pixels", got=size, cure=cure)

    def pixels(x: NDArray[Any]) -> Tensor:
        tensor = floats(name, _channels_first(name, x, shape))
        if x.dtype != np.uint8 and tensor.numel() and not (tensor.min() >= 0 and tensor.max() <= 1):
            raise DataError(f"pixels of {name}", expected="bytes or numbers from 0 to 1", got=f"{x.dtype} outside them")
        if size is not None:
            tensor = F.adaptive_avg_pool2d(tensor, size)
        if normalise:
            tensor.sub_(torch.tensor(mean).view(-1, 1, 1)).div_(torch.tensor(std).view(-1, 1, 1))
        return tensor

    train, test = pixels(arrays.train_x), pixels(arrays.test_x)
    return Dataset(name, train, labels(name, arrays.train_y), test, labels(name, arrays.test_y), classes)


def floats(name: str, x: NDArray[Any]) -> Tensor:
    """The samples in float32, bytes scaled to [0, 1]; one copy, changed in place, because CIFAR is large."""
    if not (np.issubdtype(x.dtype, np.integer) or np.issubdtype(x.dtype, np.floating)):
        raise DataError(f"samples of {name}", expected="real numbers", got=x.dtype, cure="Save them as numbers.")
    tensor = torch.from_numpy(x.astype(np.float32, order="C"))
    return tensor.div_(255) if x.dtype == np.uint8 else tensor


def labels(name: str, y: NDArray[Any]) -> Tensor:
    """The labels in int64, [N] also where the file has [N, 1]."""
    if not np.issubdtype(y.dtype, np.integer) and y.dtype != np.bool_:
        cure = "Number the classes from 0 and save whole numbers."
        raise DataError(f"labels of {name}", expected="whole numbers", got=y.dtype, cure=cure)
    return torch.from_numpy(y.astype(np.int64).reshape(len(y) if y.ndim == 2 and y.shape[1] == 1 else y.shape))


def with_channels(x: NDArray[Any]) -> NDArray[Any]:
    """Pictures of any size with their channels first; samples of another shape as they are."""
    colours = (1, 3, 4)
    if x.ndim == 3:
        return x[:, np.newaxis]
    if x.ndim == 4 and x.shape[-1] in colours and x.shape[1] not in colours:
        return np.moveaxis(x, -1, 1)
    return x


def _channels_first(name: str, x: NDArray[Any], shape: tuple[int, int, int]) -> NDArray[Any]:
    channels, height, width = shape
    if x.shape[1:] == (height, width, channels):
        return np.moveaxis(x, -1, 1)
    if x.shape[1:] in (shape, (height, width), (channels * height * width,)) and x.size == len(x) * np.prod(shape):
        return x.reshape(-1, *shape)
    raise DataError(f"pictures of {name}", expected=f"{channels}×{height}×{width} pixels each", got=list(x.shape[1:]))

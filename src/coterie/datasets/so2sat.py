from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.datasets import Dataset
from coterie.datasets._files import IncompleteError, damaged, incomplete, places, reading
from coterie.errors import ConfigError, DataError

BANDS, CLASSES, SIDE = 10, 17, 32
_PUBLISHER = "https://github.com/zhu-xlab/So2Sat-LCZ42"


class _Part(NamedTuple):
    x: Tensor
    y: Tensor


def so2sat(
    folder: Path | None = None,
    *,
    limit: int | None = 20_000,
    test_limit: int | None = 5_000,
    test_part: str = "testing",
) -> Dataset:
    """Satellite images of 42 cities, 32×32 pixels in ten Sentinel-2 bands, by 17 local climate zones.

    Files: `training.h5` and `testing.h5` (or `validation.h5`: `test_part`) as published, with the arrays `sen2` and
    `label`. They have 50 GB and are not downloaded: https://github.com/zhu-xlab/So2Sat-LCZ42 says where its second
    version is. Of each at most `limit` and `test_limit` samples are read, at equal distances. Bands are standardised by
    the training samples read. Needs h5py: pip install "coterie[hdf5]".

    Reference: Zhu et al., So2Sat LCZ42: A Benchmark Data Set for the Classification of Global Local Climate Zones, 2020
    """
    for name, most in (("limit", limit), ("test_limit", test_limit)):
        if most is not None and most < 1:
            raise ConfigError(f"dataset.{name}", expected="at least 1, or nothing for all", got=most)
    if test_part not in ("testing", "validation"):
        raise ConfigError("dataset.test_part", expected="testing or validation", got=test_part)
    files = _find(folder, f"{test_part}.h5")
    train, test = (_read(file, most) for file, most in zip(files, (limit, test_limit), strict=True))
    mean = train.x.mean((0, 2, 3), keepdim=True)
    spread = train.x.std((0, 2, 3), keepdim=True, correction=0).clamp(min=1e-8)
    for part in (train, test):
        part.x.sub_(mean).div_(spread)
    return Dataset("so2sat", *train, *test, classes=CLASSES)


def _find(folder: Path | None, test: str) -> tuple[Path, Path]:
    wanted = ("training.h5", test)
    for place in places(folder, "so2sat") if folder is not None else ():
        missing = [name for name in wanted if not (place / name).is_file()]
        if not missing:
            return place / wanted[0], place / wanted[1]
        if len(missing) == 1:
            error: IncompleteError = incomplete("so2sat", place, missing)
            raise error
    cure = f"Get training.h5 and {test} at {_PUBLISHER} and name their folder with --data-dir or COTERIE_DATA."
    raise DataError("so2sat is not on this machine, and too large to be downloaded", cure=cure)


def _read(path: Path, limit: int | None) -> _Part:
    try:
        import h5py
    except ImportError:
        raise DataError("so2sat needs h5py", cure='Install it: pip install "coterie[hdf5]".') from None
    with reading(path, "an HDF5 file with the arrays sen2 and label", KeyError), h5py.File(path) as file:
        x, y = file["sen2"], file["label"]
        if x.shape[1:] != (SIDE, SIDE, BANDS) or y.shape != (len(x), CLASSES):
            wanted = f"sen2 [N, {SIDE}, {SIDE}, {BANDS}] and label [N, {CLASSES}]"
            raise damaged(path, f"expected {wanted}, got {list(x.shape)} and {list(y.shape)}")
        rows = _spaced(len(x), limit)
        images = np.empty((len(rows), BANDS, SIDE, SIDE), np.float32)
        for start in range(0, len(rows), 256):  # the whole file need not fit into memory
            some = rows[start : start + 256]
            images[start : start + 256] = np.moveaxis(_take(x, some), -1, 1)
        labels = np.concatenate([_take(y, rows[i : i + 256]) for i in range(0, len(rows), 256)]).argmax(1)
    return _Part(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))


def _spaced(size: int, limit: int | None) -> NDArray[np.int64]:
    """Indices of so many samples at equal distances, as samples of one city stand together; all without a limit."""
    count = size if limit is None else min(limit, size)
    return np.arange(count) * size // max(count, 1)


def _take(array: Any, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Read these rows of a data set; as a slice where they are one, which is much faster."""
    whole = len(rows) and rows[-1] - rows[0] + 1 == len(rows)
    return np.asarray(array[rows[0] : rows[-1] + 1] if whole else array[rows])

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

from coterie.datasets import Dataset
from coterie.datasets._archives import PublishedFolder
from coterie.datasets._arrays import Arrays
from coterie.datasets._files import Source, damaged, incomplete, load, read_bytes
from coterie.datasets._photos import check_size, photographs, squares

_TRAIN, _TEST = "cars_train_annos.mat", "cars_test_annos_withlabels.mat"
# Stanford has taken them from its server, and no copy of all four has an address that lasts.
_FILES = [Source(name) for name in ("cars_train.tgz", "cars_test.tgz", "car_devkit.tgz", _TEST)]
_PAGE = "https://github.com/pytorch/vision/issues/7545 tells of copies"


def stanford_cars(folder: Path | None = None, *, size: int = 64, normalise: bool = True) -> Dataset:
    """16,185 photographs of cars of 196 models, cut to squares of 64×64 pixels, 8,041 of them for testing.

    Files: the folders `cars_train`, `cars_test` and `devkit` (of which `cars_train_annos.mat` is read), or the archives
    `cars_train.tgz`, `cars_test.tgz` and `car_devkit.tgz`; and `cars_test_annos_withlabels.mat`, beside them or in
    `devkit`. Their publisher offers them no more, so they are not downloaded. Classes are the publisher's, from 0. Of
    each picture the middle square is taken, scaled to `size` pixels a side, grey ones in three equal channels;
    normalising takes ImageNet's mean and deviation.

    Reference: Krause, Stark, Deng, Fei-Fei, 3D Object Representations for Fine-Grained Categorization, 2013
    """
    check_size(size)
    readers = [lambda place: _find(place, size)]
    arrays = load("stanford_cars", folder, readers, _FILES, also=["cars", "cars196"], page=_PAGE)
    return photographs("stanford_cars", arrays, classes=196, normalise=normalise)


def _find(place: Path, size: int) -> Arrays | None:
    train = PublishedFolder.find(place, "cars_train", "cars_train.tgz")
    test = PublishedFolder.find(place, "cars_test", "cars_test.tgz")
    if train is None and test is None:
        return None
    devkit = PublishedFolder.find(place, "devkit", "car_devkit.tgz")
    answers = next((path for path in (place / _TEST, place / "devkit" / _TEST) if path.is_file()), None)
    if train is None or test is None or devkit is None or answers is None:
        needed = zip((source.name for source in _FILES), (train, test, devkit, answers), strict=True)
        raise incomplete("stanford_cars", place, [name for name, found in needed if found is None])
    ((_, content),) = devkit.read([_TRAIN])
    train_names, train_y = _annotations(devkit.path / _TRAIN, content)
    test_names, test_y = _annotations(answers, read_bytes(answers))
    return Arrays(squares(train, train_names, size), train_y, squares(test, test_names, size), test_y)


def _annotations(path: Path, content: bytes) -> tuple[list[str], NDArray[np.int64]]:
    """The names and labels, from 0, of the pictures that a MATLAB file lists as structures with `fname` and `class`."""
    try:
        file: Any = io.BytesIO(content)  # which loadmat takes, though its stubs know of paths alone
        listed = np.atleast_1d(loadmat(file, squeeze_me=True)["annotations"])
        if not listed.size:
            raise ValueError("it lists no picture")
        return [str(name) for name in listed["fname"]], listed["class"].astype(np.int64) - 1
    except Exception as error:  # a damaged MATLAB file can raise anything
        raise damaged(path, error) from error

"""Published photographs of all sizes: decoded one at a time, cut to squares and scaled to one size."""

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from coterie import waiting
from coterie.datasets import Dataset
from coterie.datasets._archives import PublishedFolder
from coterie.datasets._arrays import Arrays, images
from coterie.datasets._files import damaged
from coterie.errors import ConfigError

LARGEST = 512
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
"""Mean and deviation of ImageNet's channels: fixed numbers, which no choice of the test part or the size changes."""


def check_size(size: int) -> None:
    """Refuse a size that no picture can have."""
    if not 1 <= size <= LARGEST:
        cure = "64 is the default."
        raise ConfigError("dataset.size", expected=f"1 to {LARGEST} pixels", got=size, cure=cure)


def squares(folder: PublishedFolder, files: Sequence[str], size: int) -> NDArray[np.uint8]:
    """The middle squares of these pictures, [N, 3, size, size], in one array that is filled as they are decoded."""
    x = np.empty((len(files), 3, size, size), np.uint8)
    rows: dict[str, list[int]] = {}
    for row, file in enumerate(files):
        rows.setdefault(file, []).append(row)
    for done, (file, content) in enumerate(folder.read(rows)):
        waiting.tell(f"reading pictures of {folder.path.name}", done, len(rows))
        try:
            x[rows[file]] = _square(content, size)
        except Exception as error:  # a damaged picture can raise anything
            raise damaged(folder.path / file, error) from error
    return x


def _square(content: bytes, size: int) -> NDArray[np.uint8]:
    # Some files called .jpg are GIF or PNG, as published.
    with Image.open(io.BytesIO(content), formats=("JPEG", "PNG", "GIF")) as picture:
        picture.draft("RGB", (2 * size, 2 * size))  # a JPEG is decoded at a fraction of its size, which is faster
        square = ImageOps.fit(picture.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
    return np.moveaxis(np.asarray(square), -1, 0)


def photographs(name: str, arrays: Arrays, *, classes: int, normalise: bool) -> Dataset:
    """The data set of these squares."""
    shape = arrays.train_x.shape[1:]
    return images(name, arrays, shape=shape, classes=classes, mean=MEAN, std=STD, normalise=normalise)

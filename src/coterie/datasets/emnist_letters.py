from pathlib import Path

import numpy as np

from coterie.datasets import Dataset
from coterie.datasets._arrays import Arrays, images
from coterie.datasets._files import Source, load
from coterie.datasets._idx import find_four, find_zip

_ARCHIVE = Source(
    "gzip.zip", "58c8d27c78d21e728a6bc7b3cc06412e", ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",)
)


def emnist_letters(folder: Path | None = None, *, normalise: bool = True, size: int | None = None) -> Dataset:
    """Handwritten letters of 28×28 pixels in 26 classes, upper and lower case together.

    Files: the four `emnist-letters-…-ubyte.gz` (or unpacked), or the publisher's `gzip.zip`. They hold each
    picture with rows and columns exchanged, and labels from 1; here the letters stand upright and labels start at 0.

    `size` scales the pictures down, to 16×16 for example: each new pixel is the mean of those it covers.

    Reference: Cohen et al., EMNIST: Extending MNIST to Handwritten Letters, 2017
    """
    name, train, test = "emnist_letters", "emnist-letters-train", "emnist-letters-test"
    readers = (
        lambda place: find_four(place, name, train, test),
        lambda place: find_zip(place, name, train, test, "gzip.zip", "emnist-gzip.zip", "emnist.zip"),
    )
    raw = load(name, folder, readers, [_ARCHIVE], also=["EMNIST/raw"])
    upright = Arrays(
        raw.train_x.swapaxes(1, -1),
        raw.train_y.astype(np.int64) - 1,
        raw.test_x.swapaxes(1, -1),
        raw.test_y.astype(np.int64) - 1,
    )
    return images(
        name, upright, shape=(1, 28, 28), classes=26, mean=[0.1722], std=[0.3309], normalise=normalise, size=size
    )

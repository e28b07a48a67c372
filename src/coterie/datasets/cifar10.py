from pathlib import Path

from coterie.datasets import Dataset
from coterie.datasets._arrays import find_npz, images
from coterie.datasets._cifar import Form, binary, pickled
from coterie.datasets._files import Source, load

_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_BINARY = Form("cifar-10-batches-bin", "cifar-10-binary.tar.gz", tuple(f"{b}.bin" for b in _BATCHES), binary(1))
_PYTHON = Form("cifar-10-batches-py", "cifar-10-python.tar.gz", _BATCHES, pickled("labels"))
_ARCHIVE = Source(
    "cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
)


def cifar10(folder: Path | None = None, *, normalise: bool = True, size: int | None = None) -> Dataset:
    """60,000 colour pictures of ten kinds of things, 32×32 pixels, 10,000 of them for testing.

    Files: the folder `cifar-10-batches-bin` or `cifar-10-batches-py`, either archive, or `cifar10.npz`.

    `size` scales the pictures down, to 16×16 for example: each new pixel is the mean of those it covers.

    Reference: Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009
    """
    readers = (_BINARY.find, _PYTHON.find, lambda place: find_npz(place, "cifar10.npz", "cifar-10.npz"))
    arrays = load("cifar10", folder, readers, [_ARCHIVE], also=["cifar-10"])
    mean, std = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]
    return images("cifar10", arrays, shape=(3, 32, 32), classes=10, mean=mean, std=std, normalise=normalise, size=size)

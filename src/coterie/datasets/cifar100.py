from pathlib import Path

from coterie.datasets import Dataset
from coterie.datasets._arrays import find_npz, images
from coterie.datasets._cifar import Form, binary, pickled
from coterie.datasets._files import Source, load

_BINARY = Form("cifar-100-binary", "cifar-100-binary.tar.gz", ("train.bin", "test.bin"), binary(2))
_PYTHON = Form("cifar-100-python", "cifar-100-python.tar.gz", ("train", "test"), pickled("fine_labels"))
_ARCHIVE = Source(
    "cifar-100-binary.tar.gz",
    "03b5dce01913d631647c71ecec9e9cb8",
    ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
)


def cifar100(folder: Path | None = None, *, normalise: bool = True, size: int | None = None) -> Dataset:
    """60,000 colour pictures in a hundred classes (the fine labels), 32×32 pixels, 10,000 of them for testing.

    Files: the folder `cifar-100-binary` or `cifar-100-python`, either archive, or `cifar100.npz`.

    `size` scales the pictures down, to 16×16 for example: each new pixel is the mean of those it covers.

    Reference: Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009
    """
    readers = (_BINARY.find, _PYTHON.find, lambda place: find_npz(place, "cifar100.npz", "cifar-100.npz"))
    arrays = load("cifar100", folder, readers, [_ARCHIVE], also=["cifar-100"])
    mean, std = [0.5071, 0.4865, 0.4409], [0.2673, 0.2564, 0.2762]
    return images(
        "cifar100", arrays, shape=(3, 32, 32), classes=100, mean=mean, std=std, normalise=normalise, size=size
    )

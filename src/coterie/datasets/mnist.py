from pathlib import Path

from coterie.datasets import Dataset
from coterie.datasets._arrays import find_npz, images
from coterie.datasets._files import Source, load
from coterie.datasets._idx import find_four

SERVERS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
FILES = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


def mnist(folder: Path | None = None, *, normalise: bool = True, size: int | None = None) -> Dataset:
    """70,000 handwritten digits of 28×28 pixels, 10,000 of them for testing.

    Files: the four `…-ubyte.gz` (or unpacked), or `mnist.npz`.

    `size` scales the pictures down, to 16×16 for example: each new pixel is the mean of those it covers.

    Reference: LeCun et al., Gradient-Based Learning Applied to Document Recognition, 1998
    """
    sources = [Source(name, md5, tuple(server + name for server in SERVERS)) for name, md5 in FILES.items()]
    readers = (lambda place: find_four(place, "mnist", "train", "t10k"), lambda place: find_npz(place, "mnist.npz"))
    arrays = load("mnist", folder, readers, sources, also=["MNIST/raw"])
    return images(
        "mnist", arrays, shape=(1, 28, 28), classes=10, mean=[0.1307], std=[0.3081], normalise=normalise, size=size
    )

from pathlib import Path

from coterie.datasets import Dataset
from coterie.datasets._arrays import find_npz, images
from coterie.datasets._files import Source, load
from coterie.datasets._idx import find_four

SERVERS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
)
FILES = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}


def fashion_mnist(folder: Path | None = None, *, normalise: bool = True, size: int | None = None) -> Dataset:
    """70,000 pictures of ten kinds of clothing, 28×28 pixels, 10,000 of them for testing.

    Files: the four `…-ubyte.gz` (or unpacked), or `fashion-mnist.npz`. Their names are those of MNIST's files: keep
    them in a folder `fashion-mnist`.

    `size` scales the pictures down, to 16×16 for example: each new pixel is the mean of those it covers.

    Reference: Xiao et al., Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms, 2017
    """
    name = "fashion_mnist"
    sources = [Source(file, md5, tuple(server + file for server in SERVERS)) for file, md5 in FILES.items()]
    readers = (
        lambda place: find_four(place, name, "train", "t10k"),
        lambda place: find_npz(place, "fashion-mnist.npz", "fashion_mnist.npz"),
    )
    arrays = load(name, folder, readers, sources, also=["FashionMNIST/raw"])
    return images(
        name, arrays, shape=(1, 28, 28), classes=10, mean=[0.2860], std=[0.3530], normalise=normalise, size=size
    )

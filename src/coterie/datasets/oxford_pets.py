from pathlib import Path

import numpy as np

from coterie.datasets import Dataset
from coterie.datasets._archives import PublishedFolder
from coterie.datasets._arrays import Arrays
from coterie.datasets._files import Source, damaged, incomplete, load
from coterie.datasets._photos import check_size, photographs, squares

_PAGE = "https://www.robots.ox.ac.uk/~vgg/data/pets/"
_LISTS = ("trainval.txt", "test.txt")
_ARCHIVES = [
    Source(name, md5, (f"{_PAGE}data/{name}", f"https://thor.robots.ox.ac.uk/~vgg/data/pets/{name}"))
    for name, md5 in (
        ("annotations.tar.gz", "95a8c909bbe2e81eed6a22bccdf3f68f"),
        ("images.tar.gz", "5c4f3ee8e5d25df40f4fd59a7f44e54c"),
    )
]

Entries = dict[str, int]  # pictures and their labels


def oxford_pets(folder: Path | None = None, *, size: int = 64, normalise: bool = True) -> Dataset:
    """7,349 photographs of cats and dogs of 37 breeds, cut to squares of 64×64 pixels, 3,669 of them for testing.

    Files: the folders `images` and `annotations` (of which `trainval.txt` and `test.txt` are read), or the archives
    `images.tar.gz` and `annotations.tar.gz`. Classes are the publisher's, from 0. Of each picture the middle square is
    taken, scaled to `size` pixels a side, grey ones in three equal channels; normalising takes ImageNet's mean and
    deviation.

    Reference: Parkhi, Vedaldi, Zisserman, Jawahar, Cats and Dogs, 2012
    """
    check_size(size)
    arrays = load(
        "oxford_pets",
        folder,
        [lambda place: _find(place, size)],
        _ARCHIVES,
        also=["oxford-iiit-pet", "oxford-iiit-pets"],
        page=_PAGE,
    )
    return photographs("oxford_pets", arrays, classes=37, normalise=normalise)


def _find(place: Path, size: int) -> Arrays | None:
    annotations = PublishedFolder.find(place, "annotations", "annotations.tar.gz")
    # Many sets have folders of these names; the lists tell this one.
    if annotations is None or (annotations.path.is_dir() and not (annotations.path / _LISTS[0]).is_file()):
        return None
    pictures = PublishedFolder.find(place, "images", "images.tar.gz")
    if pictures is None:
        raise incomplete("oxford_pets", place, ["images.tar.gz"])
    lists = dict(annotations.read(_LISTS))
    train, test = (_entries(annotations.path / name, lists[name]) for name in _LISTS)
    x = squares(pictures, [*train, *test], size)
    train_y, test_y = (np.array([*part.values()], np.int64) for part in (train, test))
    return Arrays(x[: len(train)], train_y, x[len(train) :], test_y)


def _entries(path: Path, content: bytes) -> Entries:
    """The pictures of a list, whose lines are a name, its class from 1, and two numbers more."""
    try:
        lines = [line.split() for line in content.decode().splitlines()]
        found = {f"{line[0]}.jpg": int(line[1]) - 1 for line in lines if line and not line[0].startswith("#")}
        if not found:
            raise ValueError("it names no picture")
        return found
    except (ValueError, IndexError) as error:
        raise damaged(path, error) from error

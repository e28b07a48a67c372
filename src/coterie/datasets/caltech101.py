from pathlib import Path, PurePosixPath

import numpy as np

from coterie.datasets import Dataset
from coterie.datasets._archives import PublishedFolder
from coterie.datasets._arrays import Arrays
from coterie.datasets._files import Source, load
from coterie.datasets._photos import check_size, photographs, squares
from coterie.datasets._split import stratified
from coterie.errors import DataError

CLASSES = 101
_FOLDER = "101_ObjectCategories"
_PAGE = "https://data.caltech.edu/records/mzrjq-6wc02"
_ARCHIVE = Source("caltech-101.zip", "3138e1922a9193bfa496528edbbc45d0", (f"{_PAGE}/files/caltech-101.zip",))


def caltech101(
    folder: Path | None = None, *, size: int = 64, test_share: float = 0.2, normalise: bool = True
) -> Dataset:
    """8,677 photographs of 101 kinds of things, cut to squares of 64×64 pixels, a fifth of each kind for testing.

    Files: the folder `101_ObjectCategories`, its `.tar.gz`, or the publisher's `caltech-101.zip`. Classes are numbered
    in the order of their names, without BACKGROUND_Google. The test part is drawn once for all, whatever the seed of
    the experiment. Of each picture the middle square is taken, scaled to `size` pixels a side, grey ones in three equal
    channels; normalising takes ImageNet's mean and deviation.

    Reference: Fei-Fei, Fergus, Perona, Learning Generative Visual Models from Few Training Examples, 2004
    """
    check_size(size)

    def find(place: Path) -> Arrays | None:
        found = PublishedFolder.find(place, _FOLDER, f"{_FOLDER}.tar.gz", "caltech-101.zip")
        return _read(found, size, test_share) if found else None

    also = ["caltech-101", "caltech101/caltech-101"]
    arrays = load("caltech101", folder, [find], [_ARCHIVE], also=also, page=_PAGE)
    return photographs("caltech101", arrays, classes=CLASSES, normalise=normalise)


def _read(found: PublishedFolder, size: int, test_share: float) -> Arrays:
    paths = [path for path in map(PurePosixPath, found.files()) if len(path.parts) == 2 and _is_picture(path)]
    names = sorted({path.parts[0] for path in paths})
    if len(names) != CLASSES:
        cure = f"Unpack {_FOLDER}.tar.gz again, or leave it as it is: it is read, too."
        raise DataError(f"classes in {found.path}", expected=f"{CLASSES} folders of .jpg", got=len(names), cure=cure)
    y = np.array([names.index(path.parts[0]) for path in paths], np.int64)
    train, test = stratified(y, test_share, "caltech101")
    order, cut = np.concatenate([train, test]), len(train)
    x = squares(found, [str(paths[i]) for i in order], size)
    return Arrays(x[:cut], y[train], x[cut:], y[test])


def _is_picture(path: PurePosixPath) -> bool:
    # Names with a dot are what file managers and archivers leave behind.
    return path.suffix == ".jpg" and not path.name.startswith(".") and path.parts[0] != "BACKGROUND_Google"

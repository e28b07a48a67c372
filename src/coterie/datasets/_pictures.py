"""A folder of pictures of the user's own: one folder a class."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from coterie.datasets._arrays import Found
from coterie.datasets._files import reading
from coterie.errors import DataError

ENDINGS = (".png", ".jpg", ".jpeg")
UNREAD = (".bmp", ".gif", ".heic", ".tif", ".tiff", ".webp")
LAYOUT = "CLASS/picture.png, or train/CLASS/picture.png and test/CLASS/picture.png"
GREY = ("1", "L", "LA", "La")
DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")

Entry = tuple[Path, int]  # a picture and its class


def read_pictures(path: Path) -> Found:
    """The pictures below a folder: classes by name, also those whose folder is empty; grey if all of them are."""
    with reading(path, LAYOUT):
        parts = _parts(path)
        names = tuple(sorted({folder.name for part in parts for folder in _folders(part)}))
        entries = [_entries(part, names) for part in parts]
    if not entries[0]:
        got = "none" + (f" in {', '.join(names[:6])}" if names else "")
        raise DataError(f"no pictures below {parts[0]}", expected=LAYOUT, got=got, cure="Check dataset.path.")
    size, channels = _measure([file for part in entries for file, _ in part])
    train, *test = [
        (_pixels(part, size, channels), np.array([y for _, y in part], np.int64)) for part in entries if part
    ]
    return Found(train, test[0] if test else None, names)


def _folders(path: Path) -> list[Path]:
    # Names with a dot or __MACOSX are what file managers and archivers leave behind.
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith((".", "__MACOSX")))


def _parts(path: Path) -> list[Path]:
    """The folders of classes: train and test if either has folders inside, else the folder itself."""
    folders = {folder.name: folder for folder in _folders(path)}
    if not any(name in folders and _folders(folders[name]) for name in ("train", "test")):
        return [path]
    if "train" not in folders or not set(folders) <= {"train", "test"}:
        cure = "Rename or move the others; without test/, a share of the samples is set aside."
        raise DataError(f"folders in {path}", expected="train/, or train/ and test/", got=", ".join(folders), cure=cure)
    return [folders[name] for name in ("train", "test") if name in folders]


def _entries(part: Path, names: tuple[str, ...]) -> list[Entry]:
    loose = next((p for p in part.iterdir() if _is_picture(p)), None)
    if loose is not None:
        raise DataError("a picture without a class", expected=LAYOUT, got=loose, cure="Move it into a folder.")
    return [
        (file, names.index(folder.name))
        for folder in _folders(part)
        for file in sorted(folder.rglob("*"))
        if _is_picture(file)
    ]


def _is_picture(path: Path) -> bool:
    if path.name.startswith(".") or not path.is_file():
        return False
    if path.suffix.lower() in UNREAD:
        raise DataError("a picture of another kind", expected=", ".join(ENDINGS), got=path, cure="Convert it to PNG.")
    return path.suffix.lower() in ENDINGS


def _open(path: Path) -> Image.Image:
    return Image.open(path, formats=("PNG", "JPEG"))


def _measure(files: list[Path]) -> tuple[tuple[int, int], int]:
    """Width and height of all pictures, from their headers alone, and the number of channels that shows them all."""
    size: tuple[int, int] | None = None
    grey = True
    for file in files:
        with reading(file, "a PNG or JPEG picture", Image.DecompressionBombError), _open(file) as picture:
            found, mode = picture.size, picture.mode
        size = size or found
        if found != size:
            expected = f"{size[0]}×{size[1]} pixels as in {files[0]}"
            cure = "Scale or crop all pictures to one size."
            raise DataError(
                "pictures differ in size", expected=expected, got=f"{found[0]}×{found[1]} in {file}", cure=cure
            )
        if mode in DEEP:
            raise DataError(f"{file}", expected="8 bits a channel", got=f"mode {mode}", cure="Convert it to 8 bits.")
        grey = grey and mode in GREY
    assert size is not None
    return size, 1 if grey else 3


def _pixels(entries: list[Entry], size: tuple[int, int], channels: int) -> NDArray[np.uint8]:
    x = np.empty((len(entries), channels, size[1], size[0]), np.uint8)
    for row, (file, _) in zip(x, entries, strict=True):
        with reading(file, "a PNG or JPEG picture", Image.DecompressionBombError), _open(file) as picture:
            pixels = np.asarray(picture.convert("L" if channels == 1 else "RGB"))
        row[:] = np.moveaxis(pixels.reshape(size[1], size[0], channels), -1, 0)
    return x

"""The idx format of MNIST and its relatives: a big-endian header, then bytes; often compressed with gzip."""

import gzip
import hashlib
import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.datasets._arrays import Arrays
from coterie.datasets._files import check_size, damaged, incomplete, read_bytes
from coterie.errors import DataError

# MNIST and Fashion-MNIST use the same file names, so a file in the wrong folder reads well. The digest of the
# 60,000 training labels tells them apart.
TRAINING_LABELS = {
    "e86ee40d66677c011a9abda399ec8c4d": "mnist",
    "3236f6424fc25388b2834cb19942cf7e": "fashion_mnist",
}

PICTURES = re.compile(r"(?P<stem>.*images)[-.]idx[34]-ubyte(\.gz)?")


def parse(data: bytes, source: Path | str) -> NDArray[Any]:
    """The array of bytes in an idx file, which may be compressed."""
    try:
        return decode(data)
    except (OSError, EOFError, ValueError, struct.error, zlib.error) as error:
        raise damaged(source, error) from error


def decode(data: bytes) -> NDArray[Any]:
    """The array of bytes in an idx file; raises Python's own errors over damage, where `parse` has a DataError."""
    packed = data[:2] == b"\x1f\x8b"
    head = zlib.decompressobj(wbits=31).decompress(data, 20) if packed else data[:20]
    zeros, kind, dimensions = struct.unpack_from(">HBB", head)
    if zeros != 0 or kind != 8 or not 1 <= dimensions <= 4:
        raise ValueError("not an idx file of bytes")
    shape = struct.unpack_from(f">{dimensions}I", head, 4)
    start = 4 + 4 * dimensions
    if packed:
        check_size(math.prod(shape), len(data))
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            data = file.read(start + math.prod(shape) + 1)
    if len(data) - start != math.prod(shape):
        raise ValueError(f"its header promises {math.prod(shape)} bytes, it has {len(data) - start}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def picture_files(place: Path) -> dict[str, Path]:
    """The idx files of pictures in a folder, by the beginning of their names; the compressed one of two."""
    found = {match["stem"]: path for path in sorted(place.iterdir()) if (match := PICTURES.fullmatch(path.name))}
    return {stem: path for stem, path in found.items() if path.is_file()}


def labels_beside(pictures: Path) -> Path:
    """The idx file of labels that belongs to this one of pictures."""
    match = PICTURES.fullmatch(pictures.name)
    assert match is not None
    stem = match["stem"].removesuffix("images") + "labels"
    path = _spelled(pictures.parent, stem, 1)
    if path is None:
        cure = "Put the labels beside the pictures, under the name they were published with."
        raise DataError(f"no labels for {pictures}", expected=f"{stem}-idx1-ubyte.gz", got="no such file", cure=cure)
    return path


def find_four(place: Path, dataset: str, train: str, test: str) -> Arrays | None:
    """The four idx files of a data set in this folder, whose names begin with `train` and `test`."""
    stems = _stems(train, test)
    found = [_spelled(place, stem, dimensions) for stem, dimensions in stems]
    if not any(found):
        return None
    if missing := [f"{stem}-idx{d}-ubyte.gz" for (stem, d), path in zip(stems, found, strict=True) if path is None]:
        raise incomplete(dataset, place, missing)
    return _read(dataset, [path for path in found if path is not None], read_bytes)


def find_zip(place: Path, dataset: str, train: str, test: str, *names: str) -> Arrays | None:
    """The four idx files of a data set in the first of these zip archives that is in this folder."""
    for path in (place / name for name in names):
        if not path.is_file():
            continue
        try:
            with zipfile.ZipFile(path) as archive:
                members = {PurePosixPath(member).name: member for member in archive.namelist()}
                chosen = [members.get(f"{stem}-idx{d}-ubyte.gz", "") for stem, d in _stems(train, test)]
                if not all(chosen):
                    raise damaged(path, f"without the four files of {dataset}")
                return _read(dataset, chosen, archive.read)
        except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise damaged(path, error) from error
    return None


def _stems(train: str, test: str) -> list[tuple[str, int]]:
    return [(f"{part}-{kind}", d) for part in (train, test) for kind, d in (("images", 3), ("labels", 1))]


def _spelled(place: Path, stem: str, dimensions: int) -> Path | None:
    spellings = (place / f"{stem}{dot}idx{dimensions}-ubyte{end}" for dot in "-." for end in (".gz", ""))
    return next((path for path in spellings if path.is_file()), None)


def _read(dataset: str, files: list[Any], read: Callable[[Any], bytes]) -> Arrays:
    arrays = Arrays(*(parse(read(file), file) for file in files))
    owner = TRAINING_LABELS.get(hashlib.md5(arrays.train_y.tobytes(), usedforsecurity=False).hexdigest(), dataset)
    if owner != dataset:
        raise DataError(f"{files[1]}", expected=dataset, got=owner, cure="Put each set into a folder of its own name.")
    return arrays

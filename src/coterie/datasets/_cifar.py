"""The two forms of CIFAR, binary and pickled, in a folder or still in their archive."""

import io
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.datasets._archives import open_tar
from coterie.datasets._arrays import Arrays
from coterie.datasets._files import damaged, incomplete, read_bytes

PIXELS = 3 * 32 * 32

Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]
Decoder = Callable[[bytes, str], Batch]


@dataclass(frozen=True)
class Form:
    """One form of a set: its folder, its archive, its files (the test file last) and how to read one."""

    folder: str
    archive: str
    files: tuple[str, ...]
    decode: Decoder

    def find(self, place: Path) -> Arrays | None:
        """The set in this folder, or None if it is not there in this form."""
        for base in (place / self.folder, place):
            missing = [name for name in self.files if not (base / name).is_file()]
            if not missing:
                return self._join((name, read_bytes(base / name), base / name) for name in self.files)
            # A file called `test` in the user's folder can be anything; in the set's own folder it is the set's.
            if base != place and len(missing) < len(self.files):
                raise incomplete(self.folder, base, missing)
        path = place / self.archive
        return self._join(_members(path, self.files)) if path.is_file() else None

    def _join(self, contents: Iterable[tuple[str, bytes, Path]]) -> Arrays:
        batches = {name: self.decode(data, f"{path}") for name, data, path in contents}
        *train, test = (batches[name] for name in self.files)
        return Arrays(np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train]), *test)


def binary(label_bytes: int) -> Decoder:
    """Reads records of the labels (the last one counts) and the red, green and blue pixels."""

    def decode(data: bytes, source: str) -> Batch:
        width = label_bytes + PIXELS
        if not data or len(data) % width:
            raise damaged(source, f"{len(data)} bytes are no whole number of records of {width}")
        records = np.frombuffer(data, np.uint8).reshape(-1, width)
        return records[:, label_bytes:], records[:, label_bytes - 1].astype(np.int64)

    return decode


def pickled(label_key: str) -> Decoder:
    """Reads a pickled dictionary of an array `data` and a list of labels."""

    def decode(data: bytes, source: str) -> Batch:
        try:
            content = _ArraysOnly(io.BytesIO(data), encoding="latin1").load()
            entries = {k.decode() if isinstance(k, bytes) else k: v for k, v in content.items()}
            x, y = np.asarray(entries["data"]), np.asarray(entries[label_key], np.int64)
            if x.dtype != np.uint8 or x.shape != (len(y), PIXELS):
                raise ValueError(f"{x.dtype} pictures {list(x.shape)} for {len(y)} labels")
        except Exception as error:  # a damaged pickle can raise anything
            raise damaged(source, error) from error
        return x, y

    return decode


# The functions that NumPy itself names when it pickles an array, in the protocols up to 4 and from 5.
_REBUILD: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): np.zeros(1).__reduce_ex__(4)[0],
    ("numpy.core.numeric", "_frombuffer"): np.zeros(1).__reduce_ex__(5)[0],
}


class _ArraysOnly(pickle.Unpickler):
    """Unpickles plain values and NumPy arrays and nothing else, for a pickle can otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if (module.replace("_core", "core"), name) in _REBUILD:  # where they live has changed between versions of NumPy
            return _REBUILD[module.replace("_core", "core"), name]
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes in old pickle protocols
            return lambda text, encoding: text.encode("latin1")
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")


def _members(archive: Path, wanted: tuple[str, ...]) -> list[tuple[str, bytes, Path]]:
    """The wanted files of an archive, read without unpacking it."""
    found: dict[str, bytes] = {}
    with open_tar(archive) as tar:
        for member in tar:
            name = PurePosixPath(member.name).name
            file = tar.extractfile(member) if member.isfile() and name in wanted else None
            if file is not None:
                found[name] = file.read()
    if missing := [name for name in wanted if name not in found]:
        raise damaged(archive, f"without {', '.join(missing)}")
    return [(name, data, archive / name) for name, data in found.items()]

"""The two formats of CIFAR, binary and pickled, in a folder or still in their archive."""

import io
import pickle
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.datasets._arrays import Arrays
from coterie.datasets._files import damaged, incomplete

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Layout:
    """How one of the CIFAR sets names its folders, files and labels."""

    name: str
    binary: str
    python: str
    archive: str
    train: tuple[str, ...]
    test: str
    label_bytes: int
    label_key: str

    def find(self, place: Path) -> Arrays | None:
        """The set in this folder, in whichever form it is there."""
        ways: tuple[tuple[str, str, Callable[[bytes, str], _Batch]], ...] = (
            (self.binary, ".bin", self._binary),
            (self.python, "", self._pickled),
        )
        for folder, suffix, decode in ways:
            files = {f"{stem}{suffix}" for stem in (*self.train, self.test)}
            contents = self._named_folder(place / folder, files) or _whole_folder(place, files)
            if contents is not None:
                return self._join({name: decode(path.read_bytes(), str(path)) for name, path in contents.items()}, suffix)
        for kind, (_, suffix, decode) in zip(("binary", "python"), ways, strict=True):
            path = place / f"{self.archive}-{kind}.tar.gz"
            if path.is_file():
                return self._join(self._archive(path, suffix, decode), suffix)
        return None

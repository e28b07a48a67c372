"""Tables that come with scikit-learn, read without it: its import takes longer than all else that a small run needs."""

import importlib
import importlib.util
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def shipped(file: str, loader: str, skip: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Samples and labels of a file among scikit-learn's data, or of its own loader where that file is not there."""
    found = importlib.util.find_spec("sklearn")
    path = Path(found.origin).parent / "datasets" / "data" / file if found and found.origin else Path(file)
    if not path.is_file():
        x, y = getattr(importlib.import_module("sklearn.datasets"), loader)(return_X_y=True)
        return x, y.astype(np.int64)
    table = np.loadtxt(path, delimiter=",", skiprows=skip)
    return table[:, :-1], table[:, -1].astype(np.int64)

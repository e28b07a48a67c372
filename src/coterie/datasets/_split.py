"""A fixed test part for data sets that are published in one piece."""

import numpy as np
from numpy.typing import NDArray

from coterie.errors import ConfigError
from coterie.randomness import generator


def stratified(labels: NDArray[np.int64], share: float, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split into training and test indices: this share of every class for testing, the same in every experiment."""
    if not 0 < share < 1:
        raise ConfigError("test_share", expected="a number between 0 and 1", got=share)
    is_test = np.zeros(len(labels), np.bool_)
    for label in np.unique(labels):
        members = generator(0, f"test part of {name}", int(label)).permutation(np.flatnonzero(labels == label))
        is_test[members[: min(max(round(share * len(members)), 1), len(members) - 1)]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)

"""Random graphs with given degrees: half-links matched at random, then mended until the graph is simple."""

import numpy as np
from numpy.typing import NDArray

from coterie.network.faults import Ints

_TRIES = 2000


def match(heads: Ints, tails: Ints, rng: np.random.Generator, *, directed: bool) -> Ints | None:
    """Pairs [m, 2] of heads with shuffled tails, without loops or repeats; None if mending does not get there.

    Faulty pairs exchange their tails with one another and with random pairs. Every exchange keeps all degrees.
    """
    tails = rng.permutation(tails)
    bad = _faulty(heads, tails, directed)
    for _ in range(_TRIES):
        if not bad.any():
            return np.stack([heads, tails], axis=1)
        faulty = np.flatnonzero(bad)
        rows = np.union1d(faulty, rng.integers(len(heads), size=len(faulty) + 1))
        trial = tails.copy()
        trial[rows] = rng.permutation(tails[rows])
        still = _faulty(heads, trial, directed)
        if still.sum() <= bad.sum():
            tails, bad = trial, still
    return None


def _faulty(heads: Ints, tails: Ints, directed: bool) -> NDArray[np.bool_]:
    low, high = (heads, tails) if directed else (np.minimum(heads, tails), np.maximum(heads, tails))
    code = low * (high.max(initial=0) + 1) + high
    _, first = np.unique(code, return_index=True)
    faulty = np.ones(len(code), np.bool_)
    faulty[first] = False
    faulty |= heads == tails
    return faulty

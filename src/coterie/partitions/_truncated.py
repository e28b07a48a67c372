"""Zipf variates given that their sum is small: the conditional law itself, where rejection would never end."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.signal import fftconvolve

Law = NDArray[np.float64]


def truncated_zipf(n: int, most: int, alpha: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw n Zipf variates, P(x) ∝ x^−α on x = 1, 2, …, given that their sum is at most `most`.

    With W_m the law of the sum of m variates, W_m = W_⌊m/2⌋ * W_⌈m/2⌉ by convolution, the total is drawn from W_n cut
    at `most`, then divided between the two halves with P(a | s) ∝ W_⌊m/2⌋(a) W_⌈m/2⌉(s − a), and so on down to single
    variates. The cost is O(S log S log n) for the laws and at most O(n S) for the draws, S = `most`.
    """
    assert 1 <= n <= most
    excess = np.arange(most - n + 1)  # what a sum is above its least value: the same range serves every m
    weight = -alpha * np.log1p(excess)
    tilt = _tilt(weight, excess, (most - n) / n)
    laws = {1: _normalised(np.exp(weight - tilt * excess))}
    with np.errstate(divide="ignore"):
        total = np.log(_law(n, laws)) + tilt * excess
    return 1 + _divide(n, _draw(np.exp(total - total.max()), rng), laws, rng)


def _tilt(weight: Law, excess: NDArray[np.int64], mean: float) -> float:
    """The θ ≥ 0 for which variates weighted by e^{−θx} have this mean, or 0 if they are no larger without.

    Given its sum, the law of the parts does not depend on θ. But with it the sums that are kept are common rather than
    in the far tail, where the rounding of the Fourier transform would drown them.
    """

    def surplus(theta: float) -> float:
        law = _normalised(np.exp(weight - theta * excess))
        return float(law @ excess) - mean

    return 0.0 if surplus(0.0) <= 0 else float(brentq(surplus, 0.0, 50.0))


def _law(m: int, laws: dict[int, Law]) -> Law:
    """The law of the sum of m variates, kept with those of the halves it is made of."""
    if m not in laws:
        half = m // 2
        both = fftconvolve(_law(half, laws), _law(m - half, laws))[: len(laws[1])]
        laws[m] = _normalised(np.maximum(both, 0.0))
    return laws[m]


def _divide(m: int, total: int, laws: dict[int, Law], rng: np.random.Generator) -> NDArray[np.int64]:
    """Divide an excess of `total` among m variates."""
    if m == 1 or total == 0:
        return np.full(m, total)
    half = m // 2
    first = _draw(_law(half, laws)[: total + 1] * _law(m - half, laws)[total::-1], rng)
    return np.concatenate([_divide(half, first, laws, rng), _divide(m - half, total - first, laws, rng)])


def _draw(weights: Law, rng: np.random.Generator) -> int:
    """An index with probability proportional to its weight."""
    steps = np.cumsum(weights)
    return int(min(np.searchsorted(steps, rng.random() * steps[-1], side="right"), np.flatnonzero(weights)[-1]))


def _normalised(weights: Law) -> Law:
    return np.asarray(weights / weights.sum(), np.float64)

"""Plateaus of the loss: the round at which each seed leaves it, and how that time grows with the network."""

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
from scipy.special import stdtrit
from scipy.stats import linregress

from coterie.report.statistics import Interval, mean_ci, per_seed
from coterie.report.tables import NEVER


def leaving_times(records: pl.DataFrame, level: float) -> list[float]:
    """The round at which each seed's mean test loss falls below a level, interpolated; NaN if it never does."""
    found = []
    for curve in per_seed(records, "test_loss").partition_by("seed"):
        rounds, losses = curve["round"].to_numpy().astype(float), curve["value"].to_numpy().astype(float)
        after = rounds >= 1  # the untrained start of a gain is far above any plateau
        rounds, losses = rounds[after], losses[after]
        below = np.flatnonzero(losses < level)
        if not below.size:
            found.append(math.nan)
        elif below[0] == 0:
            found.append(float(rounds[0]))
        else:
            a, b = below[0] - 1, below[0]
            share = (losses[a] - level) / (losses[a] - losses[b])
            found.append(float(rounds[a] * (rounds[b] / rounds[a]) ** share))
    return found


def power_law_exponent(sizes: Sequence[int], times: Sequence[Sequence[float]]) -> Interval:
    """μ of t ∝ n^μ by regression of logarithms, with its 95 % interval; NaN with fewer than two sizes."""
    pairs = [(math.log(n), math.log(t)) for n, own in zip(sizes, times, strict=True) for t in own if not math.isnan(t)]
    if len({x for x, _ in pairs}) < 2:
        return Interval(math.nan, math.nan)
    fit = linregress(*np.array(pairs).T)
    half = float(stdtrit(len(pairs) - 2, 0.975)) * float(fit.stderr) if len(pairs) > 2 else math.nan
    return Interval(float(fit.slope), half)


def interval_cell(values: Sequence[float], digits: int = 1) -> str:
    """A mean with its interval over seeds, and how many seeds have a value if not all."""
    known = [v for v in values if not math.isnan(v)]
    if not known:
        return NEVER
    mean, half = mean_ci(known)
    text = f"{mean:.{digits}f}" + ("" if math.isnan(half) else f" ± {half:.{digits}f}")
    return text if len(known) == len(values) else f"{text} ({len(known)}/{len(values)})"

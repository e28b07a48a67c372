"""Plateaus of the loss: the round at which each seed leaves it, and how that time grows with the network."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import stdtrit
from scipy.stats import linregress

from coterie.report.claims import RULE, verdict
from coterie.report.curves import Values
from coterie.report.sheets import Sheet
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


class Fall(NamedTuple):
    """A power law along which a loss falls: loss = height · x^−exponent, between two places."""

    exponent: float
    height: float
    first: float
    last: float


def fall(x: Values, losses: Values) -> Fall | None:
    """The power law of a curve from where it has lost a tenth of its height until a tenth of its fall is left.

    By regression of logarithms; None where fewer than three points lie between.
    """
    most, least = float(losses.max()), float(losses.min())
    between = (x > 0) & (losses < most - 0.1 * (most - least)) & (losses > least + 0.1 * (most - least))
    if between.sum() < 3:
        return None
    fit = linregress(np.log(x[between]), np.log(losses[between]))
    return Fall(-float(fit.slope), math.exp(fit.intercept), float(x[between].min()), float(x[between].max()))


def plateau_claims(
    sizes: Sequence[int], times: Mapping[str, Sequence[Sequence[float]]], most: Mapping[int, int]
) -> Sheet:
    """Whether the plateau grows with the network and the gain shortens it, seed by seed; who stays has the last one."""
    known = {
        how: [[float(most[n]) if math.isnan(t) else t for t in own] for n, own in zip(sizes, found, strict=True)]
        for how, found in times.items()
    }
    logs = np.log(sizes)
    slopes = {
        how: [float(np.polyfit(logs, np.log(seed), 1)[0]) for seed in zip(*found, strict=True)]
        for how, found in known.items()
    }
    sooner = [
        [math.log(a / b) for a, b in zip(he, gain, strict=True)]
        for he, gain in zip(known["he"], known["gain"], strict=True)
    ]
    rows = [["He alone: the plateau grows with n (exponent above 0)", *_judged(slopes["he"])]]
    steeper = [a - b for a, b in zip(slopes["he"], slopes["gain"], strict=True)]
    rows.append(["it grows faster than with the gain (difference of exponents)", *_judged(steeper)])
    for n, found in zip(sizes, sooner, strict=True):
        rows.append([f"n = {n}: with the gain it is left sooner (logarithm of the ratio)", *_judged(found)])
    return Sheet("What the paper claims", ["claim", "mean over seeds", "verdict"], rows, [RULE])


def _judged(values: Sequence[float]) -> list[str]:
    return [interval_cell(values, digits=2), verdict(values)]


def interval_cell(values: Sequence[float], digits: int = 1) -> str:
    """A mean with its interval over seeds, and how many seeds have a value if not all."""
    known = [v for v in values if not math.isnan(v)]
    if not known:
        return NEVER
    mean, half = mean_ci(known)
    text = f"{mean:.{digits}f}" + ("" if math.isnan(half) else f" ± {half:.{digits}f}")
    return text if len(known) == len(values) else f"{text} ({len(known)}/{len(values)})"

"""Bounds beside what they bound, as a table."""

import numpy as np
import polars as pl

from coterie.report.sheets import Sheet

LOOSE = "The bounds hold, and say little: they lie {least} to {most} times as high as the gaps they bound."
BROKEN = "Where the gap lies above the bound, the steps were not those that the bound is meant for: {where}."


def theory_sheet(gaps: pl.DataFrame) -> Sheet:
    """By method and round, the gap to the optimum, mean over nodes and seeds, beside the bound.

    Where a model walks, the gap is that of the node who trained it last.
    """
    latest = pl.col("turns").is_null() | (pl.col("turns") == pl.col("turns").max().over("method", "seed", "round"))
    means = gaps.filter(latest).group_by("method", "round", maintain_order=True).agg(pl.col("gap", "bound").mean())
    rows = [
        [method, str(number), f"{gap:.3g}", f"{bound:.3g}", _round(bound / gap) if gap > 0 else "—"]
        for method, number, gap, bound in means.iter_rows()
    ]
    headings = ["method", "round", "gap", "bound", "times"]
    return Sheet("Gap to the optimum, and its bound", headings, rows, [verdict(means)])


def verdict(means: pl.DataFrame) -> str:
    """The sentence that says how loose the bounds are, or where they do not hold."""
    gap, bound = means["gap"].to_numpy(), means["bound"].to_numpy()
    if (gap > bound).any():
        broken = means.filter(pl.col("gap") > pl.col("bound"))["method"].unique(maintain_order=True)
        return BROKEN.format(where=", ".join(broken))
    times = bound[gap > 0] / gap[gap > 0]
    if not len(times):
        return "The gap is nothing."
    return LOOSE.format(least=_round(times.min()), most=_round(times.max()))


def _round(number: float) -> str:
    """Two digits: 1,234 is 1,200, and millions are powers of ten."""
    digits = int(np.floor(np.log10(number))) - 1
    if digits > 4:
        return f"{number:.0e}".replace("e+", "e")
    return f"{round(number, -digits):,.{max(-digits, 0)}f}"

"""Numbers as a page takes them: few, short, and finite."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

DIGITS = 5
"""More than that no screen shows."""


def plain(series: pl.Series) -> list[Any]:
    """A column as a list for JSON."""
    found: list[Any] = series.to_list()
    return [short(value) for value in found] if series.dtype.is_float() else found


def short(value: float | None) -> float | None:
    """One number for JSON."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def thinned(rounds: Sequence[int], most: int) -> list[int]:
    """So many of these rounds at most, the first and the last among them: half evenly, half denser at the beginning."""
    rounds = sorted(set(rounds))
    if len(rounds) <= most:
        return rounds
    last = len(rounds) - 1
    evenly = {round(i * last / (most // 2)) for i in range(most // 2 + 1)}
    early = {round(math.expm1(i * math.log1p(last) / (most // 2))) for i in range(most // 2)}
    return [rounds[i] for i in sorted(evenly | early)]


def five(values: Iterable[float]) -> list[float | None]:
    """Least, lower quartile, median, upper quartile and greatest of some numbers."""
    series = pl.Series(list(values), dtype=pl.Float64)
    return [short(series.quantile(q, "linear")) for q in (0.0, 0.25, 0.5, 0.75, 1.0)]

"""Plateaus of the loss: when they are left, and the exponent by which that time grows."""

import math

import numpy as np
import polars as pl
import pytest

from coterie.report.plateaus import fall, interval_cell, leaving_times, power_law_exponent
from coterie.report.statistics import Interval


def test_a_plateau_is_left_between_two_evaluations() -> None:
    points = [(0, 3.0), (1, 2.3), (10, 2.2), (1000, 1.2)]
    rows = [{"method": "he", "seed": 0, "round": r, "node": 0, "test_loss": loss} for r, loss in points]
    records = pl.DataFrame(rows)
    assert leaving_times(records, 1.7) == [pytest.approx(100.0)]  # half-way, in logarithms
    assert leaving_times(records, 5.0) == [1.0]
    assert leaving_times(records, 1.0) == [pytest.approx(math.nan, nan_ok=True)]  # never


def test_the_exponent_of_a_power_law_is_found() -> None:
    sizes = (8, 16, 32, 64)
    found = power_law_exponent(sizes, [[3 * n**0.7, 3 * n**0.7] for n in sizes])
    assert found.mean == pytest.approx(0.7)
    assert found.half == pytest.approx(0.0, abs=1e-9)
    only = power_law_exponent((8, 16), [[2.0], [float("nan")]])
    assert only == Interval(pytest.approx(float("nan"), nan_ok=True), pytest.approx(float("nan"), nan_ok=True))
    assert interval_cell([1.0, float("nan")]) == "1.0 (1/2)"
    assert interval_cell([float("nan")]) == "-"


def test_the_fall_of_a_loss_is_a_power_law_between_its_ends() -> None:
    x = np.geomspace(1, 10_000, 60)
    found = fall(x, np.clip(20 * x**-0.5, 0.4, 2.3))  # a plateau, a fall, and where it ends
    assert found is not None
    assert found.exponent == pytest.approx(0.5)
    assert 20 * found.first**-0.5 < 2.3
    assert 20 * found.last**-0.5 > 0.4
    assert fall(x[:4], x[:4] * 0 + 2.3) is None

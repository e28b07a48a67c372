"""Every exhibit of every study can be drawn from runs that are as its own, but shorter."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from coterie import records
from coterie.parts import find, names
from coterie.report.sheets import Sheet
from coterie.report.statistics import Interval
from coterie.report.tables import UNKNOWN
from coterie.runs import runner
from coterie.runs.exhibits import SCALES, Exhibit, Results
from coterie.studies._leaving import between, exponent, leaving_times
from coterie.studies._racing import (
    absolute,
    accuracy_sheet,
    bytes_sheet,
    lasting,
    of_best,
    of_own,
    of_reference,
    pairs_sheet,
    times_sheet,
)
from small import LOOP

SHOWN: dict[str, tuple[str, ...]] = {
    "initialisation": ("figure 3g", "figure 4", "figure 5", "figure 7", "figure 9b", "figure 10", "figure start"),
    "decdiff": (
        "table II",
        "table III",
        "table IV",
        "table cost",
        "table pairs",
        "figure 1",
        "figure 3",
        "figure 4",
        "figure 6",
    ),
    "dechw": (
        "table I",
        "table II",
        "table III",
        "table V",
        "table VI",
        "table cost",
        "table pairs",
        "figure 2",
        "figure 3",
    ),
}
"""Some of each: all would take minutes."""
ALSO = {"decdiff": ("figure 5", "figure bytes"), "dechw": ("figure 1", "figure 4", "figure 6", "figure 7", "figure 9")}


def exhibits(study: str, scale: str) -> dict[str, Exhibit]:
    made: dict[str, Exhibit] = find("studies", study).make()(scale)
    return made


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("study", names("studies"))
def test_every_scale_is_sound(study: str, scale: str) -> None:
    made = exhibits(study, scale)
    assert len(made) > 8
    for label, exhibit in made.items():
        assert label.split()[0] in ("figure", "table")
        for run in exhibit.runs.values():
            assert run.resolved
        assert (
            scale == "paper" or not exhibit.runs or exhibit.scaled or "found out" in exhibit.title or label[-1] in "27d"
        )


def shortened(exhibit: Exhibit, cache: dict[str, pl.DataFrame], folder: Path) -> Results:
    """What shorter runs bring; a run that several exhibits share is done once."""
    found, measured = {}, {}
    for name, run in exhibit.runs.items():
        small = run.model_copy(update={"rounds": 2, "seeds": (0,), "engine": LOOP, "evaluate": 1, "test_share": 0.2})
        key = small.to_toml()
        if key not in cache:
            out = folder / f"run-{len(cache)}"
            cache[key] = runner.run(small, out)
            cache[f"{key} measures"] = records.measures(out) if small.measures else pl.DataFrame()
        found[name] = cache[key]
        if small.measures:
            measured[name] = cache[f"{key} measures"]
    return Results(found, measured)


@pytest.mark.parametrize("study", names("studies"))
def test_exhibits_show_what_they_promise(study: str, tmp_path: Path) -> None:
    cache: dict[str, pl.DataFrame] = {}
    made = exhibits(study, "smoke")
    for label in (*SHOWN[study], *ALSO.get(study, ())):
        shown = list(made[label].show(shortened(made[label], cache, tmp_path), tmp_path))
        assert shown, label
        for item in shown:
            if isinstance(item, Sheet):
                assert item.rows, label
                assert all(len(row) == len(item.headings) for row in item.rows), label
            elif isinstance(item, Path):
                assert item.stat().st_size > 5000, label
        if label.startswith("figure"):
            assert any(isinstance(item, Path) for item in shown), label


def curves(**methods: list[tuple[int, float, float, int]]) -> pl.DataFrame:
    """Records of one node: (round, loss, accuracy, bytes sent) of each method, one seed."""
    rows: list[dict[str, Any]] = [
        {"method": m, "seed": 0, "round": r, "node": 0, "test_loss": ls, "test_accuracy": a, "sent_bytes": b}
        for m, points in methods.items()
        for r, ls, a, b in points
    ]
    return pl.DataFrame(rows)


def test_a_plateau_is_left_between_two_evaluations() -> None:
    records = curves(he=[(0, 3.0, 0.1, 0), (1, 2.3, 0.1, 0), (10, 2.2, 0.1, 0), (1000, 1.2, 0.5, 0)])
    assert leaving_times(records, 1.7) == [pytest.approx(100.0)]  # half-way, in logarithms
    assert leaving_times(records, 5.0) == [1.0]
    assert leaving_times(records, 1.0)[0] != leaving_times(records, 1.0)[0]  # never: NaN


def test_the_exponent_of_a_power_law_is_found() -> None:
    sizes = (8, 16, 32, 64)
    found = exponent(sizes, [[3 * n**0.7, 3 * n**0.7] for n in sizes])
    assert found.mean == pytest.approx(0.7)
    assert found.half == pytest.approx(0.0, abs=1e-9)
    only = exponent((8, 16), [[2.0], [float("nan")]])
    assert only == Interval(pytest.approx(float("nan"), nan_ok=True), pytest.approx(float("nan"), nan_ok=True))
    assert between([1.0, float("nan")]) == "1.0 (1/2)"
    assert between([float("nan")]) == "-"


def test_races_are_timed_against_the_bound_the_best_ones_own_and_absolute_levels() -> None:
    slow = [(0, 3.0, 0.1, 0), (5, 2.0, 0.4, 50), (10, 1.0, 0.6, 100)]
    fast = [(0, 3.0, 0.1, 0), (5, 2.0, 0.7, 80), (10, 1.0, 0.8, 160)]
    records = curves(slow=slow, fast=fast, centralised=[(0, 3.0, 0.1, 0), (10, 1.0, 1.0, 0)])
    names = {"slow": "Slow", "fast": "Fast", "absent": "Absent"}

    def cells(goal: Any, level: float) -> list[str]:
        return [row[1] for row in times_sheet("t", records, names, (level,), goal, {}).rows]

    assert cells(of_reference("centralised"), 0.7) == ["-", "5"]
    assert cells(of_best(["slow", "fast"]), 0.5) == ["5", "5"]
    assert cells(of_own, 0.9) == ["10", "10"]
    assert cells(absolute, 0.6) == ["10", "5"]
    beside = times_sheet("t", records, names, (0.6,), absolute, {"slow": ("42",)})
    assert beside.headings == ["method", "60 %", "paper"]
    assert beside.rows == [["Slow", "10", "42"], ["Fast", "5", ""]]
    assert beside.notes[-1] == "Accuracies were taken in rounds 0 to 10 in steps of 5."
    sent = bytes_sheet("b", records, names, (0.4,), absolute)
    assert sent.headings == ["method", "40 %", "whole run"]
    assert [row[1:] for row in sent.rows] == [["50 B", "100 B"], ["80 B", "160 B"]]


def test_seeds_that_diverged_are_counted_and_not_averaged() -> None:
    whole, broken = [(0, 3.0, 0.1, 0), (10, 1.0, 0.8, 0)], [(0, 3.0, 0.1, 0), (5, 9.0, 0.2, 0)]
    other = curves(some=broken).with_columns(seed=pl.lit(1))
    records = pl.concat([curves(some=whole, none=broken, all=whole), other.cast(curves(some=whole).schema)])
    names = {"all": "All", "some": "Some", "none": "None"}
    sheet = accuracy_sheet("t", {"data": records}, names, {})
    assert sheet.headings == ["method", "data"]
    assert sheet.rows == [["All", "0.800"], ["Some", "0.800 (1/2)"], ["None", "0.200 (diverged)"]]


def test_methods_are_compared_seed_by_seed() -> None:
    def seed(number: int, ahead: float) -> pl.DataFrame:
        slow = [(0, 3.0, 0.1, 0), (5, 2.0, 0.2 * number, 0), (10, 1.0, 0.4, 0)]
        fast = [(0, 3.0, 0.1, 0), (5, 2.0, 0.2 * number + ahead, 0), (10, 1.0, 0.4 + ahead, 0)]
        return curves(slow=slow, fast=fast, broken=slow[:2]).with_columns(seed=pl.lit(number))

    names = {"slow": "Slow", "fast": "Fast", "broken": "Broken"}
    sheet = pairs_sheet("t", {"data": pl.concat([seed(1, 0.1), seed(2, 0.1)])}, names, [("fast", "slow")])
    assert sheet.headings == ["accuracy", "data, all rounds", "data, last round"]
    assert sheet.rows == [["Fast − Slow", "+0.075 ± 0.000 (2/2)", "+0.100 ± 0.000 (2/2)"]]
    once = {"one": seed(1, -0.1)}
    pairs = [("fast", "slow"), ("broken", "slow")]
    assert pairs_sheet("t", once, names, pairs).rows == [
        ["Fast − Slow", "-0.075 (0/1)", "-0.100 (0/1)"],
        ["Broken − Slow", UNKNOWN, UNKNOWN],  # it never came to the end
    ]


def test_rounds_to_evaluate_include_the_first_and_the_last() -> None:
    assert lasting(20, 5, 3) == (0, 1, 2, 3, 4, 5, 10, 15, 18, 19, 20)

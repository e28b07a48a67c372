"""Tables that compare methods: against each kind of goal, with diverged seeds, and seed by seed."""

from typing import Any

import polars as pl

from coterie.report.races import (
    absolute,
    accuracy_sheet,
    at_bytes,
    bytes_sheet,
    of_best,
    of_own,
    of_reference,
    pairs_sheet,
    times_sheet,
)
from coterie.report.tables import UNKNOWN


def curves(**methods: list[tuple[int, float, float, int]]) -> pl.DataFrame:
    """Records of one node: (round, loss, accuracy, bytes sent) of each method, one seed."""
    rows: list[dict[str, Any]] = [
        {"method": m, "seed": 0, "round": r, "node": 0, "test_loss": ls, "test_accuracy": a, "sent_bytes": b}
        for m, points in methods.items()
        for r, ls, a, b in points
    ]
    return pl.DataFrame(rows)


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
    wanted = ["All", "Some (1 of 2 diverged)", "None (1 of 1 diverged)"]
    assert [row[0] for row in times_sheet("t", records, names, (0.5,), absolute, {}).rows] == wanted
    assert [row[0] for row in bytes_sheet("t", records, names, (0.5,), absolute).rows] == wanted


def test_methods_are_compared_seed_by_seed() -> None:
    def seed(number: int, ahead: float) -> pl.DataFrame:
        slow = [(0, 3.0, 0.1, 0), (5, 2.0, 0.2 * number, 0), (10, 1.0, 0.4, 0)]
        fast = [(0, 3.0, 0.1, 0), (5, 2.0, 0.2 * number + ahead, 0), (10, 1.0, 0.4 + ahead, 0)]
        return curves(slow=slow, fast=fast, broken=slow[:2]).with_columns(seed=pl.lit(number))

    names = {"slow": "Slow", "fast": "Fast", "broken": "Broken"}
    sheet = pairs_sheet("t", {"data": pl.concat([seed(1, 0.1), seed(2, 0.1)])}, names, [("fast", "slow")])
    assert sheet.headings == ["accuracy", "data, all rounds", "data, last round"]
    assert sheet.rows == [["Fast − Slow", "+0.075 ± 0.000 (2/2)", "+0.100 ± 0.000 (2/2)"]]
    assert pairs_sheet("t", {"data": seed(1, 0.1)}, names, [("fast", "absent")]).rows == []
    beside = pairs_sheet("t", {"data": seed(1, 0.1)}, names, [("fast", "slow")], {"fast": [0.95], "slow": [0.9]})
    assert (beside.headings[-1], beside.rows[0][-1]) == ("data, paper", "+0.0500")
    two = {"data": seed(1, 0.1), "other": seed(1, 0.1).filter(pl.col("method") != "fast")}
    assert pairs_sheet("t", two, names, [("fast", "slow")]).rows[0][3:] == [UNKNOWN, UNKNOWN]
    once = {"one": seed(1, -0.1)}
    pairs = [("fast", "slow"), ("broken", "slow")]
    assert pairs_sheet("t", once, names, pairs).rows == [
        ["Fast − Slow", "-0.075 (0/1)", "-0.100 (0/1)"],
        ["Broken − Slow", UNKNOWN, UNKNOWN],  # it never came to the end
    ]


def test_methods_are_brought_to_the_bytes_of_one_of_them() -> None:
    """Each by the last evaluated round within what that one has sent; who sends less is there with its end."""
    plain = [(0, 3.0, 0.1, 0), (5, 2.0, 0.4, 50), (10, 1.0, 0.6, 100)]
    lavish = [(0, 3.0, 0.1, 0), (5, 2.0, 0.7, 101), (10, 1.0, 0.8, 200)]  # a byte more is let pass
    frugal = [(0, 3.0, 0.1, 0), (5, 2.0, 0.2, 10), (10, 1.0, 0.3, 20)]
    records = curves(plain=plain, lavish=lavish, frugal=frugal, flood=[(0, 3.0, 0.1, 0), (5, 2.0, 0.9, 102)])
    found = at_bytes(records, "plain").select("method", "round", "test_accuracy").sort("method")
    assert found.rows() == [("flood", 10, 0.1), ("frugal", 10, 0.3), ("lavish", 10, 0.7), ("plain", 10, 0.6)]


def test_a_seed_without_the_one_that_sets_the_bytes_is_left_out() -> None:
    whole, broken = [(0, 3.0, 0.1, 0), (10, 1.0, 0.8, 9)], [(0, 3.0, 0.1, 0), (5, 9.0, 0.2, 5)]
    other = curves(one=broken, other=whole).with_columns(seed=pl.lit(1, pl.Int64))
    assert at_bytes(pl.concat([curves(one=whole, other=whole), other]), "one")["seed"].to_list() == [0, 0]

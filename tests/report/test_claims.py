"""Claims are judged seed by seed: they hold, do not hold, or cannot be told."""

import polars as pl
import pytest

from coterie.report.claims import (
    FAILS,
    HOLDS,
    OPEN,
    Claim,
    Side,
    agreement_sheet,
    claims_sheet,
    rank_agreement,
    rivals,
    sooner_sheet,
    verdict,
    verdicts_sheet,
)
from coterie.report.plateaus import plateau_claims
from coterie.report.tables import UNKNOWN


@pytest.mark.parametrize(
    ("differences", "told"),
    [
        ([0.10, 0.11, 0.12], HOLDS),
        ([-0.10, -0.11, -0.12], FAILS),
        ([0.10, 0.30, 0.01], OPEN),  # all ahead, but the interval is wide
        ([0.10] * 30 + [-0.01], OPEN),  # the interval excludes 0, but one seed disagrees
        ([0.0, 0.0, 0.0], OPEN),
        ([0.2], OPEN),  # one seed has no interval
        ([], OPEN),
    ],
)
def test_a_verdict_asks_every_seed_and_the_interval(differences: list[float], told: str) -> None:
    assert verdict(differences) == told


def records(**values: dict[int, tuple[float, ...]]) -> pl.DataFrame:
    """Two nodes, one 0.1 above and one below these accuracies of a method's seeds in rounds 1, 2, ..."""
    rows = [
        {"method": m, "seed": s, "round": r, "node": n, "test_accuracy": a + 0.2 * n - 0.1, "peak_accuracy": 1 - a}
        for m, seeds in values.items()
        for s, accuracies in seeds.items()
        for r, a in enumerate(accuracies, 1)
        for n in range(2)
    ]
    return pl.DataFrame(rows)


def test_sides_are_paired_by_seed_and_averaged_over_the_last_rounds() -> None:
    found = records(
        good={0: (0.2, 0.5, 0.7), 1: (0.2, 0.3, 0.5), 2: (0.2,)},
        bad={1: (0.2, 0.3, 0.4), 0: (0.2, 0.5, 0.6), 3: (0.2, 0.9, 0.9)},
    )
    assert Side(found, "good").by_seed() == pytest.approx({0: 0.7, 1: 0.5})  # the third never came to the end
    assert Side(found, "good", "peak_accuracy").by_seed(2) == pytest.approx({0: 0.4, 1: 0.6})
    claim = Claim("good is better", Side(found, "good"), Side(found, "bad"))
    assert claim.differences() == pytest.approx([0.1, 0.1])
    assert claim.differences(2) == pytest.approx([0.05, 0.05])


def test_a_sheet_says_difference_and_verdict_for_each_window() -> None:
    found = records(good={0: (0.2, 0.7), 1: (0.3, 0.8)}, bad={0: (0.2, 0.6), 1: (0.5, 0.7)})
    claims = [
        Claim("it is better", Side(found, "good"), Side(found, "bad"), "here"),
        Claim("it is better", Side(found, "bad"), Side(found, "good"), "there"),
        Claim("nobody is better", Side(found, "nobody"), Side(found, "good")),
    ]
    sheet = claims_sheet("t", claims, {"last round": 1, "two rounds": 2})
    assert sheet.headings == ["claim", "where", "last round", "verdict", "two rounds", "verdict"]
    assert sheet.rows == [
        ["it is better", "here", "+0.100 ± 0.000 (2/2)", HOLDS, "+0.000 ± 0.635 (1/2)", OPEN],
        ["it is better", "there", "-0.100 ± 0.000 (0/2)", FAILS, "+0.000 ± 0.635 (1/2)", OPEN],
        ["nobody is better", "", UNKNOWN, OPEN, UNKNOWN, OPEN],
    ]
    brief = verdicts_sheet("t", [*claims, claims[0]._replace(where="everywhere")])
    assert brief.headings == ["claim", HOLDS, FAILS, OPEN]
    assert brief.rows == [["it is better", "here; everywhere", "there", ""], ["nobody is better", "", "", ""]]


def test_who_is_sooner_is_judged_by_rounds_to_a_level() -> None:
    """Who never gets there counts as getting there in the last round."""
    quick, slow = (0.2, 0.6, 0.7, 0.8), (0.1, 0.2, 0.5, 0.8)
    found = records(quick={0: quick, 1: quick}, slow={0: slow, 1: slow}, never={0: (0.1,) * 4, 1: (0.1,) * 4})
    claims = [
        Claim("sooner", Side(found, "quick"), Side(found, "slow"), "here"),
        Claim("sooner", Side(found, "never"), Side(found, "slow"), "here"),
        Claim("as soon", Side(found, "quick"), Side(found, "quick"), "here"),
        Claim("nobody", Side(found, "nobody"), Side(found, "quick"), "here"),
    ]
    sheet = sooner_sheet("t", claims, {"here": 0.5})
    assert [row[2:] for row in sheet.rows] == [
        ["0.500", "+1.0 ± 0.0 (2/2)", HOLDS],
        ["0.500", "-1.0 ± 0.0 (0/2)", FAILS],
        ["0.500", "+0.0 ± 0.0 (0/2)", OPEN],
        ["0.500", UNKNOWN, OPEN],
    ]


def test_kendalls_tau_is_one_in_the_papers_order_and_minus_one_in_its_reverse() -> None:
    rows = [
        {"method": m, "seed": seed, "round": 1, "node": 0, "test_accuracy": a + seed / 100}
        for seed in range(3)
        for m, a in (("a", 0.5), ("b", 0.6), ("c", 0.7))
    ]
    frame = pl.DataFrame(rows)
    assert rank_agreement(frame, {"a": 1.0, "b": 2.0, "c": 3.0}) == pytest.approx([1.0] * 3)
    assert rank_agreement(frame, {"a": 3.0, "b": 2.0, "c": 1.0}) == pytest.approx([-1.0] * 3)
    assert rank_agreement(frame, {"a": 1.0, "b": 3.0, "c": 2.0}) == pytest.approx([1 / 3] * 3)
    (row,) = agreement_sheet("τ", {"here": frame}, {"here": {"a": 3.0, "b": 2.0, "c": 1.0, "d": 9.0}}).rows
    assert row[1] == "3"
    assert row[2].startswith("-1.000")


def test_who_a_method_is_compared_with() -> None:
    paper = {"isolation": 0.1, "a": 0.2, "b": 0.3, "c": 0.4}
    assert rivals("c", paper, ("isolation",)) == ["isolation", "b"]
    assert rivals("a", paper, ("isolation",)) == ["isolation"]


def test_claims_about_plateaus_are_judged_seed_by_seed() -> None:
    times = {"he": [[8.0, 8.1, 7.9], [16.0, 16.4, 15.7]], "gain": [[4.0, 4.1, 3.9], [4.0, 4.0, 3.9]]}
    rows = plateau_claims([8, 16], times, {8: 40, 16: 40}).rows
    assert rows[0][1].startswith("1.0")
    assert [row[2] for row in rows] == [HOLDS] * 4
    stays = {"he": times["gain"], "gain": [[float("nan")] * 3] * 2}
    assert [row[2] for row in plateau_claims([8, 16], stays, {8: 40, 16: 40}).rows][2:] == [FAILS, FAILS]

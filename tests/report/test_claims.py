"""Claims are judged seed by seed: they hold, do not hold, or cannot be told."""

import polars as pl
import pytest

from coterie.report.claims import FAILS, HOLDS, OPEN, Claim, Side, claims_sheet, verdict, verdicts_sheet
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

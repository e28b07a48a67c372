"""Claims of the two papers that race methods, judged seed by seed: order, pairs, and what they say in so many words."""

from collections.abc import Mapping, Sequence

import polars as pl

from coterie.report.claims import Claim, Side, agreement_sheet, claims_sheet, rivals, sooner_sheet, verdicts_sheet
from coterie.report.races import of_best
from coterie.runs.exhibits import Shown

WINDOWS = {"last round": 1, "mean of the rounds looked at": 10**6}
"""Over how many of the last evaluated rounds a claim is judged."""
REFERENCES = ("isolation", "fedavg", "cfa-ge")
DECDIFF = [
    ("decdiff-vt", "isolation", "communication pays: {0} is ahead of {1}"),
    ("dechetero", "isolation", "communication pays: {0} is ahead of {1}"),
    ("decdiff-vt", "dechetero", "{0} is ahead of uncoordinated averaging ({1})"),
    ("decdiff-vt", "cfa", "{0} is ahead of {1}"),
    ("decdiff-vt", "cfa-ge", "{0} is ahead of {1}, which sends twice as much"),
    ("decdiff", "dechetero", "the bounded step alone helps: {0} is ahead of {1}"),
    ("decdiff-vt", "decdiff", "the teacher adds to it: {0} is ahead of {1}"),
    ("fedavg", "dechetero", "without coordination averaging loses: {0} is ahead of {1}"),
]
DECHW = [
    ("dechw", "decdiff-vt", "{0} is ahead of {1}"),
    ("dechw", "cfa", "{0} is ahead of {1}"),
    ("dechw", "dechetero", "{0} is ahead of {1}"),
    ("dechw-star", "dechetero", "a few rounds of curvature are enough: {0} is ahead of {1}"),
    ("dechw", "dechw-none", "accumulating helps: {0} is ahead of {1}"),
    ("dechw", "isolation", "communication pays: {0} is ahead of {1}"),
]
"""What is said to be ahead of what, and how it is said."""
DECDIFF_SOONER = [("decdiff-vt", "dechetero"), ("decdiff-vt", "cfa"), ("decdiff-vt", "cfa-ge")]
DECHW_SOONER = [("dechw", "decdiff-vt"), ("dechw", "cfa"), ("dechw", "dechetero")]
"""Which is said to need fewer rounds than which."""
HALF = 0.5
"""The share of the best accuracy among these at which rounds are compared."""


def judged(
    frames: Mapping[str, pl.DataFrame],
    papers: Mapping[str, Mapping[str, float]],
    names: Mapping[str, str],
    said: Sequence[tuple[str, str, str]],
    quicker: Sequence[tuple[str, str]],
) -> list[Shown]:
    """Agreement in rank with the paper, every claim with its verdict, and the pairs that matter."""
    claims, pairs, rounds = [], [], []
    best = of_best([*dict.fromkeys(method for pair in quicker for method in pair)])
    for where, records in frames.items():
        here = set(records["method"].unique())
        claims += [_claim(records, a, b, text, names, where) for a, b, text in said if {a, b} <= here]
        rounds += [_claim(records, a, b, "{0} is there before {1}", names, where) for a, b in quicker if {a, b} <= here]
        for method in papers[where]:
            others = [other for other in rivals(method, papers[where], REFERENCES) if {method, other} <= here]
            pairs += [_claim(records, method, other, "{0} − {1}", names, where) for other in others]
    said_so = [verdicts_sheet("What the paper says, last round", claims), claims_sheet("By numbers", claims, WINDOWS)]
    if rounds:
        levels = {claim.where: HALF * best(claim.first.records, "") for claim in rounds}
        said_so.append(sooner_sheet("Rounds to half of the best accuracy of the methods compared", rounds, levels))
    if not pairs:  # data that the paper has not
        return list(said_so)
    return [
        agreement_sheet("The paper's order of methods by accuracy", frames, papers),
        *said_so,
        claims_sheet("Pairs: against references, and against the next in the paper's order", pairs, WINDOWS),
    ]


def _claim(records: pl.DataFrame, a: str, b: str, text: str, names: Mapping[str, str], where: str) -> Claim:
    return Claim(text.format(names[a], names[b]), Side(records, a), Side(records, b), where)


def number(cell: str) -> float:
    """The accuracy in a cell of a paper's table, `0.9530 ± 0.0154` or `93.50 ± 0.005`."""
    return float(cell.split()[0])

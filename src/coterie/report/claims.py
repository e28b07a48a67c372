"""Whether claims hold: one side against the other, seed by seed, with a verdict in words.

Seeds are paired: with the same seed both sides had the same data, network and starts as far as they could, so that
what a seed does to both cancels in the difference.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import polars as pl
from scipy.stats import kendalltau

from coterie.report.races import ahead
from coterie.report.sheets import Sheet
from coterie.report.statistics import characteristic_time, complete, mean_ci, per_seed

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be told"
RULE = (
    f"“{HOLDS}”: the first side is ahead with every seed, and the 95 % interval of the mean difference excludes 0; "
    f"“{FAILS}”: it is behind in the same sense; else “{OPEN}”. Differences are means over seeds ± 95 % interval; in "
    "brackets with how many seeds the first side was ahead. Each interval is of one comparison alone: of many, some "
    "exclude 0 by chance."
)


class Side(NamedTuple):
    """A method in some records, and the column it is judged by."""

    records: pl.DataFrame
    method: str
    column: str = "test_accuracy"

    def by_seed(self, last: int = 1) -> dict[int, float]:
        """The mean over nodes and over so many of the last evaluated rounds, of each seed that reached the end."""
        mine = complete(self.records.filter(pl.col("method") == self.method))
        if mine.is_empty():
            return {}
        rounds = mine["round"].unique().sort()[-last:]
        curves = per_seed(mine.filter(pl.col("round").is_in(rounds.implode())), self.column)
        means = curves.group_by("seed", maintain_order=True).agg(pl.col("value").mean()).drop_nulls()
        return dict(means.iter_rows())

    def reaches(self, level: float) -> dict[int, float]:
        """The first evaluated round in which the mean over nodes is at a level, of each seed; the last if it never is.

        Of seeds that reached the end.
        """
        mine = complete(self.records.filter(pl.col("method") == self.method))
        if mine.is_empty():
            return {}
        curves = per_seed(mine, self.column)
        found = {}
        for (seed,), curve in curves.group_by("seed", maintain_order=True):
            there = characteristic_time(curve, level)
            found[seed] = float(curve["round"].to_list()[-1] if there is None else there)
        return found


class Claim(NamedTuple):
    """What is claimed in words, the two sides of which the first is said to be ahead, and in which setting."""

    text: str
    first: Side
    second: Side
    where: str = ""

    def differences(self, last: int = 1) -> list[float]:
        """By how much the first side is ahead with each seed that both have."""
        ours, theirs = self.first.by_seed(last), self.second.by_seed(last)
        return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]

    def sooner(self, level: float) -> list[float]:
        """By how many rounds the first side is sooner at a level with each seed that both have."""
        ours, theirs = self.first.reaches(level), self.second.reaches(level)
        return [theirs[seed] - ours[seed] for seed in ours if seed in theirs]


def verdict(differences: Iterable[float]) -> str:
    """Whether differences seed by seed bear out that they are above 0: see `RULE`."""
    found = list(differences)
    mean, half = mean_ci(found)
    if math.isnan(half) or not abs(mean) > half:
        return OPEN
    if all(d > 0 for d in found):
        return HOLDS
    return FAILS if all(d < 0 for d in found) else OPEN


def claims_sheet(title: str, claims: Sequence[Claim], windows: Mapping[str, int]) -> Sheet:
    """A line for each claim: difference and verdict in each window, which is over so many of the last rounds."""
    rows = []
    for claim in claims:
        cells = []
        for last in windows.values():
            differences = claim.differences(last)
            cells += [ahead(pl.Series(differences, dtype=pl.Float64)), verdict(differences)]
        rows.append([claim.text, claim.where, *cells])
    heads = [h for window in windows for h in (window, "verdict")]
    return Sheet(title, ["claim", "where", *heads], rows, [RULE])


def verdicts_sheet(title: str, claims: Sequence[Claim], last: int = 1) -> Sheet:
    """A line for each claim, however many settings it is made for: in which of them it holds, and in which not."""
    places: dict[str, dict[str, list[str]]] = {}
    for claim in claims:
        told = places.setdefault(claim.text, {HOLDS: [], FAILS: [], OPEN: []})
        told[verdict(claim.differences(last))].append(claim.where)
    rows = [[text, *("; ".join(told[v]) for v in (HOLDS, FAILS, OPEN))] for text, told in places.items()]
    return Sheet(title, ["claim", HOLDS, FAILS, OPEN], rows, [RULE])


def sooner_sheet(title: str, claims: Sequence[Claim], levels: Mapping[str, float]) -> Sheet:
    """A line for each claim: by how many rounds the first side is sooner at the level of its setting."""
    rows = []
    for claim in claims:
        rounds = claim.sooner(levels[claim.where])
        by = ahead(pl.Series(rounds, dtype=pl.Float64), digits=1)
        rows.append([claim.text, claim.where, f"{levels[claim.where]:.3f}", by, verdict(rounds)])
    note = "Of rounds that were looked at; who never gets there counts as getting there in the last one."
    return Sheet(title, ["claim", "where", "accuracy", "rounds sooner", "verdict"], rows, [note])


def rank_agreement(records: pl.DataFrame, paper: Mapping[str, float]) -> list[float]:
    """Kendall's τ between a paper's accuracies and those of each seed in the last round, over the methods of both.

    τ = (pairs in the same order − pairs in the other) / all pairs
    """
    ours = {m: Side(records, m).by_seed() for m in paper}
    seeds = sorted({seed for found in ours.values() for seed in found})
    shared = {seed: [m for m in paper if seed in ours[m]] for seed in seeds}
    return [
        float(kendalltau([ours[m][seed] for m in some], [paper[m] for m in some]).statistic)
        for seed, some in shared.items()
        if len(some) > 2
    ]


def agreement_sheet(title: str, frames: Mapping[str, pl.DataFrame], papers: Mapping[str, Mapping[str, float]]) -> Sheet:
    """A line for each setting: how well the order of methods is the paper's, with its interval over seeds."""
    rows = []
    for where, records in frames.items():
        known = {m: value for m, value in papers[where].items() if m in records["method"].unique()}
        found = rank_agreement(records, known)
        rows.append([where, f"{len(known)}", ahead(pl.Series(found, dtype=pl.Float64)), verdict(found)])
    note = "τ is 1 in the paper's order, 0 in no order and −1 in its reverse; the verdict is on τ above 0."
    return Sheet(title, ["where", "methods", "Kendall's τ", "verdict"], rows, [note])


def rivals(method: str, paper: Mapping[str, float], references: Sequence[str]) -> list[str]:
    """Whom a method is compared with: the references, and the next below it in the paper's order."""
    below = sorted((m for m in paper if paper[m] < paper[method] and m not in references), key=lambda m: -paper[m])
    return [m for m in (*references, *below[:1]) if m != method]

"""Claims of the deployments paper, judged seed by seed."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import polars as pl

from coterie.report.claims import FAILS, HOLDS, OPEN, RULE, verdict
from coterie.report.convergence import convergence
from coterie.report.losses import jumps, last_losses
from coterie.report.races import ahead
from coterie.report.sheets import Sheet
from coterie.report.statistics import mean_ci
from coterie.runs.exhibits import Results, Shown
from coterie.studies._deployments_runs import BASELINE, DEPLOYMENTS, IID, RELAYS, ModelFamily

BySeed = Mapping[int, float]
MARGIN = 0.033
"""The largest difference to one machine that the paper calls negligible."""


def scores(records: pl.DataFrame, method: str, column: str) -> dict[int, float]:
    """The score of each seed: of devices after their last turn, or where all train at once over all rounds."""
    mine = records.filter(pl.col("method") == method, pl.col("round") > 0)
    if method in RELAYS:
        mine = mine.filter(pl.col("round") == pl.col("round").max())
    found = mine.group_by("seed").agg(pl.col(column).mean()).sort("seed")
    return dict(found.iter_rows())


class Judged(NamedTuple):
    """A claim about a setting with what speaks for it."""

    text: str
    where: str
    evidence: str
    verdict: str


def claims(found: Results, known: Mapping[str, ModelFamily]) -> list[Shown]:
    """All claims about all families, with a verdict each."""
    judged: list[Judged] = []
    for name, family in known.items():
        told = _Told(found, name, family)
        judged += [*_converges(told), *_matches(told), *_slowed(told), *_prevented(told)]
        judged += [*_lowered(told), *_oscillates(told)]
        judged += [*_strategies(told), *_concurrent(told), *_prompted(told)]
    texts = dict.fromkeys(j.text for j in judged)
    brief = [
        [t, *("; ".join(j.where for j in judged if j.text == t and j.verdict == v) for v in VERDICTS)] for t in texts
    ]
    return [
        Sheet("In short", ["claim", *VERDICTS], brief, [RULE]),
        Sheet("Claims, seed by seed", ["claim", "where", "evidence", "verdict"], [list(j) for j in judged], _NOTES),
    ]


VERDICTS = (HOLDS, FAILS, OPEN)
_NOTES = [
    "Convergence epochs of runs that have not converged count as the whole budget, so “slower” is the least it can be. "
    "At levels of skew devices hold fewer samples than the whole, and an epoch has fewer steps: slower is partly that.",
    f"“As good as one machine”: the interval of the difference lies within ± {MARGIN:g}, the largest that the paper "
    "calls negligible; it does not hold where the interval lies outside.",
]


class _Told(NamedTuple):
    """What is known of one family."""

    found: Results
    name: str
    family: ModelFamily

    def where(self, method: str, split: str) -> str:
        return f"{self.family.title}, {DEPLOYMENTS[method]}, {self.family.splits[split]}"

    def score(self, method: str, split: str) -> dict[int, float]:
        return scores(self.found.records[f"{self.name}: {split}"], method, self.family.score)

    def measured(self, method: str, split: str) -> pl.DataFrame:
        return self.found.measures[f"{self.name}: {split}"].filter(pl.col("method") == method)

    def converged(self, method: str, split: str) -> dict[int, float]:
        """The first epoch at which the model is flat, by seed; the whole budget if it never is."""
        epochs = convergence(self.measured(method, split), None, self.family.flatness)
        first = epochs.group_by("seed").agg(pl.col("epoch").min().fill_null(self.family.budget))
        return {seed: float(epoch) for seed, epoch in first.sort("seed").iter_rows()}

    def unconverged(self, method: str, split: str) -> dict[int, float]:
        """Of clients, or of rounds of a star and a mesh, the share that never converges, by seed."""
        epochs = convergence(self.measured(method, split), None, self.family.flatness)
        shares = epochs.group_by("seed").agg(pl.col("epoch").is_null().mean())
        return dict(shares.sort("seed").iter_rows())


def _paired(text: str, where: str, one: BySeed, other: BySeed) -> Judged:
    differences = [one[seed] - other[seed] for seed in one if seed in other]
    return Judged(text, where, ahead(pl.Series(differences, dtype=pl.Float64)), verdict(differences))


def _converges(told: _Told) -> Iterable[Judged]:
    """With the complete data on every device all deployments converge: the last client, or round, is flat."""
    for method in DEPLOYMENTS:
        epochs = convergence(told.measured(method, IID), None, told.family.flatness)
        ends = epochs.filter(pl.col("which") == pl.col("which").max())["epoch"]
        good = int(ends.is_not_null().sum())
        judged = HOLDS if good == len(ends) else FAILS if good == 0 else OPEN
        yield Judged("converges with IID data", told.where(method, IID), f"{good}/{len(ends)} seeds", judged)


def _matches(told: _Told) -> Iterable[Judged]:
    alone = scores(told.found.records[f"{told.name}: {BASELINE}"], BASELINE, told.family.score)
    for method in DEPLOYMENTS:
        mine = told.score(method, IID)
        differences = [mine[seed] - alone[seed] for seed in mine if seed in alone]
        mean, half = mean_ci(differences)
        near, far = abs(mean) + half <= MARGIN, abs(mean) - half > MARGIN
        judged = HOLDS if near else FAILS if far else OPEN
        evidence = ahead(pl.Series(differences, dtype=pl.Float64))
        yield Judged("as good as one machine with IID data", told.where(method, IID), evidence, judged)


def _slowed(told: _Told) -> Iterable[Judged]:
    for method in DEPLOYMENTS:
        for split in list(told.family.splits)[1:]:
            one, other = told.converged(method, split), told.converged(method, IID)
            yield _paired("skew slows convergence, in epochs", told.where(method, split), one, other)


def _prevented(told: _Told) -> Iterable[Judged]:
    """Fewer clients, or rounds, converge at all."""
    for method in DEPLOYMENTS:
        for split in list(told.family.splits)[1:]:
            one, other = told.unconverged(method, split), told.unconverged(method, IID)
            yield _paired("skew prevents convergence, share of NC", told.where(method, split), one, other)


def _lowered(told: _Told) -> Iterable[Judged]:
    for method in DEPLOYMENTS:
        for split in list(told.family.splits)[1:]:
            yield _paired(
                "skew lowers the score", told.where(method, split), told.score(method, IID), told.score(method, split)
            )


def _oscillates(told: _Told) -> Iterable[Judged]:
    """At level 3 losses of a star and a mesh jump up and down more than with IID data."""
    if 3 in told.family.levels:
        for method in ("star", "mesh"):
            one, other = (jumps(told.measured(method, split)) for split in ("level3", IID))
            yield _paired("losses jump more at merges than with IID data", told.where(method, "level3"), one, other)


def _strategies(told: _Told) -> Iterable[Judged]:
    for shape in ("linear", "ring"):
        one, other = f"continuous-{shape}", f"aggregate-{shape}"
        for split in told.family.splits:
            where = f"{told.family.title}, {shape}, {told.family.splits[split]}"
            yield _paired("continuous above aggregate", where, told.score(one, split), told.score(other, split))
            ends = [last_losses(told.measured(method, split)) for method in (other, one)]
            yield _paired("continuous ends with a lower loss than aggregate", where, *ends)


def _concurrent(told: _Told) -> Iterable[Judged]:
    """At levels 1 and 2 a star and a mesh are said to be best, at level 3 lines and rings of the convex models."""
    for split in list(told.family.splits)[1:]:
        relayed = [told.score(method, split) for method in RELAYS]
        at_once = [told.score(method, split) for method in ("star", "mesh")]
        one, other = _mean(at_once), _mean(relayed)
        where = f"{told.family.title}, {told.family.splits[split]}"
        if split == "level3" and told.name in ("svm", "logistic"):
            yield _paired("lines and rings above star and mesh", where, other, one)
        else:
            yield _paired("star and mesh above lines and rings", where, one, other)


def _prompted(told: _Told) -> Iterable[Judged]:
    """The vision-language model: .90 in continuous linear, star and mesh, .85 in the others."""
    if told.name == "minigpt":
        high = _mean([told.score(m, IID) for m in ("continuous-linear", "star", "mesh")])
        low = _mean([told.score(m, IID) for m in ("continuous-ring", "aggregate-linear", "aggregate-ring")])
        text = "continuous linear, star and mesh above the others (.90 and .85)"
        yield _paired(text, f"{told.family.title}, IID", high, low)


def _mean(some: Iterable[BySeed]) -> dict[int, float]:
    every = list(some)
    return {
        seed: sum(one[seed] for one in every) / len(every) for seed in every[0] if all(seed in one for one in every)
    }

"""Which rule of convergence, and which scaling of the inputs, comes how near to the tables of the deployments paper."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from coterie.report.convergence import NEVER, Flatness, convergence_by_rule
from coterie.report.sheets import Sheet
from coterie.report.statistics import mean_ci
from coterie.runs.exhibits import Exhibit, Results, Shown
from coterie.studies._deployments_claims import scores
from coterie.studies._deployments_runs import DEPLOYMENTS, IID, ModelFamily

SCALINGS = ("standard", "range", "robust", "length", "none")
RULES = {
    "ours": Flatness(),
    "half the slope": Flatness(factor=0.3),
    "a sixth of the slope": Flatness(factor=0.1),
    "twice the slope": Flatness(factor=1.2),
    "no window": Flatness(window=1),
    "a window of 10": Flatness(window=10),
    "one flat epoch is enough": Flatness(patience=1),
    "10 flat epochs": Flatness(patience=10),
    "no guard": Flatness(guard=float("inf")),
    "below half of the starting loss": Flatness(guard=0.5),
    "relative to the loss": Flatness(relative=True),
    "relative, a sixth": Flatness(factor=0.1, relative=True),
    "relative, a half of all over E": Flatness(factor=0.5, window=1, relative=True),
    "relative, no guard": Flatness(guard=float("inf"), relative=True),
}
"""Rules of convergence: the paper does not say its own."""
NEAR = 0.1
"""Of the budget: epochs that are not further apart agree."""
SEEDS = 3
PaperEpochs = Mapping[str, Sequence[str]]
"""The paper's epochs by deployment, a star at those that are misprinted."""


def tried(family: ModelFamily, beside: Mapping[str, PaperEpochs], scored: Mapping[str, Sequence[str]]) -> Exhibit:
    """Agreement with the paper's tables of a linear family, IID and level 2, by rule and scaling."""
    dealt, seeds = (IID, "level2"), tuple(family.settings["seeds"][:SEEDS])
    data: dict[str, Any] = dict(family.settings["dataset"])
    runs = {
        f"{scaling}: {split}": family.run(split, dataset={**data, "scaling": scaling}, seeds=seeds)
        for scaling in SCALINGS
        for split in dealt
    }

    def show(found: Results, folder: Path) -> list[Shown]:
        near = {
            (split, rule, scaling): count
            for split in dealt
            for scaling in SCALINGS
            for rule, count in _agreeing(found.measures[f"{scaling}: {split}"], family, beside[split]).items()
        }
        shown: list[Shown] = []
        for split in dealt:
            cells = sum(1 for row in beside[split].values() for cell in row if not cell.endswith("*"))
            rows = [[rule, *(str(near[split, rule, scaling]) for scaling in SCALINGS)] for rule in RULES]
            title = f"{family.splits[split]}: how many of {cells} cells agree with the paper's, by rule and scaling"
            never = sum(1 for row in beside[split].values() for cell in row if cell == NEVER)
            idle = f"A rule by which nothing ever converges would agree in {never}."
            shown.append(Sheet(title, ["rule", *SCALINGS], rows, [_WHEN, idle, _best(near, split, cells)]))
        shown.append(_together(near))
        shown.append(_scored(found, family, dealt, scored))
        return shown

    return Exhibit(f"rules and scalings that were tried for {family.title}", show, runs, family.scaled)


_WHEN = (
    f"A cell agrees where both have not converged, or both have, at epochs at most {NEAR:.0%} of the budget apart; "
    "cells that are misprinted are left out."
)


def _agreeing(measures: pl.DataFrame, family: ModelFamily, beside: PaperEpochs) -> dict[str, int]:
    """By each rule, in how many cells the median over seeds is the paper's."""
    middle = (
        convergence_by_rule(measures, RULES, "client")
        .with_columns(pl.col("epoch").cast(pl.Float64).fill_null(float("inf")))
        .group_by("rule", "method", "which")
        .agg(pl.col("epoch").median())
    )
    ours = {(rule, method, which): epoch for rule, method, which, epoch in middle.iter_rows()}
    found = dict.fromkeys(RULES, 0)
    for method, cells in beside.items():
        for which, cell in enumerate(cells):
            if not cell.endswith("*"):
                theirs = float("inf") if cell == NEVER else float(cell)
                for rule in RULES:
                    own = ours[rule, method, which]
                    found[rule] += own == theirs or abs(own - theirs) <= NEAR * family.budget
    return found


def _best(near: Mapping[tuple[str, str, str], int], split: str, cells: int) -> str:
    here = {key: count for key, count in near.items() if key[0] == split}
    most = max(here.values())
    which = [f"“{rule}” with {scaling}" for (_, rule, scaling), count in here.items() if count == most]
    ours = here[split, "ours", "standard"]
    first = f"Of {len(here)} combinations the nearest agree in {most} of {cells} cells: {', '.join(which[:3])}"
    more = f", and {len(which) - 3} more" if len(which) > 3 else ""
    return f"{first}{more}. That of the other tables, “ours” with standard, agrees in {ours}."


def _together(near: Mapping[tuple[str, str, str], int]) -> str:
    """One rule has made both of the paper's tables: which of ours comes nearest to both."""
    both = {(rule, scaling): near[IID, rule, scaling] + near["level2", rule, scaling] for _, rule, scaling in near}
    most = max(both.values())
    parts = [
        f"“{rule}” with {scaling} ({near[IID, rule, scaling]} IID, {near['level2', rule, scaling]} at level 2)"
        for (rule, scaling), count in both.items()
        if count == most
    ]
    return f"Nearest to both tables at once, with {most} cells: {', '.join(parts)}."


def _scored(found: Results, family: ModelFamily, dealt: Sequence[str], beside: Mapping[str, Sequence[str]]) -> Sheet:
    """Scores by scaling: the mean of the six deployments, and the paper's."""
    rows = []
    for scaling in SCALINGS:
        cells = []
        for split in dealt:
            every = [scores(found.records[f"{scaling}: {split}"], method, family.score) for method in DEPLOYMENTS]
            means = [mean_ci(by_seed.values())[0] for by_seed in every]
            cells.append(f"{min(means):.3f} to {max(means):.3f}")
        rows.append([scaling, *cells])
    theirs = [[float(cell.rstrip("*")) for cell in beside[split]] for split in dealt]
    rows.append(["the paper", *(f"{min(some):.3f} to {max(some):.3f}" for some in theirs)])
    heads = ["scaling", *(family.splits[split] for split in dealt)]
    return Sheet("Scores by scaling, least and greatest of the six deployments", heads, rows)

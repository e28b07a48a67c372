"""Tables of cells at a paper's own size: how far each method came, and when it reached the paper's levels."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from coterie.report.sheets import Sheet
from coterie.report.statistics import mean_ci, per_seed


class Milestone(NamedTuple):
    """A level to be reached: in words, as a number, and after how many rounds the paper's methods did."""

    text: str
    level: float
    paper: Mapping[str, str]
    column: str = "test_accuracy"

    def reached(self, curve: pl.DataFrame) -> int | None:
        """The first recorded round at which one seed's `value` is there; for a loss, from the first round on."""
        near = curve.filter(
            (pl.col("value") >= self.level)
            if self.column == "test_accuracy"
            else (pl.col("value") <= self.level) & (pl.col("round") > 0)
        )
        first = near["round"].min()
        return first if isinstance(first, int) else None


def cell_sheet(
    records: pl.DataFrame, names: Mapping[str, str], planned: Mapping[str, int], goals: Sequence[Milestone]
) -> Sheet:
    """A line for each method and seed: rounds done of those planned, hours, the end, and rounds to each goal."""
    rows = []
    for method, name in names.items():
        mine = records.filter(pl.col("method") == method)
        for seed in mine["seed"].unique().sort().to_list():
            one = mine.filter(pl.col("seed") == seed)
            rows.append([name, str(seed), *_line(one, method, planned[method], goals)])
        if mine.is_empty():
            rows.append([name, "", *_line(mine, method, planned[method], goals)])
    heads = ["method", "seed", "rounds", "hours", "accuracy", "loss"]
    heads += [h for goal in goals for h in ((goal.text, "paper") if goal.paper else (goal.text,))]
    notes = ["Rounds done of those planned; what is under way is as far as it has come, or was when this was written."]
    return Sheet("Rounds to each level", heads, rows, notes)


def _line(records: pl.DataFrame, method: str, planned: int, goals: Sequence[Milestone]) -> list[str]:
    if records.is_empty():
        cells = ["not begun", "", "", ""]
        return cells + [c for goal in goals for c in (("", goal.paper.get(method, "")) if goal.paper else ("",))]
    done = max(records["round"].to_list())
    last = records.filter(pl.col("round") == done)
    seconds = last.select(pl.sum_horizontal("train_seconds", "merge_seconds", "evaluate_seconds").sum()).item()
    words = f"{done}" if done == planned else f"{done} of {planned}, unfinished"
    cells = [words, f"{seconds / 3600:.2f}", *(f"{mean_ci(last[c]).mean:.3f}" for c in ("test_accuracy", "test_loss"))]
    for goal in goals:
        first = goal.reached(per_seed(records, goal.column))
        cells += [f"> {done}" if first is None else f"{first}", *([goal.paper.get(method, "")] if goal.paper else [])]
    return cells

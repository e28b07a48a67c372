"""Tables that compare methods: accuracy at the end, rounds and bytes until a level, differences seed by seed.

A paper's own numbers can stand beside them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from coterie.report.sheets import Sheet
from coterie.report.statistics import complete, last_round, mean_characteristic_time, mean_ci, methods, per_seed
from coterie.report.tables import NEVER, UNKNOWN, humanise, rounds_cell

Frames = Mapping[str, pl.DataFrame]
"""Column of the table (a data set) -> the records of all methods on it."""
Goal = Callable[[pl.DataFrame, str], float]
"""(records of a column, method) -> the accuracy that levels are shares of."""


def accuracy_sheet(
    title: str, frames: Frames, names: Mapping[str, str], paper: Mapping[str, Sequence[str]], last: int = 1
) -> Sheet:
    """Accuracy over the last evaluated rounds, beside the paper's; `names` are the methods and what they are called.

    The mean over nodes and rounds of each seed, then ± the 95 % interval over seeds.
    """
    finished = {column: complete(records) for column, records in frames.items()}
    rows = []
    for method, name in names.items():
        cells = []
        for place, (column, records) in enumerate(finished.items()):
            mine = records.filter(pl.col("method") == method)
            ours = _accuracy(mine, last) + _lost(frames[column], mine, method)
            cells += [ours, _from(paper, method, place)] if paper else [ours]
        if any(cell not in (UNKNOWN, "") for cell in cells[:: 2 if paper else 1]):
            rows.append([name, *cells])
    beside = ("paper",) if paper else ()
    return Sheet(title, ["method", *(h for column in frames for h in (column, *beside))], rows)


def _accuracy(records: pl.DataFrame, last: int) -> str:
    if records.is_empty():
        return UNKNOWN
    rounds = records["round"].unique().sort()[-last:]
    curves = per_seed(records.filter(pl.col("round").is_in(rounds.implode())), "test_accuracy")
    mean, half = mean_ci(curves.group_by("seed").agg(pl.col("value").mean())["value"])
    return f"{mean:.3f}" + ("" if math.isnan(half) else f" ± {half:.3f}")


def _lost(records: pl.DataFrame, finished: pl.DataFrame, method: str) -> str:
    """Count of the seeds that reached the last round, where some diverged before: these ended early, in no mean."""
    mine = records.filter(pl.col("method") == method)
    seeds, kept = mine["seed"].n_unique(), finished["seed"].n_unique()
    if kept and finished["round"].max() != records["round"].max():
        return " (diverged)"
    return f" ({kept}/{seeds})" if kept < seeds else ""


def _called(records: pl.DataFrame, names: Mapping[str, str]) -> dict[str, str]:
    """The methods' names, with the seeds that diverged before the last round, so that they do not vanish."""
    ends = records.group_by("method", "seed").agg(pl.col("round").max())
    lost = ends.filter(pl.col("round") < records["round"].max())
    gone, whole = (dict(f["method"].value_counts().iter_rows()) for f in (lost, ends))
    return {m: f"{name} ({gone[m]} of {whole[m]} diverged)" if m in gone else name for m, name in names.items()}


def of_reference(reference: str) -> Goal:
    """A goal: the last accuracy of one method, the bound."""

    def goal(records: pl.DataFrame, method: str) -> float:
        return _last_accuracy(records, reference)

    return goal


def of_best(among: Sequence[str]) -> Goal:
    """A goal: the last accuracy of the best of some methods."""

    def goal(records: pl.DataFrame, method: str) -> float:
        return max(_last_accuracy(records, m) for m in among if m in methods(records))

    return goal


def of_own(records: pl.DataFrame, method: str) -> float:
    """The goal that is a method's own greatest accuracy."""
    curves = per_seed(records.filter(pl.col("method") == method), "test_accuracy")
    means: list[float] = curves.group_by("round").agg(pl.col("value").mean())["value"].drop_nulls().to_list()
    return max(means, default=0.0) or math.nan


def absolute(records: pl.DataFrame, method: str) -> float:
    """The goal of 1, by which levels are accuracies themselves."""
    return 1.0


def _last_accuracy(records: pl.DataFrame, method: str) -> float:
    ends = last_round(records.filter(pl.col("method") == method))
    return mean_ci(per_seed(ends, "test_accuracy")["value"]).mean


def times_sheet(
    title: str,
    records: pl.DataFrame,
    names: Mapping[str, str],
    levels: Sequence[float],
    goal: Goal,
    paper: Mapping[str, Sequence[str]],
) -> Sheet:
    """The rounds until the mean accuracy reaches each level times the goal, beside the paper's."""
    return _until(title, records, _called(records, names), levels, goal, paper, _rounds)


def bytes_sheet(
    title: str, records: pl.DataFrame, names: Mapping[str, str], levels: Sequence[float], goal: Goal
) -> Sheet:
    """Bytes that a node has sent by the time the mean accuracy reaches each level times the goal."""
    note = "Bytes of the round itself are counted; those of estimating a gain by gossip are not."
    sheet = spent_sheet(title, records, names, levels, goal, "sent_bytes", humanise)
    return replace(sheet, notes=[*sheet.notes, note])


def spent_sheet(
    title: str,
    records: pl.DataFrame,
    names: Mapping[str, str],
    levels: Sequence[float],
    goal: Goal,
    column: str,
    shown: Callable[[float], str],
) -> Sheet:
    """What a node has spent, a column of totals, by the time the mean accuracy reaches each level times the goal."""
    names = _called(records, names)
    spent = per_seed(records, column).rename({"value": "spent"}).drop_nulls("spent")

    def cell(curves: pl.DataFrame, level: float) -> str:
        joined = curves.join(spent, on=["method", "seed", "round"])
        reached = joined.filter(pl.col("value") >= level).sort("round").group_by("seed").first()
        count, seeds = reached.height, curves["seed"].n_unique()
        if not count:
            return NEVER
        return shown(mean_ci(reached["spent"]).mean) + ("" if count == seeds else f" ({count}/{seeds})")

    sheet = _until(title, records, names, levels, goal, {}, cell)
    ends = last_round(complete(spent))
    whole = {name: mean_ci(ends.filter(pl.col("method") == m)["spent"]).mean for m, name in names.items()}
    return replace(
        sheet, headings=[*sheet.headings, "whole run"], rows=[[*row, shown(whole[row[0]])] for row in sheet.rows]
    )


SLACK = 1.01
"""By how much a method may exceed a number of bytes: a few more in each message should not cost it a round."""


def at_bytes(records: pl.DataFrame, reference: str) -> pl.DataFrame:
    """Of each method and seed the last round in which it had sent no more than `reference` by its end: as its only one.

    It goes by evaluated rounds and by the mean over nodes; a seed that `reference` did not finish is left out.
    """
    sent = per_seed(records, "sent_bytes")
    whole = last_round(complete(sent.filter(pl.col("method") == reference))).select("seed", limit="value")
    within = sent.join(whole, on="seed").filter(pl.col("value") <= SLACK * pl.col("limit"))
    last = within.group_by("method", "seed").agg(pl.col("round").max())
    return records.join(last, on=["method", "seed", "round"]).with_columns(round=pl.lit(records["round"].max()))


def pairs_sheet(
    title: str,
    frames: Frames,
    names: Mapping[str, str],
    pairs: Sequence[tuple[str, str]],
    paper: Mapping[str, Sequence[float]] | None = None,
) -> Sheet:
    """Differences in accuracy between pairs of methods, seed by seed: both had the same network and data in a seed.

    `paper` has the accuracy that it prints of each method in the last round, column by column, to stand beside them.
    """
    rows = []
    there = [set(records["method"].unique()) for records in frames.values()]
    for one, other in pairs:
        cells = []
        if not any({one, other} <= here for here in there):
            continue
        for place, (records, here) in enumerate(zip(frames.values(), there, strict=True)):
            if {one, other} <= here:
                first, second = (_by_seed(records, method) for method in (one, other))
                both = first.join(second, on="seed", suffix=" of the other")
                cells += [ahead(both[what] - both[f"{what} of the other"]) for what in ("mean", "last")]
            else:
                cells += [UNKNOWN] * 2
            if paper:
                known = {one, other} <= paper.keys()
                cells.append(f"{paper[one][place] - paper[other][place]:+.4f}" if known else "")
        rows.append([f"{names[one]} − {names[other]}", *cells])
    whats = ("all rounds", "last round", *(["paper"] if paper else []))
    heads = (f"{column}, {what}" for column in frames for what in whats)
    notes = ["Means over seeds ± 95 % interval; in brackets in how many of them the first was ahead."]
    return Sheet(title, ["accuracy", *heads], rows, notes)


def _by_seed(records: pl.DataFrame, method: str) -> pl.DataFrame:
    """Accuracy of each seed that reached the last round: the time average over all rounds, and that of the last one."""
    curves = per_seed(records.filter(pl.col("method") == method), "test_accuracy")
    end = records["round"].max()
    areas = [
        (seed, np.trapezoid(curve["value"], curve["round"]) / end, curve["value"][-1])
        for (seed,), curve in curves.group_by("seed", maintain_order=True)
        if curve["round"][-1] == end
    ]
    return pl.DataFrame(areas, schema={"seed": pl.Int64, "mean": pl.Float64, "last": pl.Float64}, orient="row")


def ahead(differences: pl.Series, digits: int = 3) -> str:
    """Differences of seeds as a cell: their mean and its interval, and how many are above 0."""
    if differences.is_empty():
        return UNKNOWN
    mean, half = mean_ci(differences)
    interval = "" if math.isnan(half) else f" ± {half:.{digits}f}"
    return f"{mean:+.{digits}f}{interval} ({(differences > 0).sum()}/{len(differences)})"


def _until(
    title: str,
    records: pl.DataFrame,
    names: Mapping[str, str],
    levels: Sequence[float],
    goal: Goal,
    paper: Mapping[str, Sequence[str]],
    cell: Callable[[pl.DataFrame, float], str],
) -> Sheet:
    finished = complete(records)
    curves = per_seed(finished, "test_accuracy")
    rows = []
    for method, name in names.items():
        mine = curves.filter(pl.col("method") == method)
        if mine.is_empty():
            continue
        whole = goal(finished, method)
        ours = [cell(mine, level * whole) for level in levels]
        theirs = [_from(paper, method, place) for place in range(len(levels))] if paper else []
        rows.append([name, *(c for pair in zip(ours, theirs, strict=True) for c in pair)] if paper else [name, *ours])
    heads = [f"{100 * level:g} %" for level in levels]
    notes = [
        f"{NEVER}: never reached; (k/n): only k of n seeds reached it, their mean.",
        f"Accuracies were taken in rounds {_listed(finished['round'].unique().sort().to_list())}.",
    ]
    return Sheet(
        title, ["method", *(h for head in heads for h in ((head, "paper") if paper else (head,)))], rows, notes
    )


def _listed(rounds: Sequence[int]) -> str:
    """Ranges of evaluated rounds in words: `0 to 5, 5 to 23 in steps of 3`."""
    words, at = [], 0
    while at < len(rounds) - 1:
        gap, end = rounds[at + 1] - rounds[at], at + 1
        while end + 1 < len(rounds) and rounds[end + 1] - rounds[end] == gap:
            end += 1
        words.append(f"{rounds[at]} to {rounds[end]}" + (f" in steps of {gap}" if gap > 1 else ""))
        at = end
    return ", ".join(words) or f"{rounds[0]}"


def _rounds(curves: pl.DataFrame, level: float) -> str:
    return rounds_cell(*mean_characteristic_time(curves, level), curves["seed"].n_unique())


def _from(paper: Mapping[str, Sequence[str]], method: str, place: int) -> str:
    return paper[method][place] if method in paper else ""


def labelled(records: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """The records of these methods, renamed as the paper calls them."""
    return records.filter(pl.col("method").is_in(list(names))).with_columns(pl.col("method").replace(names))

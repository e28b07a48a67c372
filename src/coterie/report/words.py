"""The result of a run in a sentence, and what was run in another."""

from typing import Any

import polars as pl

from coterie.report.statistics import further, methods


def finding(table: pl.DataFrame) -> str:
    """The result in one sentence; it claims no winner where the intervals of the first two overlap."""
    rows = table.filter(~pl.col("bound") & pl.col("accuracy").is_not_null()).rows(named=True)
    if not rows:
        rows = table.filter(pl.col("accuracy").is_not_null()).rows(named=True)
    if not rows:
        return "No accuracy was recorded." if not further(table.columns) else "The models were judged by other metrics."
    first = f"{rows[0]['method']} reaches a mean test accuracy of {_accuracy(rows[0])}"
    bound = table.filter("bound", pl.col("accuracy").is_not_null()).rows(named=True)
    ceiling = f" {bound[0]['method']}, the bound, reaches {_accuracy(bound[0])}." if bound and rows != bound else ""
    if len(rows) == 1:
        return f"{first}.{ceiling}"
    gap = rows[0]["accuracy"] - rows[1]["accuracy"]
    halves = [row["accuracy_ci"] for row in rows[:2]]
    if None in halves:
        doubt = "; without several seeds for both, their order may be chance"
    else:
        doubt = "; their 95 % intervals overlap" if gap <= sum(halves) else ""
    return f"{first}, followed by {rows[1]['method']} with {_accuracy(rows[1])}{doubt}.{ceiling}"


def _accuracy(row: dict[str, Any]) -> str:
    half = row["accuracy_ci"]
    return f"{row['accuracy']:.3f}" + ("" if half is None else f" ± {half:.3f}")


def what_was_run(records: pl.DataFrame, table: pl.DataFrame) -> str:
    names, evaluated = methods(records), records["round"].unique().sort().to_list()
    compared = table.filter(~pl.col("bound")) if table.height > 1 else table
    nodes, seeds, last = (_range(compared[c].to_list()) for c in ("nodes", "seeds_run", "round"))
    return (
        f"{len(names)} method{'s' if len(names) > 1 else ''}: {', '.join(names)}. Nodes: {nodes}. Seeds: {seeds}. "
        f"Last round: {last}. Evaluated rounds: {', '.join(map(str, evaluated))}."
    )


def _range(values: list[int]) -> str:
    return f"{values[0]}" if min(values) == max(values) else f"{min(values)} to {max(values)}"

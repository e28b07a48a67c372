"""What nodes reach by architecture, where a method has several: their present models, their peaks, at home."""

from collections.abc import Mapping, Sequence

import polars as pl

from coterie.report.sheets import Sheet
from coterie.report.statistics import complete, last_round, mean_ci, methods, per_seed
from coterie.report.tables import UNKNOWN

COLUMNS = {
    "test_accuracy": "accuracy",
    "peak_accuracy": "of the peaks",
    "validation_accuracy": "on own validation data",
}
PRECISION = 3


def by_architecture(records: pl.DataFrame, kinds: Mapping[str, Sequence[str]], run: str = "") -> Sheet | None:
    """A row for each method and architecture, in the last round; None if no method has several.

    `kinds` says by method which architecture each node has. Accuracies are means over the nodes of an architecture and
    then over seeds, ± half of the 95 % interval over seeds; nodes that kept no peak are left out of that column.
    """
    last, rows = last_round(complete(records)), list[list[str]]()
    there = [c for c in COLUMNS if c in last.columns and last[c].is_not_null().any()]
    for method in methods(last) if there else ():
        has = kinds.get(method, ())
        for kind in dict.fromkeys(has) if len(set(has)) > 1 else ():
            nodes = [node for node, one in enumerate(has) if one == kind]
            some = last.filter(pl.col("method") == method, pl.col("node").is_in(nodes))
            rows.append([method, kind, str(len(nodes)), *(_mean(some, column) for column in there)])
    heads = ["method", "architecture", "nodes", *(COLUMNS[c] for c in there)]
    title = "Accuracy by architecture, in the last round" + (f" of {run}" if run else "")
    return Sheet(title, heads, rows) if rows else None


def _mean(some: pl.DataFrame, column: str) -> str:
    known = some.filter(pl.col(column).is_not_null())
    if known.is_empty():
        return UNKNOWN
    values = per_seed(known, column)["value"]
    mean, half = mean_ci(values)
    return f"{mean:.{PRECISION}f}" + (f" ± {half:.{PRECISION}f}" if len(values) > 1 else "")

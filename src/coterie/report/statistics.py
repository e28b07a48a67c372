"""Statistics of records: means over nodes, confidence intervals over seeds, rounds until a level of accuracy.

Nodes of one run are not independent (they learn from one another), seeds are. So every number is first a mean over the
nodes of one seed, and only then a mean and a confidence interval over seeds. NaN counts as missing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
from scipy.special import stdtrit

from coterie.errors import RunError

KEYS = ("method", "seed", "round", "node")
REFERENCE = "centralised"
"""The method whose accuracy others are measured against, unless another is named."""

_SUMMARISED = ("test_accuracy", "test_loss", "test_f1", "sent_bytes")


class Interval(NamedTuple):
    """A mean and the half-width of its confidence interval; NaN where there are too few values."""

    mean: float
    half: float


def mean_ci(values: Iterable[float | None], level: float = 0.95) -> Interval:
    """The mean of independent values, with Student's confidence interval.

    x̄ ± t(n-1, (1+level)/2) · s / √n
    """
    known = [float(v) for v in values if v is not None and not math.isnan(v)]
    n = len(known)
    if n == 0:
        return Interval(math.nan, math.nan)
    mean = sum(known) / n
    if n == 1 or not math.isfinite(mean):
        return Interval(mean, math.nan)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in known) / (n - 1))
    return Interval(mean, float(stdtrit(n - 1, (1 + level) / 2)) * deviation / math.sqrt(n))


def tidy(records: pl.DataFrame) -> pl.DataFrame:
    """Records ready for statistics: keys checked, numbers as floats, NaN as null, all columns of a summary present."""
    absent = [k for k in KEYS if k not in records.columns]
    if absent:
        raise RunError(
            "these are not records", expected=f"columns {', '.join(KEYS)}", got=f"none called {', '.join(absent)}"
        )
    if records.is_empty():
        raise RunError("there are no records to report", cure="Let the run reach its first evaluation.")
    measures = [c for c, kind in records.schema.items() if c not in KEYS and (kind.is_numeric() or kind == pl.Null)]
    return records.with_columns(
        pl.col("method").cast(pl.String),
        *(pl.col(c).cast(pl.Float64).fill_nan(None) for c in measures),
        *(pl.lit(None, pl.Float64).alias(c) for c in _SUMMARISED if c not in records.columns),
    )


def further(columns: Iterable[str]) -> list[str]:
    """Which columns hold metrics on the test set that no summary has by default."""
    return [c for c in columns if c.startswith("test_") and c not in _SUMMARISED]


def methods(records: pl.DataFrame) -> list[str]:
    """The methods in the order in which they were recorded."""
    return records["method"].cast(pl.String).unique(maintain_order=True).to_list()


def complete(records: pl.DataFrame) -> pl.DataFrame:
    """The records of the seeds that reached the last round of their method.

    A seed still under way would otherwise bend the mean at the round where it ends.
    """
    reached = pl.col("round").max().over("method", "seed")
    return records.filter(reached == pl.col("round").max().over("method"))


def last_round(records: pl.DataFrame) -> pl.DataFrame:
    """The rows of the last round of each method."""
    return records.filter(pl.col("round") == pl.col("round").max().over("method"))


def per_seed(records: pl.DataFrame, column: str) -> pl.DataFrame:
    """The mean of a column over nodes: one `value` per method, seed and round; null where no node has one."""
    records = tidy(records)
    if column not in records.columns:
        raise RunError(f"records have no column {column!r}", cure=f"Choose from: {', '.join(records.columns[4:])}.")
    grouped = records.group_by("method", "seed", "round", maintain_order=True)
    return grouped.agg(pl.col(column).mean().alias("value")).sort("round", maintain_order=True)


def characteristic_time(curve: pl.DataFrame, level: float) -> int | None:
    """The first recorded round at which the `value` of one seed's curve reaches a level; None when it never does.

    Reference: Valerio, Boldrini, Passarella, Kertész, Karsai, Iñiguez, Coordination-free decentralised federated
    learning on complex networks: overcoming heterogeneity, 2023 (Table IV)
    """
    rounds: list[int] = curve.filter(pl.col("value") >= level)["round"].to_list()
    return min(rounds, default=None)


def mean_characteristic_time(curves: pl.DataFrame, level: float) -> tuple[float | None, int]:
    """The characteristic time averaged over the seeds that reach the level, and how many do."""
    times = [characteristic_time(curve, level) for curve in curves.partition_by("seed")]
    reached = [t for t in times if t is not None]
    return (sum(reached) / len(reached) if reached else None), len(reached)


def level_name(level: float) -> str:
    """A share as it stands in column names: 0.5 is `50`, 0.995 is `99.5`."""
    return f"{100 * level:.6g}"


def summary(
    records: pl.DataFrame, levels: Sequence[float] = (0.5, 0.8, 0.9), reference: str = REFERENCE
) -> pl.DataFrame:
    """One row per method at its last round, best first and the reference last.

    `accuracy`, `f1` and `loss` are means over nodes and then seeds; `accuracy_ci` is the half-width of the 95 %
    interval over seeds; `spread` is the standard deviation over nodes within a seed; `rounds_to_80` is the
    characteristic time for 80 % of the reference method's accuracy and `reached_80` the number of seeds that got there;
    `sent_bytes` is the mean per node, `sent_bytes_total` the sum over nodes, both averaged over seeds. `seeds` counts
    those that reached the last round, of `seeds_run`; `missing` counts nodes without an accuracy there. Further metrics
    on the test set keep their names and are averaged as the accuracy is. The columns
    `reference`, `reference_accuracy` and `bound` say what the shares are of: the method asked for (`bound` is true in
    its row) or, if that was not run, the most accurate one (`bound` is nowhere true).
    """
    records = tidy(records)
    finished = complete(records)
    ends = _ends(finished)
    rows = [_row(method, end) for (method,), end in ends.group_by("method", maintain_order=True)]
    against = reference if reference in methods(records) else _best(rows)
    goal = next(row["accuracy"] for row in rows if row["method"] == against)
    curves = per_seed(finished, "test_accuracy")
    for row in rows:
        mine = curves.filter(pl.col("method") == row["method"])
        for level in levels:
            time, reached = mean_characteristic_time(mine, level * goal)
            row |= {f"rounds_to_{level_name(level)}": time, f"reached_{level_name(level)}": reached}
        row |= {"seeds_run": records.filter(pl.col("method") == row["method"])["seed"].n_unique()}
        row |= {"reference": against, "reference_accuracy": goal, "bound": row["method"] == reference}
    table = pl.DataFrame(rows, infer_schema_length=None)
    floats = [c for c in table.columns if c.startswith("rounds_to_")]
    table = table.with_columns(pl.col(floats).cast(pl.Float64)).with_columns(pl.col(pl.Float64).fill_nan(None))
    return table.sort("bound", "accuracy", descending=[False, True], nulls_last=True, maintain_order=True)


def label_runs(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The records of several runs as one; a method found in more than one of them is called `run/method`."""
    if not frames:
        raise RunError("there are no runs to compare", cure="Name at least one run directory.")
    seen = [m for frame in frames.values() for m in methods(frame)]
    shared = {m for m in seen if seen.count(m) > 1}
    labels = {run: {m: f"{run}/{m}" if m in shared else m for m in methods(frame)} for run, frame in frames.items()}
    names = [label for mine in labels.values() for label in mine.values()]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise RunError(f"two methods would both be called {min(twice)!r}", cure="Rename one of the run directories.")
    return pl.concat(
        (f.with_columns(pl.col("method").cast(pl.String).replace(labels[run])) for run, f in frames.items()),
        how="diagonal_relaxed",
    )


def _ends(finished: pl.DataFrame) -> pl.DataFrame:
    """The last round of each method and seed, with nodes averaged or summed."""
    bytes_known = pl.col("sent_bytes").count() > 0
    return (
        last_round(finished)
        .group_by("method", "seed", "round", maintain_order=True)
        .agg(
            nodes=pl.len(),
            missing=pl.col("test_accuracy").null_count(),
            accuracy=pl.col("test_accuracy").mean(),
            spread=pl.col("test_accuracy").std(),
            f1=pl.col("test_f1").mean(),
            loss=pl.col("test_loss").mean(),
            sent_bytes=pl.col("sent_bytes").mean(),
            known=bytes_known,
            **{c: pl.col(c).mean() for c in further(finished.columns)},
        )
        .join(_all_bytes(finished), on=["method", "seed"], how="left", maintain_order="left")
        .with_columns(sent_bytes_total=pl.when("known").then("sent_bytes_total"))
    )


def _all_bytes(finished: pl.DataFrame) -> pl.DataFrame:
    """Bytes sent by all nodes of a seed, those that left too: rows hold totals, so the last of each node counts."""
    last = finished.sort("round").group_by("method", "seed", "node").agg(pl.col("sent_bytes").last())
    return last.group_by("method", "seed").agg(pl.col("sent_bytes").sum().alias("sent_bytes_total"))


def _row(method: Any, end: pl.DataFrame) -> dict[str, Any]:
    accuracy = mean_ci(end["accuracy"])
    averaged = ("spread", "f1", "loss", *further(end.columns), "sent_bytes", "sent_bytes_total")
    means = {c: mean_ci(end[c]).mean for c in averaged}
    return {
        "method": method,
        "round": end["round"][0],
        "nodes": end["nodes"].max(),
        "seeds": end.height,
        "missing": int(end["missing"].sum()),
        "accuracy": accuracy.mean,
        "accuracy_ci": accuracy.half,
        **means,
    }


def _best(rows: list[dict[str, Any]]) -> str:
    return str(max(rows, key=lambda row: -math.inf if math.isnan(row["accuracy"]) else row["accuracy"])["method"])

"""The summary of a run as a table: for the terminal, in Markdown, and as cells of the HTML report."""

import math
from typing import Any

import polars as pl
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from coterie.report.sheets import Sheet
from coterie.report.statistics import further

UNKNOWN = "—"
NEVER = "-"
SPARE = ("sent in all", "macro F1", "loss", "spread", "sent/node")
"""Columns that a narrow terminal leaves out, in this order."""

_WIDE = Console(width=1000)


def humanise(count: float | None) -> str:
    """Bytes in decimal units: 12 400 000 is `12.4 MB`."""
    if count is None or not math.isfinite(count):
        return UNKNOWN
    units = ["B", "kB", "MB", "GB", "TB", "PB"]
    # The mantissa is compared as it will be printed, so that 999 999 is 1.0 MB and not 1000.0 kB.
    while len(units) > 1 and round(count, 1) >= 1000:
        count, units = count / 1000, units[1:]
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.1f} {units[0]}"


def headers(summary: pl.DataFrame) -> list[str]:
    """The column headings, the method first."""
    run = [] if _alike(summary) else ["seeds", "round"]
    shares = [f"to {name} %" for name in _levels(summary)]
    return [
        "method",
        *run,
        *(["accuracy", "spread", *shares] if _judged(summary, "accuracy") else []),
        *(name for column, name in (("f1", "macro F1"), ("loss", "loss")) if _judged(summary, column)),
        *(column.removeprefix("test_").replace("_", " ") for column in further(summary.columns)),
        "sent/node",
        "sent in all",
    ]


def cells(summary: pl.DataFrame) -> list[list[str]]:
    """The rows of a summary as text, in the order of `headers`."""
    return [_cells(row, summary) for row in summary.iter_rows(named=True)]


def title(summary: pl.DataFrame) -> str:
    """The title of the summary: round, seeds, and the method whose accuracy the shares refer to."""
    row = summary.row(0, named=True)
    where = f"round {row['round']}, {_count(row['seeds'], 'seed')}" if _alike(summary) else "the last round"
    if not _judged(summary, "accuracy"):
        return f"Metrics on the test set at {where}"
    if not _levels(summary):
        return f"Test accuracy at {where}"
    whose = row["reference"] if summary["bound"].any() else f"the best method, {row['reference']}"
    return f"Test accuracy at {where}; rounds to a share of that of {whose} ({_number(row['reference_accuracy'])})"


def notes(summary: pl.DataFrame) -> list[str]:
    """Notes beneath the summary: seeds left out, missing nodes, levels never reached; only those that apply to it."""
    said = []
    late = summary.filter(pl.col("seeds") < pl.col("seeds_run"))
    if late.height:
        said.append(f"Seeds that stopped before the last round are left out: {', '.join(late['method'])}.")
    if summary["round"].n_unique() > 1:
        said.append("The methods did not end at the same round.")
    if summary["missing"].sum() > 0 and _judged(summary, "accuracy"):
        lost = (f"{m} {n}" for m, n in summary.filter(pl.col("missing") > 0).select("method", "missing").iter_rows())
        said.append(f"Nodes without an accuracy, left out of the means: {', '.join(lost)}.")
    if (summary["seeds"] == 1).any():
        said.append(f"One seed has no confidence interval ({UNKNOWN}).")
    levels = _levels(summary) if _judged(summary, "accuracy") else []
    if any((summary[f"reached_{name}"] == 0).any() for name in levels):
        said.append(f"{NEVER}: never reached.")
    if any(((summary[f"reached_{n}"] > 0) & (summary[f"reached_{n}"] < summary["seeds"])).any() for n in levels):
        said.append("(k/n): only k of n seeds reached it; their mean.")
    return said


def render(summary: pl.DataFrame, width: int | None = None) -> Table:
    """The summary as a table for the terminal; the reference method stands last, marked as the bound.

    Where it would be wider than `width`, the columns in `SPARE` are left out one by one, and the caption names them.
    """
    sheet, left_out = _sheet(summary), list[str]()
    table = sheet.render()
    for name in SPARE if width else ():
        if Measurement.get(_WIDE, _WIDE.options, table).maximum <= (width or 0):
            break
        left_out.append(name)
        table = sheet.render(left_out)
    return table


def to_markdown(summary: pl.DataFrame) -> str:
    """The summary as a Markdown table with its title above and its notes below."""
    return _sheet(summary).markdown()


def _sheet(summary: pl.DataFrame) -> Sheet:
    bounds = {number for number, bound in enumerate(summary["bound"]) if bound}
    return Sheet(title(summary), headers(summary), cells(summary), notes(summary), bounds)


def _alike(summary: pl.DataFrame) -> bool:
    """Whether all methods have the same seeds and last round, which the title then says instead of two columns."""
    return (
        summary.select("seeds", "seeds_run", "round").n_unique() == 1 and summary["seeds"][0] == summary["seeds_run"][0]
    )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _judged(summary: pl.DataFrame, column: str) -> bool:
    """Whether models were judged by this: not if it is unknown for all, and they were judged by something else."""
    return not further(summary.columns) or summary[column].count() > 0


def _cells(row: dict[str, Any], summary: pl.DataFrame) -> list[str]:
    levels, alike = _levels(summary), _alike(summary)
    shares = (rounds_cell(row[f"rounds_to_{name}"], row[f"reached_{name}"], row["seeds"]) for name in levels)
    accuracy = [f"{_number(row['accuracy'])} ± {_number(row['accuracy_ci'])}", _number(row["spread"]), *shares]
    seeds = f"{row['seeds']}" if row["seeds"] == row["seeds_run"] else f"{row['seeds']} of {row['seeds_run']}"
    return [
        f"{row['method']} (bound)" if row["bound"] else row["method"],
        *([] if alike else [seeds, f"{row['round']}"]),
        *(accuracy if _judged(summary, "accuracy") else []),
        *(_number(row[column]) for column in ("f1", "loss") if _judged(summary, column)),
        *(_number(row[column]) for column in further(summary.columns)),
        humanise(row["sent_bytes"]),
        humanise(row["sent_bytes_total"]),
    ]


def _levels(summary: pl.DataFrame) -> list[str]:
    return [c.removeprefix("rounds_to_") for c in summary.columns if c.startswith("rounds_to_")]


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return UNKNOWN
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.3g}"


def rounds_cell(time: float | None, reached: int, seeds: int) -> str:
    """Rounds until a level was reached, and by how many seeds if not by all."""
    if time is None:
        return NEVER
    rounds = f"{time:.1f}".removesuffix(".0")
    return rounds if reached == seeds else f"{rounds} ({reached}/{seeds})"

"""What a page shows of some runs as a whole: curves of methods, tables, differences, settings."""

import time
import tomllib
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import polars as pl

from coterie import records
from coterie.errors import CoterieError
from coterie.page.numbers import five, plain, short, thinned
from coterie.page.run import RunReader
from coterie.page.setting import setting
from coterie.report.statistics import KEYS, complete, label_runs, last_round, mean_ci, methods, per_seed, summary
from coterie.report.tables import cells, headers, notes, title
from coterie.report.words import finding, what_was_run

POINTS = 240
"""Rounds of a curve that are shown at most."""
LINES = 60_000
"""Numbers that the curves of single seeds may take in all."""
DOTS = 150
"""Nodes drawn beside a box."""
TOTALS = ("sent_bytes", "batches", "flops", "train_seconds", "merge_seconds", "evaluate_seconds")

View = dict[str, Any]


def overview(readers: Sequence[RunReader]) -> View:
    """All that is known of these runs as a whole."""
    frame = _together(readers)
    names = _labels(readers, frame)
    few = _thin(frame, POINTS)  # the last rounds are among them
    done = complete(few)
    ends = last_round(done)
    runs = [_run(reader) for reader in readers]
    judged = sorted((c for c in frame.columns if c.startswith("test_")), key=lambda c: c != "test_accuracy")
    return {
        "time": time.time(),
        "live": any(reader.running for reader in readers),
        "version": sum(reader.version for reader in readers),
        "runs": runs,
        "setting": setting([tomllib.loads(run["configuration"]) for run in runs]),
        "jobs": [_job(reader, key, names[reader.label, key[0]]) for reader in readers for key in reader.jobs],
        "columns": _numeric(frame),
        "methods": _curves(done),
        "seeds": _lines(few),
        "boxes": {column: _boxes(ends, column) for column in judged},
        "differences": {column: _differences(ends, column) for column in judged},
        "costs": _costs(few),
        **_table(frame),
    }


def _together(readers: Sequence[RunReader]) -> pl.DataFrame:
    frames = {reader.label: reader.frame for reader in readers if not reader.frame.is_empty()}
    if len(frames) == 1:  # nothing to tell apart
        return next(iter(frames.values()))
    return label_runs(frames) if frames else records.empty()


def _labels(readers: Sequence[RunReader], frame: pl.DataFrame) -> dict[tuple[str, str], str]:
    """What each run's methods are called on the page."""
    known = set(methods(frame))
    return {
        (reader.label, method): both if (both := f"{reader.label}/{method}") in known else method
        for reader in readers
        for method, _ in reader.jobs
    }


def _run(reader: RunReader) -> View:
    try:
        text = records.configuration_text(reader.folder)
        settings = _flat(tomllib.loads(text))
        environment = records.environment(reader.folder)
    except (CoterieError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        text, settings, environment = "", {}, {"trouble": str(error)}
    state = "running" if reader.running else "stopped" if reader.how in ("running", "waiting") else reader.how
    return {
        "label": reader.label,
        "folder": str(reader.folder),
        "state": state,
        "trouble": reader.trouble,
        "configuration": text,
        "settings": settings,
        "environment": environment,
    }


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Settings by their dotted names."""
    found: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value if isinstance(value, str) else str(value)
    return found


def _job(reader: RunReader, key: tuple[str, int], label: str) -> View:
    job = reader.jobs[key]
    return {
        "id": job_id(reader, key),
        "run": reader.label,
        "method": label,
        "seed": key[1],
        "round": job.round,
        "rounds": job.rounds,
        "nodes": job.nodes,
        "state": reader.state(job),
        "error": job.error,
        "seconds": short(job.ended - job.began) if job.began and job.ended else None,
    }


def job_id(reader: RunReader, key: tuple[str, int]) -> str:
    """What the page calls a job."""
    return f"{reader.label}:{key[1]}:{key[0]}"


def _numeric(frame: pl.DataFrame) -> list[str]:
    """Columns that can be drawn: some node has a number there."""
    return [c for c, kind in frame.schema.items() if c not in KEYS and kind.is_numeric() and frame[c].count()]


def _thin(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    """Fewer rounds of each method."""
    found = frame.group_by("method", maintain_order=True).agg(pl.col("round").unique())
    kept = {method: thinned(rounds, most) for method, rounds in found.iter_rows()}
    if sum(map(len, kept.values())) == found["round"].list.len().sum():
        return frame
    wanted = [(method, number) for method, rounds in kept.items() for number in rounds]
    return frame.join(
        pl.DataFrame(wanted, schema={"method": pl.String, "round": pl.Int64}, orient="row"),
        on=["method", "round"],
        how="semi",
        maintain_order="left",
    )


def _over_nodes(frame: pl.DataFrame, columns: Sequence[str], *more: pl.Expr) -> pl.DataFrame:
    grouped = frame.group_by("method", "seed", "round", maintain_order=True)
    means = [pl.col(c).cast(pl.Float64).fill_nan(None).mean() for c in columns]
    return grouped.agg(*means, *more).sort("round", maintain_order=True)


def _curves(frame: pl.DataFrame) -> dict[str, View]:
    """Each method's mean over nodes and then seeds, with its interval over seeds and its spread over nodes."""
    columns = _numeric(frame)
    if frame.is_empty():
        return {}
    spreads = [pl.col(c).cast(pl.Float64).fill_nan(None).std().alias(f"{c}±") for c in columns]
    found: dict[str, View] = {}
    for (method,), own in _over_nodes(frame, columns, *spreads).group_by("method", maintain_order=True):
        rounds = own.group_by("round", maintain_order=True).agg(pl.all().exclude("method")).sort("round")
        view: View = {"round": rounds["round"].to_list(), "seeds": own["seed"].n_unique(), "columns": {}}
        for c in columns:
            intervals = [mean_ci(values) for values in rounds[c].to_list()]
            view["columns"][c] = {
                "mean": [short(each.mean) for each in intervals],
                "half": [short(each.half) for each in intervals],
                "spread": plain(rounds[f"{c}±"].list.mean()),
            }
        found[str(method)] = view
    return found


def _lines(frame: pl.DataFrame) -> dict[str, View]:
    """Each seed's mean over nodes, those under way too."""
    columns, jobs = _numeric(frame), frame.select("method", "seed").n_unique()
    if frame.is_empty():
        return {}
    kept = _thin(frame, min(POINTS, max(8, LINES // max(len(columns) * jobs, 1))))
    return {
        f"{method}:{seed}": {"round": own["round"].to_list(), "columns": {c: plain(own[c]) for c in columns}}
        for (method, seed), own in _over_nodes(kept, columns).group_by("method", "seed", maintain_order=True)
    }


def _table(frame: pl.DataFrame) -> View:
    if frame.is_empty():
        return {"table": None, "finding": "Nothing was recorded yet.", "ran": ""}
    made = summary(frame.select(*KEYS, pl.col("^(test_.*|sent_bytes)$")))
    said = {
        "title": title(made),
        "headers": headers(made),
        "rows": cells(made),
        "notes": notes(made),
        "bounds": made["bound"].to_list(),
    }
    return {"table": said, "finding": finding(made), "ran": what_was_run(frame, made)}


def _boxes(ends: pl.DataFrame, column: str) -> dict[str, View]:
    """How the nodes of a method stand at its last round, those of all seeds together."""
    found: dict[str, View] = {}
    for (method,), own in ends.group_by("method", maintain_order=True):
        values = own[column].cast(pl.Float64).fill_nan(None).drop_nulls()
        if len(values):
            shown = values.gather_every(max(1, -(-len(values) // DOTS)))
            found[str(method)] = {"five": five(values), "dots": plain(shown), "nodes": len(values)}
    return found


def _differences(ends: pl.DataFrame, column: str) -> list[View]:
    """For each two methods the mean difference at the last round over the seeds both have, with its interval."""
    if ends.is_empty():
        return []
    means = per_seed(ends, column).drop_nulls("value")
    by_method = {name: dict(means.filter(method=name).select("seed", "value").iter_rows()) for name in methods(means)}
    found = []
    for a, b in combinations(by_method, 2):
        common = sorted(by_method[a].keys() & by_method[b].keys())
        gap = mean_ci(by_method[a][seed] - by_method[b][seed] for seed in common)
        if common:
            found.append({"a": a, "b": b, "mean": short(gap.mean), "half": short(gap.half), "seeds": len(common)})
    return found


def _costs(frame: pl.DataFrame) -> list[View]:
    """What a method has cost: sums over nodes, means over seeds."""
    kept = [c for c in TOTALS if c in frame.columns]
    last = frame.group_by("method", "seed", "node", maintain_order=True).agg(pl.col(kept).max())  # totals only grow
    whole = last.group_by("method", "seed", maintain_order=True).agg(pl.col(kept).sum())
    mean = whole.group_by("method", maintain_order=True).agg(pl.col(kept).mean())
    return [{k: short(v) if isinstance(v, float) else v for k, v in row.items()} for row in mean.iter_rows(named=True)]

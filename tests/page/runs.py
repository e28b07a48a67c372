"""Runs as their folders look, written without training anything."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from coterie.records import RunFolder, nodes, write_frame
from coterie.records.nodes import NODES
from coterie.runs.experiment import Experiment

NASTY = '</script><img src=x onerror="window.broken=1"><b>{{7*7}}'
"""A name as somebody might choose it to be taken for markup."""


def journal(folder: Path, *events: dict[str, Any]) -> None:
    """Add events to the journal of a run."""
    with (folder / "journal.jsonl").open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def event(name: str, **said: Any) -> dict[str, Any]:
    return {"event": name, "time": 1000.0 + said.get("round", 0), **said}


def moment(time: float, event: str, **said: Any) -> dict[str, Any]:
    """An event at a time."""
    return {"event": event, "time": time, **said}


def evaluation(method: str, seed: int, number: int, values: list[float | None]) -> dict[str, Any]:
    columns = {"node": [*range(len(values))], "test_accuracy": values, "sent_bytes": [100 * number] * len(values)}
    return event("evaluation", method=method, seed=seed, round=number, **columns)


def ring(n: int) -> pl.DataFrame:
    """Nodes on a ring, of two classes."""
    told = {
        "node": range(n),
        "architecture": ["mlp"] * n,
        "samples": [10 + i for i in range(n)],
        "labels": [[10, i] for i in range(n)],
        "neighbours": [[(i - 1) % n, (i + 1) % n] for i in range(n)],
        "weights": [[1.0, 1.0]] * n,
    }
    return pl.DataFrame(told, schema=NODES)


def frame(methods: list[str], seeds: int, rounds: list[int], n: int) -> pl.DataFrame:
    """Records in which method m gets better by its place, and nodes and seeds differ a little."""
    grid = [(m, s, r, i) for m in range(len(methods)) for s in range(seeds) for r in rounds for i in range(n)]
    m, s, r, i = (np.array(column) for column in zip(*grid, strict=True))
    accuracy = 1 - 1 / (1 + (m + 1) * r / 4) + 0.01 * s - 0.001 * i
    told = {
        "method": [methods[each] for each in m],
        "seed": s,
        "round": r,
        "node": i,
        "test_accuracy": accuracy.clip(0, 1),
        "test_loss": 2 - accuracy,
        "sent_bytes": 1000 * r,
        "batches": 8 * r,
    }
    return pl.DataFrame(told)


def finished(folder: Path, methods: list[str], seeds: int = 2, n: int = 6) -> Path:
    """A run that is done."""
    rounds = (0, 1, 2, 4)
    RunFolder(folder).create(Experiment(nodes=n, rounds=max(rounds), topology="ring"))
    jobs = [[m, s] for m in methods for s in range(seeds)]
    journal(folder, event("begin", jobs=jobs, left=jobs, rounds=max(rounds)))
    whole = frame(methods, seeds, [*rounds], n)
    write_frame(folder / "records.parquet", whole)
    for method, seed in jobs:
        write_frame(RunFolder(folder).job(method, seed) / nodes.FILE, ring(n))
        own = whole.filter(pl.col("method") == method, pl.col("seed") == seed)
        about = {"method": method, "seed": seed}
        journal(folder, event("begin", **about, round=0, rounds=max(rounds), nodes=n))
        for r in rounds:
            values = own.filter(pl.col("round") == r)["test_accuracy"].to_list()
            journal(folder, evaluation(method, seed, r, values))
        down = {"nodes": [2], "links": 1, "down": [[0, 1]]}
        journal(folder, event("fault", **about, round=max(rounds), **down))
        journal(folder, event("exchange", **about, round=max(rounds), links=2 * n, messages=1, bytes=100))
        journal(folder, event("warning", **about, round=1, text=f"odd: {method}"))
        journal(folder, event("end", **about, how="done", round=max(rounds)))
    journal(folder, event("end", how="done"))
    return folder

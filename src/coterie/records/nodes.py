"""Who takes part in a job: each node's architecture, samples and neighbours, a row each, in `nodes.parquet`."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from coterie.job import Job
from coterie.parts import Choice
from coterie.records.table import read_frame, write_frame

FILE = "nodes.parquet"

NODES: dict[str, Any] = {
    "node": pl.Int64,
    "architecture": pl.String,
    "samples": pl.Int64,
    "labels": pl.List(pl.Int64),
    "neighbours": pl.List(pl.Int64),
    "weights": pl.List(pl.Float64),
}
"""Columns of the nodes.

`labels` counts the training samples of each class, `neighbours` are those it hears in round 1, in order, and `weights`
what their links weigh.
"""


def describe(job: Job) -> pl.DataFrame:
    """The nodes of a job, as they are when it begins."""
    roster, graph = job.roster, job.graph(1)
    names = [_called(model) for model in roster.models]
    architecture = {int(node): names[g] for g, nodes in enumerate(roster.groups) for node in nodes}
    samples = np.array([len(own) for own in roster.train])
    labels = np.rint(roster.labels.cpu().numpy() * samples[:, None]).astype(np.int64)
    cuts = np.searchsorted(graph.targets, np.arange(1, graph.nodes))
    return pl.DataFrame(
        {
            "node": range(roster.nodes),
            "architecture": [architecture[node] for node in range(roster.nodes)],
            "samples": samples,
            "labels": labels.tolist(),
            "neighbours": [part.tolist() for part in np.split(graph.sources, cuts)],
            "weights": [part.tolist() for part in np.split(graph.weights, cuts)],
        },
        schema=NODES,
    )


def _called(model: Choice) -> str:
    """A model in short: its name, and its size in brackets."""
    size = next(iter(model.settings.values()), None)
    if isinstance(size, list | tuple):
        return f"{model.name}[{','.join(map(str, size))}]"
    return model.name if size is None or isinstance(size, dict) else f"{model.name}[{size}]"


def note(folder: Path, job: Job) -> None:
    """Write down who takes part in a job, in its folder, unless it stands there."""
    if not (folder / FILE).is_file():
        write_frame(folder / FILE, describe(job))


def read(folder: Path) -> pl.DataFrame | None:
    """Who takes part in the job of this folder, if it was written down."""
    file = folder / FILE
    return read_frame(file, cure="Remove it: it is written again when the run goes on.") if file.is_file() else None

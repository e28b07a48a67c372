"""What theory says of a method with linear models, beside what it does: bounds and the gap to the optimum by round."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from coterie.config.build import build, load_samples
from coterie.config.configuration import Configuration
from coterie.engines.local import Local
from coterie.job import Job
from coterie.node.convex import (
    Constants,
    averaging_bound,
    constants,
    problems,
    together,
    walking_bound,
)
from coterie.node.snapshot import Snapshot
from coterie.protocols.relay import Relay

FOUND = {
    "method": pl.String,
    "seed": pl.Int64,
    "round": pl.Int64,
    "node": pl.Int64,
    "turns": pl.Int64,
    "gap": pl.Float64,
    "bound": pl.Float64,
}
"""Columns of what is found: F(w) − F* of a node's model at the end of a round, and what theory says it stays below.

Where a model walks, `turns` is how often the node's model was handed on and trained.
"""


@dataclass(frozen=True)
class Theory:
    """What is found of some methods."""

    gaps: pl.DataFrame
    constants: dict[tuple[str, int], Constants]
    """By method and seed."""


def theory(configuration: Configuration) -> Theory:
    """Run each method and seed round by round, and hold the gap of each model beside the bound."""
    frames, found = [pl.DataFrame(schema=FOUND)], {}
    for method, settings in configuration.resolved.items():
        samples = load_samples(settings)
        for seed in configuration.seeds:
            frame, of = followed(build(settings, samples, seed))
            named = frame.with_columns(method=pl.lit(method), seed=pl.lit(seed, pl.Int64))
            frames.append(named.select([*FOUND]))
            found[method, seed] = of
    return Theory(pl.concat(frames), found)


def followed(job: Job) -> tuple[pl.DataFrame, Constants]:
    """One job, round by round: gaps and bounds by round and node, and the constants they are made of.

    Of a model that walks the bound is the same after every turn. Models that are averaged have one that falls with the
    number of steps; where nodes have different numbers of steps in a round, it is the mean.
    """
    parts = problems(job)
    whole, _ = together(parts)
    roster, rows, walks = job.roster, list[tuple[float | None, ...]](), isinstance(job.protocol, Relay)
    lr = float(roster.optimiser.settings["lr"])
    local = round(float(np.mean([roster.steps(node) for node in range(roster.nodes)])))
    session = Local(workers=1).open()
    try:
        session.begin(job)
        found = constants(parts, _models(Snapshot.read(session.snapshot())).mean(0))
        for number in range(1, roster.rounds + 1):
            session.round(number, False)
            bound = walking_bound(found, lr) if walks else averaging_bound(found, local, number * local)
            now = Snapshot.read(session.snapshot())
            for node, w in enumerate(_models(now)):
                turns = now.counters.get(node, {}).get("turn") if walks else None
                rows.append((number, node, turns, whole.value(w) - found.best, bound))
    finally:
        session.close()
    schema = {name: kind for name, kind in FOUND.items() if name not in ("method", "seed")}
    return pl.DataFrame(rows, schema=schema, orient="row"), found


def _models(state: Snapshot) -> NDArray[np.float64]:
    found: NDArray[np.float64] = state.rows[0].matrix.double().numpy()
    return found

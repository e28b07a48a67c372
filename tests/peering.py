"""Peers in one process: real sockets, keys and TLS on loopback, one event loop."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from coterie.engines.peer import free_ports
from coterie.experiment import Experiment
from coterie.net.desk import Timing
from coterie.net.identity import Home
from coterie.net.peer import Assignment, Running
from coterie.world import build, load_samples


def assignments(experiment: Experiment, folder: Path, seed: int = 0, **changes: Any) -> list[Assignment]:
    """One peer for each node of an experiment of one method, with keys and neighbours."""
    ((method, settings),) = experiment.resolved.items()
    world = build(settings, load_samples(settings), seed)
    names = [f"node-{i}" for i in range(world.job.nodes)]
    homes = [
        Home.create(folder / name, name, f"127.0.0.1:{port}")
        for name, port in zip(names, free_ports(len(names)), strict=True)
    ]
    made = []
    for i, home in enumerate(homes):
        near = sorted({*world.graph.neighbours(i).tolist(), *world.graph.audience(i).tolist()})
        for j in near:
            home.add(homes[j].card)
        numbers = {names[j]: j for j in near}
        made.append(
            replace(
                Assignment(method, settings, seed, world, i, numbers, home, folder / names[i] / "run", Timing()),
                **changes,
            )
        )
    return made


async def together(given: list[Assignment], beside: Callable[[list[Running]], Any] | None = None) -> pl.DataFrame:
    """Run peers side by side; their records. `beside` is a coroutine function that may disturb them."""
    running = [Running(a) for a in given]
    extra = [beside(running)] if beside else []
    found = await asyncio.gather(*(r.go() for r in running), *extra)
    return pl.concat(found[: len(running)]).sort("round", "node")

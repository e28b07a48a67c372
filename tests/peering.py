"""Peers in one process: real sockets, keys and TLS on loopback, one event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from coterie import records
from coterie.config.build import build, load_samples
from coterie.engines.peer import free_ports, met
from coterie.mail.pace import Timing
from coterie.net.identity import Home
from coterie.peers.checkpoint import CHECKPOINT, kept_rows, load_checkpoint
from coterie.peers.runtime import PeerConfig, PeerRuntime
from coterie.runs.experiment import Experiment

TINY: dict[str, Any] = {
    "model": {"name": "mlp", "sizes": [8]},
    "nodes": 3,
    "topology": "complete",
    "rounds": 3,
    "batches": 2,
    "batch_size": 8,
    "total": 120,
    "test_share": 0.2,
}
MODEL = 64 * 8 + 8 + 8 * 10 + 10


def peer_configs(experiment: Experiment, folder: Path, seed: int = 0, **changes: Any) -> list[PeerConfig]:
    """One peer for each node of an experiment of one method, with keys and neighbours."""
    ((method, settings),) = experiment.resolved.items()
    job = build(settings, load_samples(settings), seed)
    names = [f"node-{i}" for i in range(job.roster.nodes)]
    homes = [
        Home.create(folder / name, name, f"127.0.0.1:{port}")
        for name, port in zip(names, free_ports(len(names)), strict=True)
    ]
    made = []
    for i, home in enumerate(homes):
        near = met(job, i)
        for j in near:
            home.add(homes[j].card)
        numbers = {names[j]: j for j in near}
        made.append(
            replace(
                PeerConfig(method, settings, seed, job, i, numbers, home, folder / names[i] / "run", Timing()),
                **changes,
            )
        )
    return made


class OneThread(ThreadPoolExecutor):
    """Where all peers of a process compute in turn: they have PyTorch's generator in common, as real ones have not."""

    def __init__(self) -> None:
        super().__init__(1)

    def shutdown(self, *_: Any, **__: Any) -> None:
        """A peer that ends leaves it to the others."""


async def together(
    given: list[PeerConfig], beside: Callable[[list[PeerRuntime]], Any] | None = None, in_turn: bool = False
) -> pl.DataFrame:
    """Run peers side by side; their records. `beside` is a coroutine function that may disturb them."""
    running = [PeerRuntime(a) for a in given]
    if in_turn:
        worker = OneThread()
        for peer in running:
            peer.worker = worker
    extra = [beside(running)] if beside else []
    found = await asyncio.gather(*(r.go() for r in running), *extra)
    return pl.concat(found[: len(running)]).sort("round", "node")


def given(folder: Path, changes: dict[str, Any] | None = None, **settings: Any) -> list[PeerConfig]:
    """Three peers, each the others' neighbour."""
    return peer_configs(
        Experiment(**{**TINY, **settings}), folder, **{"timing": Timing(deadline=60), **(changes or {})}
    )


def run(scene: Coroutine[Any, Any, Any], seconds: float = 120) -> Any:
    return asyncio.run(asyncio.wait_for(scene, seconds))


async def until(what: Callable[[], Any]) -> None:
    while not what():
        await asyncio.sleep(0.01)


async def cancelled(tasks: list["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def kept(config: PeerConfig) -> tuple[dict[str, str], dict[str, Tensor], pl.DataFrame]:
    return *load_checkpoint(config.folder / CHECKPOINT), kept_rows(config.folder)


UNTIMED = [name for name in records.schema() if not name.endswith("_seconds")]


def equal(ones: list[PeerConfig], others: list[PeerConfig]) -> None:
    """Hold two runs to the same bits."""
    for a, b in zip(ones, others, strict=True):
        (about, state, rows), (about_too, state_too, rows_too) = kept(a), kept(b)
        assert about["round"] == about_too["round"]
        assert state.keys() == state_too.keys()
        for name in state:
            if not name.endswith("_seconds"):
                torch.testing.assert_close(state[name], state_too[name], rtol=0, atol=0, equal_nan=True)
        assert rows.select(UNTIMED).equals(rows_too.select(UNTIMED))

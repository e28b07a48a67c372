"""One exchange between peers against a bare gRPC stream with the same keys and bytes: `python benchmarks/exchange.py`.

A hub and its neighbours live in processes of their own. In one exchange everybody sends its model to all neighbours and
has taken in theirs; the bare stream carries the same bytes both ways over the same kind of channel and drops them.
"""

import argparse
import asyncio
import itertools
import json
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import polars as pl
import torch
import torch.multiprocessing as mp
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
from _setup import Case, world
from coterie import runner
from coterie.engines import World
from coterie.engines._job import Choice
from coterie.engines.peer import make_homes
from coterie.experiment import Experiment
from coterie.net.desk import Timing
from coterie.net.identity import Home, channel, server_credentials
from coterie.net.links import ALIVE
from coterie.net.peer import Assignment, Running
from coterie.net.wire import CHUNK
from coterie.protocols import Place, Receive, Round, Send
from coterie.runner import Silent

MODELS = {"2.3 MB": (512, 256, 128), "50 MB": (4096, 2048, 320)}
COUNTS = (1, 4, 8)


class Exchange:
    """A protocol that sends and receives, and does nothing else."""

    keeps, tags = False, ("model",)

    def round(self, place: Place, rule: Any, start: str) -> Round:
        yield Send(place.audience, "model")
        yield Receive(place.neighbours, "model")


def star(neighbours: int, sizes: tuple[int, ...]) -> World:
    """A hub with neighbours who know nobody else."""
    from dataclasses import replace

    case = Case("", Choice("models", "mlp", {"sizes": sizes}), (784,), neighbours + 1, 16, 1)
    made = world(replace(case, topology=Choice("topologies", "star", {})))
    return replace(made, protocol=Exchange())


def be(node: int, neighbours: int, sizes: tuple[int, ...], home: Path, rounds: int, bare: bool, told: Any) -> None:
    """One process: a peer, or its bare counterpart; tells what the rounds took."""
    torch.set_num_threads(1)
    work = _bare(node, neighbours, sizes, Home(home), rounds) if bare else _peer(node, neighbours, sizes, home, rounds)
    times, before = asyncio.run(work)
    if node == 0:
        after = used()
        told.put((sum(times[1:]) / (len(times) - 1), after[0] - before[0], after[1] - before[1]))


def used() -> tuple[float, float]:
    """Processor seconds and peak memory (MB) of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


async def _peer(node: int, neighbours: int, sizes: tuple[int, ...], home: Path, rounds: int) -> tuple[list[float], Any]:
    where = star(neighbours, sizes)
    near = {f"node-{j}": j for j in ([0] if node else range(1, neighbours + 1))}
    (settings,) = Experiment(rounds=rounds).resolved.values()
    running = Running(
        Assignment("", settings, 0, where, node, near, Home(home), home / "run", Timing(deadline=600), wait=600)
    )
    running.node.work = running._work  # type: ignore[method-assign]
    await running.links.open()
    await running._gather(1)
    times, before = [], used()
    for number in range(1, rounds + 1):
        start = time.perf_counter()
        running.desk.begin(number, near.values())
        await running.links.announce(number)
        await running.node.round(number, running, near.values(), False)
        times.append(time.perf_counter() - start)
    await running.links.announce(rounds, finished=True)
    await running.links.flush(600)
    await asyncio.sleep(1)
    await running.links.close()
    return times, before


async def _bare(node: int, neighbours: int, sizes: tuple[int, ...], home: Home, rounds: int) -> tuple[list[float], Any]:
    """The same bytes to and fro, the next round when all of this one are there: what any such exchange must do."""
    dims = (784, *sizes, 10)
    amount = 4 * sum((a + 1) * b for a, b in itertools.pairwise(dims))
    payload, came = bytes(amount), asyncio.Condition()
    heard: dict[int, int] = {}

    async def take(parts: AsyncIterator[bytes], context: Any) -> bytes:
        number = int.from_bytes(await anext(parts), "little")
        async for _ in parts:
            pass
        async with came:
            heard[number] = heard.get(number, 0) + 1
            came.notify_all()
        return b""

    async def parts(number: int) -> AsyncIterator[bytes]:
        yield number.to_bytes(4, "little")
        for start in range(0, amount, CHUNK):
            yield payload[start : start + CHUNK]

    server = grpc.aio.server(options=[*ALIVE])
    handlers = {"Take": grpc.stream_unary_rpc_method_handler(take)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    server.add_secure_port(home.listen, server_credentials(home))
    await server.start()
    lines = [channel(home, card, ALIVE) for card in home.neighbours.values()]
    for line in lines:
        while line.get_state(try_to_connect=True) != grpc.ChannelConnectivity.READY:
            await asyncio.sleep(0.05)
    times, before = [], used()
    for number in range(1, rounds + 1):
        start = time.perf_counter()
        await asyncio.gather(*(line.stream_unary("/bare/Take")(parts(number)) for line in lines))
        async with came:
            await came.wait_for(lambda number=number: heard.get(number, 0) == len(lines))
        times.append(time.perf_counter() - start)
    await asyncio.sleep(1)
    await server.stop(0.1)
    return times, before


def measured(neighbours: int, sizes: tuple[int, ...], rounds: int, bare: bool) -> tuple[float, float, float]:
    """Mean seconds of an exchange at the hub after the first, its processor seconds, and the memory it needs (MB)."""
    context: Any = mp.get_context("spawn")
    told = context.Queue()
    with tempfile.TemporaryDirectory() as scratch:
        names = [f"node-{i}" for i in range(neighbours + 1)]
        homes = make_homes(Path(scratch), names, star(neighbours, (8,)))
        processes = [
            context.Process(target=be, args=(i, neighbours, sizes, home.path, rounds, bare, told))
            for i, home in enumerate(homes)
        ]
        for process in processes:
            process.start()
        found: tuple[float, float, float] = told.get()
        for process in processes:
            process.join()
    return found


class Clock(Silent):
    """Notes when the first and the last round of a simulation are done."""

    def __init__(self) -> None:
        self.times: dict[int, float] = {}

    def progress(self, method: str, seed: int, round: int, rounds: int, accuracy: float | None) -> None:
        self.times[round] = time.perf_counter()


def overhead(rounds: int, peers: int = 8) -> list[tuple[str, float, float]]:
    """For peers and for the simulator: seconds of a round, and the share of it that is not training."""
    settings: dict[str, Any] = {
        "dataset": "digits",
        "model": {"name": "mlp", "sizes": [512, 256, 128]},
        "nodes": peers,
        "rounds": rounds,
        "epochs": 2,
        "partition": "iid",
        "topology": {"name": "regular", "k": 4},
        "evaluate": (1, rounds),
    }
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        rows = runner.run(Experiment(**settings, engine={"name": "peer"}), Path(scratch) / "up")
        spans = []
        for log in Path(scratch).glob("up/jobs/*/peers/*/log.jsonl"):
            events = [json.loads(line) for line in log.read_text().splitlines()]
            ends = [datetime.fromisoformat(e["time"]).timestamp() for e in events if e["event"] == "round"]
            spans.append(ends[-1] - ends[0])
        wall = max(spans) / (rounds - 1)
        found.append(("peers", wall, 1 - trained(rows) / (rounds - 1) / wall))
    clock, engine = Clock(), {"name": "local", "workers": 2}
    rows = runner.run(Experiment(**settings, engine=engine), display=clock)
    wall = (clock.times[rounds] - clock.times[1]) / (rounds - 1)
    found.append(("simulator", wall, 1 - trained(rows) * peers / 2 / (rounds - 1) / wall))
    return found


def trained(rows: pl.DataFrame) -> float:
    """Seconds that a node spent in training between the first and the last round, on average."""
    means = rows.group_by("round").agg(pl.col("train_seconds").mean()).sort("round")["train_seconds"]
    return float(means[-1] - means[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    table = Table(
        "model", "neighbours", "bare, MB/s", "of it", "goal", "CPU s/GB", "bare CPU", "peak, models",
        title="One exchange of peers / a bare gRPC stream of the same bytes, both ways, mutual TLS",
    )  # fmt: skip
    for label, sizes in MODELS.items():
        dims = (784, *sizes, 10)
        size = 4 * sum((a + 1) * b for a, b in itertools.pairwise(dims)) / 1e6
        for neighbours in COUNTS:
            rounds = given.rounds if size < 10 else max(given.rounds // 2, 4)
            tries = [
                [measured(neighbours, sizes, rounds, bare) for bare in (True, False)] for _ in range(given.repeats)
            ]
            (bare, bare_cpu, _), (ours, cpu, memory) = (min(found) for found in zip(*tries, strict=True))
            moved = 2 * size * neighbours
            row = [
                label, str(neighbours), f"{moved / bare:.0f}", f"{bare / ours:.2f}", "0.70",
                f"{cpu / rounds / moved * 1e3:.1f}", f"{bare_cpu / rounds / moved * 1e3:.1f}", f"{memory / size:.1f}",
            ]  # fmt: skip
            print(*row, sep=" | ", flush=True)  # all of it takes minutes
            table.add_row(*row)
    Console().print(table)
    table = Table("8 nodes, MLP, two cores", "s/round", "not training", title="A round of peers / of the simulator")
    for name, seconds, share in overhead(20):
        table.add_row(name, f"{seconds:.2f}", f"{share:.0%}")
    Console().print(table)


if __name__ == "__main__":
    main()

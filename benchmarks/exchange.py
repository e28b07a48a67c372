"""One exchange between peers against a bare gRPC stream with the same keys and bytes: `python benchmarks/exchange.py`.

A hub and its neighbours live in processes of their own. In one exchange everybody sends its model to all neighbours and
has taken in theirs; the bare stream carries the same bytes both ways over the same kind of channel and drops them. The
same processes do both in turns, so that whatever else the machine does falls on both.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
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
from _setup import Case, job
from coterie.engines.peer import make_homes
from coterie.job import Job
from coterie.mail.pace import Timing
from coterie.net.contacts import ALIVE
from coterie.net.identity import Home
from coterie.net.tls import channel, server_credentials
from coterie.net.wire import CHUNK
from coterie.parts import Choice
from coterie.peers.runtime import PeerConfig, PeerRuntime
from coterie.protocols import Place, Protocol, Receive, Round, Send
from coterie.records import Event
from coterie.runs import runner
from coterie.runs.experiment import Experiment

MODELS = {"2.3 MB": (512, 256, 128), "50 MB": (4096, 2048, 320)}
COUNTS = (1, 4, 8)
KEPT = bool(os.environ.get("KEPT"))
"""Whether the bare stream keeps its calls open too; in the environment, where the processes find it."""


@dataclass(frozen=True)
class Exchange(Protocol):
    """A protocol that sends and receives, and does nothing else."""

    keeps = False

    @property
    def tags(self) -> tuple[str, ...]:
        return ("model",)

    def round(self, place: Place, rule: Any, merge_first: bool) -> Round:
        yield Send(place.audience, "model")
        yield Receive(place.neighbours, "model")


def star(neighbours: int, sizes: tuple[int, ...]) -> Job:
    """A hub with neighbours who know nobody else."""
    case = Case("", Choice("models", "mlp", {"sizes": sizes}), (784,), neighbours + 1, 16, 1)
    made = job(replace(case, topology=Choice("topologies", "star", {})))
    return replace(made, protocol=Exchange())


@dataclass(frozen=True)
class Reading:
    """What one process needed for an exchange: seconds, processor seconds, and memory (MB) above what it had before."""

    seconds: float
    cpu: float
    memory: float


def cpu() -> float:
    """Processor seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def memory(line: str) -> float:
    """MB of this process now (VmRSS), or at most since the peak was last forgotten (VmHWM), without files' pages.

    Those are the code of libraries, which is read when it is first used.
    """
    text = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return (int(text[line].split()[0]) - int(text["RssFile"].split()[0])) * 1024 / 1e6


class Peer:
    """A peer that does nothing but exchange."""

    def __init__(self, node: int, neighbours: int, sizes: tuple[int, ...], home: Path) -> None:
        self.near = {f"node-{j}": j for j in ([0] if node else range(1, neighbours + 1))}
        (settings,) = Experiment(rounds=10**6).resolved.values()
        where, timing = star(neighbours, sizes), Timing(deadline=600)
        self.running = PeerRuntime(
            PeerConfig("", settings, 0, where, node, self.near, Home(home), home / "run", timing, wait=600)
        )
        self.number = 0

    async def open(self) -> None:
        await self.running.links.open()
        await self.running.gather(1)

    async def exchange(self) -> None:
        self.number += 1
        self.running.mailroom.begin(self.number, self.near.values())
        await self.running.links.announce(self.number)
        await self.running.node.round(self.number, self.running, self.near.values(), False)

    async def settle(self) -> None:
        await self.running.links.flush(600)

    async def close(self) -> None:
        await self.running.links.close()


class Bare:
    """The same bytes to and fro, the next exchange when all of this one are there: what any exchange must do."""

    calls: Sequence[Any] = ()
    """Kept open, if so told; else each exchange has calls of its own."""

    def __init__(self, home: Path, amount: int) -> None:
        self.home, self.amount = Home(home), amount
        self.payload = os.urandom(amount)  # not zeros, which lie in one page of memory that is always in the cache
        self.came, self.heard, self.number = asyncio.Condition(), Counter[int](), 0

    async def open(self) -> None:
        self.server = grpc.aio.server(options=[*ALIVE])
        handlers = {
            "Take": grpc.stream_unary_rpc_method_handler(self._take),
            "Keep": grpc.stream_stream_rpc_method_handler(self._keep),
        }
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
        self.server.add_secure_port(self.home.listen, server_credentials(self.home))
        await self.server.start()
        self.lines = [channel(self.home, card, ALIVE) for card in self.home.neighbours.values()]
        for line in self.lines:
            while line.get_state(try_to_connect=True) != grpc.ChannelConnectivity.READY:
                await asyncio.sleep(0.05)

    async def _take(self, parts: AsyncIterator[bytes], context: Any) -> bytes:
        number = int.from_bytes(await anext(parts), "little")
        async for _ in parts:
            pass
        await self._count(number)
        return b""

    async def _keep(self, parts: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for first in parts:
            left = self.amount
            while left > 0:
                left -= len(await anext(parts))
            await self._count(int.from_bytes(first, "little"))
            yield b""

    async def _count(self, number: int) -> None:
        async with self.came:
            self.heard[number] += 1
            self.came.notify_all()

    async def _parts(self, number: int) -> AsyncIterator[bytes]:
        yield number.to_bytes(4, "little")
        for start in range(0, self.amount, CHUNK):
            yield self.payload[start : start + CHUNK]

    async def exchange(self) -> None:
        self.number += 1
        if KEPT:
            self.calls = self.calls or [line.stream_stream("/bare/Keep")() for line in self.lines]
            await asyncio.gather(*map(self._bring, self.calls))
        else:
            await asyncio.gather(*(line.stream_unary("/bare/Take")(self._parts(self.number)) for line in self.lines))
        async with self.came:
            await self.came.wait_for(lambda: self.heard[self.number] == len(self.lines))

    async def _bring(self, call: Any) -> None:
        async for part in self._parts(self.number):
            await call.write(part)
        await call.read()

    async def settle(self) -> None:
        pass

    async def close(self) -> None:
        await self.server.stop(0.1)


def be(
    node: int,
    neighbours: int,
    sizes: tuple[int, ...],
    homes: tuple[Path, Path],
    rounds: int,
    repeats: int,
    meet: Any,
    told: Any,
) -> None:
    """One process: the bare exchange and the peer's in turns; tells what they took. The first turn warms up."""
    torch.set_num_threads(1)
    found = asyncio.run(_turns(node, neighbours, sizes, homes, rounds, repeats, meet))
    told.put((node, found))


async def _turns(
    node: int, neighbours: int, sizes: tuple[int, ...], homes: tuple[Path, Path], rounds: int, repeats: int, meet: Any
) -> list[tuple[Reading, Reading]]:
    sides: tuple[Bare | Peer, ...] = (Bare(homes[0], model_bytes(sizes)), Peer(node, neighbours, sizes, homes[1]))
    for side in sides:
        await side.open()
    base, found = memory("VmRSS"), []
    for _ in range(1 + repeats):
        turn = []
        for side in sides:
            await asyncio.to_thread(meet.wait)
            Path("/proc/self/clear_refs").write_text("5")  # forget the peak
            start, before = time.perf_counter(), cpu()
            for _ in range(rounds):
                await side.exchange()
            took = time.perf_counter() - start
            await side.settle()
            await asyncio.to_thread(meet.wait)
            turn.append(Reading(took / rounds, (cpu() - before) / rounds, memory("VmHWM") - base))
        found.append((turn[0], turn[1]))
    for side in sides:
        await side.close()
    return found


def model_bytes(sizes: tuple[int, ...]) -> int:
    """Bytes of a model with layers of these sizes."""
    return 4 * sum((a + 1) * b for a, b in itertools.pairwise((784, *sizes, 10)))


def measured(neighbours: int, sizes: tuple[int, ...], rounds: int, repeats: int) -> dict[int, list[Any]]:
    """The readings of all processes, the hub's number being 0."""
    context: Any = mp.get_context("spawn")
    told, meet, names = context.Queue(), context.Barrier(neighbours + 1), [f"node-{i}" for i in range(neighbours + 1)]
    with tempfile.TemporaryDirectory() as scratch:
        small = star(neighbours, (8,))
        bare, ours = (make_homes(Path(scratch) / kind, names, small) for kind in ("bare", "ours"))
        processes = [
            context.Process(
                target=be, args=(i, neighbours, sizes, (bare[i].path, ours[i].path), rounds, repeats, meet, told)
            )
            for i in range(neighbours + 1)
        ]
        for process in processes:
            process.start()
        found = dict(told.get() for _ in processes)
        for process in processes:
            process.join()
    return found


def compared(label: str, neighbours: int, rounds: int, repeats: int) -> list[str]:
    """A line of the table: medians over the turns. Processor seconds are those of all processes together."""
    sizes = MODELS[label]
    found, size = measured(neighbours, sizes, rounds, repeats), model_bytes(sizes) / 1e6
    hub, moved = found[0][1:], 2 * size * neighbours
    ratios = [bare.seconds / ours.seconds for bare, ours in hub]
    spent = [
        [sum(turns[t][side].cpu for turns in found.values()) / moved * 1e3 for t in range(1, 1 + repeats)]
        for side in (0, 1)
    ]
    work = [a / b for a, b in zip(*spent, strict=True)]
    # What peers hold for later is in the bare readings too, but for the first.
    peak = [found[0][0][0].memory / size, max(ours.memory for _, ours in found[0]) / size]
    speed = statistics.median(moved / bare.seconds for bare, _ in hub)
    return [
        label, str(neighbours), f"{speed:.0f}",
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})",
        f"{statistics.median(spent[1]):.2f}", f"{statistics.median(spent[0]):.2f}", f"{statistics.median(work):.2f}",
        f"{peak[1]:.1f}", f"{peak[0]:.1f}",
    ]  # fmt: skip


class Clock:
    """Notes when the rounds of a simulation are done, and what processor time peers have used in each of theirs."""

    def __init__(self) -> None:
        self.times: dict[int, float] = {}
        self.spent: dict[int, list[tuple[int, float]]] = {}

    def event(self, event: Event) -> None:
        if event.name == "round":
            self.times[event["round"]] = time.perf_counter()
        for said in event.get("statuses", ()):
            with contextlib.suppress(OSError):  # it has just ended
                if said is not None and said["round"]:
                    ticks = Path(f"/proc/{said['pid']}/stat").read_text().rpartition(")")[2].split()[11:13]
                    used = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
                    self.spent.setdefault(said["pid"], []).append((said["round"], used))

    @property
    def cpu(self) -> float:
        """Processor seconds of all peers in a round."""
        ends = [(seen[0], seen[-1]) for seen in self.spent.values() if seen[-1][0] > seen[0][0]]
        return sum((last[1] - first[1]) / (last[0] - first[0]) for first, last in ends)


def overhead(rounds: int, peers: int = 8) -> list[tuple[str, float, float, float]]:
    """For peers and the simulator: seconds of a round, its share that is not training, and processor seconds in it.

    Those of the simulator are what its two processes trained, all nodes together, since it waits for nobody.
    """
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
        watching = Clock()
        rows = runner.run(Experiment(**settings, engine={"name": "peer"}), Path(scratch) / "up", [watching]).records
        spans = []
        for log in Path(scratch).glob("up/jobs/*/peers/*/log.jsonl"):
            events = [json.loads(line) for line in log.read_text().splitlines()]
            ends = [datetime.fromisoformat(e["time"]).timestamp() for e in events if e["event"] == "round"]
            spans.append(ends[-1] - ends[0])
        wall = max(spans) / (rounds - 1)
        found.append(("peers", wall, 1 - trained(rows) / (rounds - 1) / wall, watching.cpu))
    clock, engine = Clock(), {"name": "local", "workers": 2}
    rows = runner.run(Experiment(**settings, engine=engine), observers=[clock]).records
    wall = (clock.times[rounds] - clock.times[1]) / (rounds - 1)
    work = trained(rows) * peers / (rounds - 1)
    found.append(("simulator", wall, 1 - work / 2 / wall, work))
    return found


def trained(rows: pl.DataFrame) -> float:
    """Seconds that a node spent in training between the first and the last round, on average."""
    means = rows.group_by("round").agg(pl.col("train_seconds").mean()).sort("round")["train_seconds"]
    return float(means[-1] - means[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="exchanges in a turn")
    parser.add_argument("--repeats", type=int, default=7, help="turns")
    parser.add_argument("--kept", action="store_true", help="let the bare stream keep its calls open, as peers do")
    parser.add_argument("--only", help="one of the models, such as '50 MB', or 'up'")
    parser.add_argument("--neighbours", type=int, nargs="*", default=COUNTS)
    given = parser.parse_args()
    if given.kept:
        os.environ["KEPT"] = "yes"
    table = Table(
        "model", "neighbours", "bare, MB/s", "of it", "CPU s/GB", "bare", "bare/ours", "peak, models", "bare",
        title="One exchange of peers / a bare gRPC stream of the same bytes, both ways, mutual TLS (goal 0.7)",
    )  # fmt: skip
    for label in MODELS:
        for neighbours in given.neighbours if given.only in (None, label) else ():
            row = compared(label, neighbours, given.rounds, given.repeats)
            print(*row, sep=" | ", flush=True)  # all of it takes minutes
            table.add_row(*row)
    Console().print(table)
    if given.only in (None, "up"):
        title = "A round of peers / of the simulator"
        table = Table("8 nodes, MLP, two cores", "s/round", "not training", "CPU s/round", title=title)
        for name, seconds, share, spent in overhead(60):
            table.add_row(name, f"{seconds:.2f}", f"{share:.0%}", f"{spent:.2f}")
        Console().print(table)


if __name__ == "__main__":
    main()

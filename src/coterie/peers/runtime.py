"""One peer: a node with its model, its wires, its records and its checkpoint, until all rounds are done."""

import asyncio
import contextlib
import io
import json
import logging
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from coterie import files, records
from coterie.config.build import gossip
from coterie.config.configuration import Method
from coterie.errors import ConfigError, PeerError, RunError
from coterie.job import Job, Ledger
from coterie.mail.desk import Desk, Timing, happens
from coterie.net import logs, status
from coterie.net.agreement import PHASE, Agreement
from coterie.net.calls import Calls
from coterie.net.identity import Home
from coterie.net.logs import say
from coterie.node.buffers import BufferPool
from coterie.node.description import Description
from coterie.node.gossip import Census, counting, own_estimate
from coterie.node.node import peers, restore, snapshot
from coterie.node.sums import Packet
from coterie.peers.agreement import code, shared, vocabulary
from coterie.protocols import Heard
from coterie.records.models import described

CHECKPOINT = "state.safetensors"
MEASURES = "measures"
"""The checkpoint's tensor with the measures so far: the bytes of a Parquet file."""
LINGER = 15.0
"""Seconds, at least, that a peer which has finished stays for neighbours who have not."""
SUMS = 2
"""Pieces of memory for sums that are kept between rounds: of the round under way, and of the next."""
WHOLE = "What was written before is whole: mend it, then start the peer again."
LATE = 1.5
"""Seconds that a peer waits for the rest of its neighbours once it sees that the others have gone on without it."""


@dataclass(frozen=True)
class Assignment:
    """What one peer is to do."""

    method: str
    settings: Method
    """One method, with every setting written out."""
    seed: int
    job: Job
    node: int
    numbers: dict[str, int]
    """Neighbours' names -> their numbers in the world's graph."""
    home: Home
    folder: Path
    """Where checkpoint, records, status and log are."""
    timing: Timing
    half: bool = False
    wait: float = 60.0
    threads: int = 1
    status_host: str = "127.0.0.1"
    status_port: int = 0
    verbose: bool = False
    screen: bool = True
    """Whether warnings go to stderr; they are in the log in any case."""
    introduced: bool = False
    """Whether the neighbours are all those whose cards lie in `home`, now and later."""
    phase: str = "training"
    """What peers do together now; who is in another phase is not there yet, or has gone on."""


class Introduced(Exception):
    """Neighbours have come or gone, or have newer cards: go on from the checkpoint with them."""


class Stopped(Exception):
    """The peer was asked to stop; its checkpoint stands."""


def run(assignment: Assignment) -> pl.DataFrame:
    """Be a peer until all rounds are done; gives this peer's records."""
    asking = gossip(assignment.settings)
    if asking and not (assignment.folder / CHECKPOINT).exists():
        assignment = asyncio.run(asked(assignment, **asking))
    return asyncio.run(Running(assignment).go())


async def asked(a: Assignment, samples: int, rounds: int) -> Assignment:
    """The same with this peer's own estimate of the gain, for which it asks around first, as peers do in a run."""
    job = counting(a.job, samples)
    told = {"rounds": rounds, "rule": {"name": "census", "samples": samples}, "protocol": {"name": "gossip"}}
    before = replace(
        a,
        method="census",
        settings=a.settings.model_copy(update=told),
        job=job,
        folder=a.folder / "census",
        timing=replace(a.timing, mode="sync"),
        phase="census",
    )
    running = Running(before)
    await running.go()
    assert isinstance(job.rule, Census)
    gain = own_estimate(job.rule, running.node.state["minima"])
    say(running.log, logging.INFO, "gain", estimate=gain)
    origin = replace(a.job.origin, gain=gain) if a.job.origin else None
    return replace(a, job=replace(a.job, gains=np.full(a.job.roster.nodes, gain), origin=origin))


class Running:
    """A peer at work."""

    def __init__(self, assignment: Assignment) -> None:
        self.a = a = assignment
        a.folder.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(a.threads)
        self.log = logs.setup(a.folder, a.home.name, a.verbose, a.screen)
        self.status = status.Status(a.home.name, method=a.method, seed=a.seed, rounds=a.settings.rounds)
        self.worker = ThreadPoolExecutor(1, "training", torch.set_num_threads, (a.threads,))
        self.ledger = Ledger(a.job.roster.nodes)
        self.node = peers(a.job, np.array([a.node]), self.ledger)[a.node]
        self.node.work = self._work  # type: ignore[method-assign]
        self.node.pool = BufferPool(SUMS)
        rule, protocol = a.job.rule, a.job.protocol
        keep = protocol.keeps or rule.answers
        if a.timing.mode == "async" and (rule.answers or protocol.says(a.job.samples.shape, a.job.samples.classes)):
            cure = "Choose another method, or --engine.mode sync."
            raise ConfigError("what answers each neighbour or says several things cannot run asynchronously", cure=cure)
        if keep or rule.raw:
            say(self.log, logging.INFO, "this rule or protocol keeps every neighbour's model", models=len(a.numbers))
        spool = a.folder / "spool"
        self.desk = Desk(self.node, a.numbers.values(), a.timing, a.settings.rounds, spool, keep, a.half)
        self.desk.lacking = self._lacking
        self.desk.here = lambda neighbour, round: bool(a.job.members(round)[neighbour])
        codes = {code(t): signature for signature, t in self.node.classmates.items()}
        common = {PHASE: a.phase, "seed": a.seed, "engine.mode": a.timing.mode, "engine.half": a.half}
        self.agreement = Agreement(shared(a.settings, **common), codes)
        expected = vocabulary(a.job, self.node, a.settings.rounds, a.half)
        self.links = Calls(a.home, a.numbers, self.desk, self.agreement, expected, self.status, self.log)
        self.rows = records.empty()
        self.measures = pl.DataFrame(schema=records.MEASURES) if a.job.measures else None

    async def go(self) -> pl.DataFrame:
        """Begin or go on, to the end or until asked to stop."""
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread: whoever is there decides
                loop.add_signal_handler(number, stop.set)
        for warning in self.a.home.check():
            say(self.log, logging.WARNING, warning)
        page = await status.serve(self.status, self.a.status_host, self.a.status_port)
        status.announce(self.a.folder, page.port, page.host)
        working = asyncio.create_task(self._all())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                self.status.state = "stopped"
                raise Stopped
            return await working
        except (Stopped, Introduced, asyncio.CancelledError):
            raise
        except Exception as error:
            self.status.add_error(error)
            say(self.log, logging.ERROR, logs.END, error=error)
            raise
        finally:
            for task in (working, stopping):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await working
            await self.links.close()
            self.worker.shutdown(wait=False, cancel_futures=True)
            self.desk.close()
            page.close()

    async def _all(self) -> pl.DataFrame:
        a, rounds = self.a, self.a.settings.rounds
        done = await self._work(self._restore)
        self.desk.resume(done)
        self.status.round = done
        await self.links.open()
        if done < rounds:
            await self._gather(done + 1)
        evaluated = set(a.settings.evaluated())
        number = done
        while number < rounds:
            await self._look_around()
            # Who is not there yet, or no more, has no round of its own to go by: it keeps pace with the others.
            was, is_ = self._present(number), self._present(number + 1)
            await self.desk.abreast(number + 1, sits=not is_, patient=not (was and is_))
            # An asynchronous peer goes at its own pace, once it is back where the others are.
            front = self.desk.front() if a.timing.mode == "sync" or number == done else 0
            number = min(max(number + 1, front), rounds)
            if self._present(number):
                await self._round(number, number in evaluated)
            else:
                await self._sit_out(number)
        self.status.state = "finished"
        await self.links.announce(rounds, finished=True)
        await self._work(self._write_records)
        await self.links.flush(LINGER)
        await self._linger(max(LINGER, 2 * self.desk.deadline))
        say(self.log, logging.INFO, "finished", rounds=rounds, accuracy=self.status.accuracy)
        return self.rows

    async def _linger(self, seconds: float) -> None:
        """Stay for those who are behind: they may catch up with the last exchange, and end as the others do."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self.desk.company and loop.time() < end:
            self.desk.changed.clear()
            await happens(self.desk.changed, 0.2)

    async def _gather(self, number: int) -> None:
        """Wait for the neighbours before the first round of this process; not for long if the others are under way."""
        self.status.state = "waiting"
        loop = asyncio.get_running_loop()
        start = loop.time()
        while not all(n.alive for n in self.desk.neighbours.values()):
            await self._look_around()
            patience = min(LATE, self.a.wait) if self.desk.front() > number else self.a.wait
            if loop.time() - start > patience:
                break
            self.desk.changed.clear()
            await happens(self.desk.changed, 0.2)

    def _present(self, number: int) -> bool:
        return bool(self.a.job.members(number)[self.a.node])

    async def _sit_out(self, number: int) -> None:
        """A round without this peer: it neither trains nor speaks, and its neighbours know."""
        self.desk.begin(number, ())
        self.status.round, self.status.state = number, "away"
        await self.links.announce(number)

    async def _look_around(self) -> None:
        """See whether there are other cards than those we began with."""
        home = self.a.home
        if not self.a.introduced or home.stamp == self._stamp:
            return
        try:
            self._stamp, cards = home.stamp, home.neighbours
        except (PeerError, OSError) as error:
            say(self.log, logging.WARNING, "cannot use the new cards", error=error)
            return
        if cards != self.links.contacts.cards:
            say(self.log, logging.INFO, "other neighbours", now=sorted(cards))
            await self.links.flush(LINGER)
            raise Introduced

    _stamp: dict[str, int] | None = None

    async def _round(self, number: int, evaluate: bool) -> None:
        a, node = self.a, self.a.node
        graph, skipped = a.job.graph, number - self.status.round - 1
        if skipped > 0:
            say(self.log, logging.INFO, "catching up", round=number, skipped=skipped)
        active = a.job.faults.active(graph, number)
        self.desk.begin(number, graph.sources[active & (graph.targets == node)].tolist())
        self.status.round, self.status.state = number, "training"
        self.status.deadline_seconds = self.desk.deadline
        await self.links.announce(number)
        reachable = graph.targets[active & (graph.sources == node)].tolist()
        await self.node.round(number, self, reachable, evaluate)
        if a.timing.mode == "async":
            behind = self.desk.staleness
            self.ledger.latest["staleness"][node] = np.mean(behind) if behind else np.nan
        if evaluate:
            await self._work(lambda: self.node.score(merged=True))
            self._record(number)
        self.desk.end()
        self.status.round_seconds = self.desk.round_seconds
        try:
            await self._work(lambda: self._save(number))
            self.status.checkpoints += 1
        except RunError as error:  # the one before is whole: go on, and try again after the next round
            self.status.checkpoint_errors += 1
            self.status.add_error(error)
            say(self.log, logging.ERROR, "no checkpoint", round=number, error=error)
            if number == a.settings.rounds:
                raise
        level = logging.INFO if evaluate else logging.DEBUG
        say(self.log, level, "round", round=number, accuracy=self.status.accuracy, deadline=self.desk.deadline)

    def _record(self, number: int) -> None:
        fresh = records.rows(self.a.method, self.a.seed, number, self.ledger, self.a.job.members(number))
        self.rows = pl.concat([self.rows, fresh.filter(pl.col("node") == self.a.node)])
        if self.measures is not None:
            self.measures = pl.concat(
                [self.measures, records.measured(self.a.method, self.a.seed, number, self.ledger)]
            )
        accuracy = float(self.ledger.latest["test_accuracy"][self.a.node])
        self.status.accuracy = accuracy if np.isfinite(accuracy) else None

    async def _work(self, what: Callable[[], Any]) -> Any:
        """Compute beside the event loop: neighbours are served meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self.worker, what)

    # The node's transport.

    def send(self, sender: int, to: list[int], tag: str, packet: Packet | None) -> None:
        """Hand a message to the wires, unless an injected fault keeps it: then the receiver knows that by itself."""
        if reached := [each for each in to if each in self.node.reachable]:
            self.links.send(reached, tag, packet)

    async def receive(self, node: int, senders: list[int], tag: str) -> Heard:
        """What has come, by the rules of time."""
        self.status.state = "exchanging"
        return await self.desk.receive(senders, tag)

    def _lacking(self, heard: int, quorum: int) -> None:
        self.status.state = "waiting"
        say(self.log, logging.WARNING, "waiting for a quorum", models=heard, quorum=quorum)

    # Disk.

    @property
    def _file(self) -> Path:
        return self.a.folder / CHECKPOINT

    def _save(self, number: int) -> None:
        about = {
            "round": str(number),
            "identity": self._identity,
            "rows": self.rows.write_json(),
            "method": self.a.method,
            "pace": json.dumps(self.desk.pace),
            **described({self.node.trainer.group: self._described}),
        }
        state = snapshot([self.node])
        if self.measures is not None:
            state[MEASURES] = _packed(self.measures)
        with files.disk(self.a.folder, WHOLE):
            files.write(self._file, save(state, about))

    @property
    def _described(self) -> Description:
        trainer, samples = self.node.trainer, self.a.job.samples
        choice = self.a.job.roster.models[trainer.group]
        return Description.of(trainer.architecture, choice, samples.shape, samples.classes)

    @property
    def _identity(self) -> str:
        return f"{self.a.home.name} {self.agreement.digest}"

    def _restore(self) -> int:
        """The round of the checkpoint, 0 if there is none."""
        if not self._file.exists():
            if self._present(0):
                self.node.score()
                self._record(0)
            return 0
        about, state, self.rows = load_checkpoint(self._file)
        if about["identity"] != self._identity:
            raise PeerError(
                f"{self._file} is of another configuration, or another peer's",
                cure="Go on with the configuration it began with, or remove the file to begin again.",
            )
        if self.measures is not None and MEASURES in state:
            self.measures = _unpacked(state[MEASURES])
        restore([self.node], state)
        self.desk.pace = json.loads(about.get("pace", "[[], []]"))
        accuracy = float(self.ledger.latest["test_accuracy"][self.a.node])
        self.status.accuracy = accuracy if np.isfinite(accuracy) else None
        say(self.log, logging.INFO, "going on", round=int(about["round"]))
        return int(about["round"])

    def _write_records(self) -> None:
        with files.disk(self.a.folder, WHOLE):
            if self.measures is not None:
                records.write_frame(self.a.folder / records.MEASURED, self.measures)
            records.write_frame(self.a.folder / "records.parquet", self.rows)


def load_checkpoint(path: Path) -> tuple[dict[str, str], dict[str, Tensor], pl.DataFrame]:
    """What a checkpoint says of itself, its tensors, and the records so far."""
    with files.undamaged(path, "Remove it: the peer then begins again with its first round."):
        with safe_open(path, "pt") as file:
            about: dict[str, str] = file.metadata()
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        rows = pl.read_json(about["rows"].encode(), schema=records.SCHEMA)
        int(about["round"]), about["identity"]
    return about, state, rows


def kept_rows(folder: Path) -> pl.DataFrame:
    """The records of a peer that has not finished, as far as its checkpoint goes."""
    path = folder / CHECKPOINT
    return load_checkpoint(path)[2] if path.exists() else records.empty()


def kept_measures(folder: Path) -> pl.DataFrame | None:
    """The measures of a peer, as far as its checkpoint goes if it has not finished; None if it was to take none."""
    finished, path = folder / records.MEASURED, folder / CHECKPOINT
    if finished.is_file():
        return pl.read_parquet(finished)
    state = load_checkpoint(path)[1] if path.exists() else {}
    return _unpacked(state[MEASURES]) if MEASURES in state else None


def _packed(frame: pl.DataFrame) -> Tensor:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def _unpacked(packed: Tensor) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(packed.numpy().tobytes()))

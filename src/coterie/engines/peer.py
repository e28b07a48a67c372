"""Nodes as processes of their own on this machine, which talk over real sockets with nobody in the middle."""

import contextlib
import os
import random
import shutil
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl

from coterie import processes, records
from coterie.config.objects import names
from coterie.engines._need import Need, alone_need
from coterie.engines._session import Engine, JobRun, Outcome, Session
from coterie.errors import ConfigError, CoterieError, DivergedError, RunError, in_words
from coterie.job import Job
from coterie.node.numbers import rounds_before
from coterie.peers.settings import PeerSettings
from coterie.records.journal import Follower

if TYPE_CHECKING:
    from coterie.net.identity import Home
    from coterie.peers.runtime import PeerConfig

STOPPED, UNFIT, DIVERGED = 3, 2, 4
"""How a peer's process ends, other than well."""
FAILURE = "failure.txt"
"""Where it says why."""
POLL = 0.25
SHOW = 1.0
STEADY = 10.0
"""A process that has lived so many seconds is started again at once when it dies."""
FIRST_REST, LONGEST_REST = 0.5, 30.0


@dataclass(frozen=True)
class Peer(PeerSettings, Engine):
    """Run every node as a process of its own, over gRPC with mutual TLS: what real machines do, on one.

    `sync` merges when all neighbours at work have sent their models of the round, or at the deadline: `deadline`
    seconds at first, later `stretch` times what rounds have taken; a merge still waits for `quorum` models. `async`
    merges whatever is newest, each model's weight times `discount` for every round that it is behind. `half` sends
    bfloat16. A peer waits `wait` seconds for its neighbours before it begins. One that dies is started again, at most
    `restarts` times, and after a pause that grows if it dies again soon. Models with a tensor `limit` times as large as
    one's own are refused, ten times that in the first ten rounds; 0 takes any. Between machines of their own, where
    data sizes are what neighbours say, none weighs more than this `share` of an average. Each computes on `device`.
    """

    def open(self) -> "Fleet":
        """Start with no processes."""
        return Fleet(self)


@dataclass
class _Process:
    """A peer as its keeper sees it."""

    name: str
    folder: Path
    start: Callable[[], Any]
    process: Any = None
    deaths: int = 0
    hasty: int = 0
    """Deaths in a row that came soon after the start."""
    started: float = 0.0
    again: float = 0.0
    """When it is to be started, while there is no process."""
    finished: bool = False

    def begin(self) -> None:
        """Start the process."""
        self.process, self.started = self.start(), time.monotonic()

    def why(self, code: int | None) -> str:
        """Why the process ended, as it has written down itself if it could."""
        try:
            return (self.folder / FAILURE).read_text()
        except OSError:
            return _how(code)

    def rest(self) -> float:
        """Seconds until the next start: none after a while of work, more and more for who dies as soon as it is up."""
        self.hasty = self.hasty + 1 if time.monotonic() - self.started < STEADY else 0
        pause = min(FIRST_REST * 2 ** (self.hasty - 1), LONGEST_REST) if self.hasty else 0.0
        self.process, self.again = None, time.monotonic() + pause
        return pause


class Fleet(Session):
    """Keeps the processes of one job at a time: starts them, watches them, starts again what dies."""

    estimates: ClassVar[bool] = True

    def __init__(self, engine: Peer) -> None:
        self.engine = engine
        self.keys: Path | None = None
        """Where the peers of the present job have their homes."""
        self.crew: list[_Process] = []

    def need(self, job: Job) -> Need:
        return alone_need(job, processes=job.roster.nodes)

    def choose(self, job: Job, times: int = 1) -> dict[str, Any]:
        return {"processes": job.roster.nodes}

    def run(self, task: JobRun) -> Outcome:
        """Run a job to its end from wherever its peers are: they keep checkpoints and journals of their own."""
        nodes, rounds = task.job.roster.nodes, task.settings.rounds
        if given := [name.rpartition(":")[2] for _, name in names(task.experiment.model_dump())]:
            cure = "Put it into a file and name it, such as mine.py:Median, or take another engine."
            raise ConfigError(f"{given[0]} is a Python object, which peers cannot read", cure=cure)
        task.channel.sight = records.Sight(self.kept)
        cycles = task.job.protocol.cycles(rounds)
        task.channel.tell("begin", round=0, rounds=rounds, nodes=nodes, **({"cycles": cycles} if cycles else {}))
        with tempfile.TemporaryDirectory() as scratch:
            config = Path(scratch) / "config.toml"
            config.write_text(records.frozen(task.experiment))
            there = task.folder.job(task.method, task.seed) if task.folder else Path(scratch)
            try:
                self.prepare(config, task.method, task.seed, task.job, there / "peers")
                task.prepared()
                self._watch(task)
            except (KeyboardInterrupt, CoterieError):
                if task.folder:
                    task.folder.keep_rows(task.method, task.seed, self.kept(), self.measures())
                raise
            found = [records.read_frame(p.folder / "records.parquet") for p in self.crew]
            rows = pl.concat(found).sort("round", "node")
            task.channel.sight = records.Sight(lambda: rows)
            task.channel.live("evaluation", round=rounds, **records.as_lists(rows.filter(pl.col("round") == rounds)))
            return Outcome(rows, self.measures())

    def _watch(self, task: JobRun) -> None:
        """Look after the peers until all have finished, and tell how they are."""
        from coterie.net import status
        from coterie.net.logs import Tail

        logs, journals = [Tail(p.folder) for p in self.crew], [Follower(p.folder) for p in self.crew]
        names, shown = [p.name for p in self.crew], 0.0

        def warn(text: str) -> None:
            task.channel.tell("warning", text=text)

        def tell() -> None:
            for event in (event for journal in journals for event in journal.fresh()):
                task.channel.relay(event)
            for line in (line for log in logs for line in log.warnings()):
                warn(line)

        try:
            with ThreadPoolExecutor(len(self.crew)) as readers:
                while not all(p.finished for p in self.crew):
                    if task.stopping():
                        raise KeyboardInterrupt
                    if time.monotonic() - shown > SHOW:
                        statuses = list(readers.map(lambda p: status.read(p.folder), self.crew))
                        task.channel.live("peers", names=names, statuses=statuses)
                        tell()
                        shown = time.monotonic()
                    time.sleep(POLL)
                    if not task.stopping():  # Ctrl-C reaches the peers too: they must not be started again
                        for peer in self.crew:
                            self._look_after(peer, warn)
        finally:
            self.stop()
            tell()

    def kept(self) -> pl.DataFrame:
        """What there is of the records of a job that was broken off."""
        from coterie.peers.checkpoint import kept_rows
        from coterie.records import together

        return together(kept_rows(p.folder) for p in self.crew).sort("round", "node")

    def measures(self) -> pl.DataFrame | None:
        """What the peers have measured so far, if they were asked to."""
        from coterie.peers.checkpoint import kept_measures

        found = [m for p in self.crew if (m := kept_measures(p.folder)) is not None]
        return pl.concat(found).sort("round", "node", maintain_order=True) if found else None

    def prepare(self, config: Path, method: str, seed: int, job: Job, folder: Path) -> None:
        """New keys and ports for every start; models and records stay where they were."""
        self.keys = Path(tempfile.mkdtemp(prefix="coterie-keys-"))
        count = job.roster.nodes
        names = [f"node-{i:0{len(str(count - 1))}d}" for i in range(count)]
        homes = make_homes(self.keys, names, job)
        self.crew = []
        for i, name in enumerate(names):
            own = folder / name
            own.mkdir(parents=True, exist_ok=True)
            args = (config, method, seed, i, names, homes[i].path, own)
            self.crew.append(_Process(name, own, self.starter(*args)))
        for peer in self.crew:
            peer.begin()

    def starter(self, *args: Any) -> Callable[[], Any]:
        """What starts a node's process, given the arguments of `peer_config`; tests let others play some nodes."""
        return process(live, *args)

    def _look_after(self, peer: _Process, warn: Callable[[str], None]) -> None:
        if peer.process is None:
            if time.monotonic() >= peer.again:
                peer.begin()
            return
        if peer.finished or peer.process.is_alive():
            return
        code = peer.process.exitcode
        peer.finished = code == 0
        if code in (UNFIT, DIVERGED):
            what = peer.why(code)
            raise DivergedError(what) if code == DIVERGED else RunError(f"{peer.name}: {what}")
        if peer.finished:
            return
        peer.deaths += 1
        why = peer.why(code).rpartition("\n")[2] if code == 1 else _how(code)
        if peer.deaths > self.engine.restarts:
            cure = f"Its log is in {peer.folder}; what was done is kept: go on with `coterie resume`."
            raise RunError(f"{peer.name} ended {peer.deaths} times (last: {why})", cure=cure)
        pause = peer.rest()
        warn(f"{peer.name} ended ({why}) and is started again" + (f" in {pause:g} s" if pause else ""))

    def stop(self) -> None:
        """End what still runs: gently, then not."""
        alive = [p.process for p in self.crew if p.process is not None and p.process.is_alive()]
        for process in alive:
            process.terminate()
        for process in alive:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
                process.join()
        if self.keys is not None:
            shutil.rmtree(self.keys, ignore_errors=True)
            self.keys = None

    def close(self) -> None:
        """Nothing is left between jobs."""
        self.stop()


def make_homes(folder: Path, names: Sequence[str], job: Job) -> "list[Home]":
    """Keys, loopback ports and neighbours for all nodes of a world."""
    from coterie.net.identity import Home

    addresses = [f"127.0.0.1:{port}" for port in free_ports(len(names))]
    homes = [Home.create(folder / name, name, address) for name, address in zip(names, addresses, strict=True)]
    cards = [home.card for home in homes]
    for i, home in enumerate(homes):
        for j in met(job, i):
            home.add(cards[j])
    return homes


def met(job: Job, node: int) -> list[int]:
    """Whom a node has to do with, also while it asks around before the first round."""
    return job.network.around(node, rounds_before(job))


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those that systems give to outgoing connections: they stay free."""
    found: set[int] = set()
    while len(found) < count:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            found.add(port)
    return sorted(found)


def process(target: Callable[..., None], *args: Any) -> Callable[[], Any]:
    """What starts a process that does this."""

    def start() -> Any:
        return processes.start(target, *args, preload=["coterie.peers.runtime", "coterie.config.build"], heeds=True)

    return start


def peer_config(
    config: Path, method: str, seed: int, node: int, names: Sequence[str], home: Path, folder: Path
) -> "PeerConfig":
    """The configuration of one node of a fleet."""
    from coterie.config.build import build, load_samples
    from coterie.config.configuration import Configuration, read
    from coterie.net.identity import Home
    from coterie.peers.runtime import PeerConfig

    settings = Configuration(**read(config)).resolved[method]
    job = build(settings, load_samples(settings), seed)
    engine: Peer = settings.choice("engine").make()
    if engine.mode == "async":
        job = replace(job, protocol=job.protocol.out_of_step())
    return PeerConfig(
        method=method,
        settings=settings,
        seed=seed,
        job=job,
        node=node,
        numbers={names[j]: j for j in met(job, node)},
        home=Home(home),
        folder=folder,
        timing=engine.timing,
        limits=engine.limits,
        half=engine.half,
        wait=engine.wait,
        threads=engine.threads,
        screen=False,
    )


def live(
    config: Path, method: str, seed: int, node: int, names: list[str], home: Path, folder: Path
) -> None:  # pragma: no cover  runs in another process
    """The life of one peer's process, from its configuration to its exit code."""
    from coterie.files import write
    from coterie.peers import founding, runtime

    code, why = 0, ""
    try:
        founding.run(peer_config(config, method, seed, node, names, home, folder))
    except runtime.Stopped:
        code = STOPPED
    except CoterieError as error:
        code, why = DIVERGED if isinstance(error, DivergedError) else UNFIT, str(error)
    except Exception as error:
        code, why = 1, f"{traceback.format_exc()}\n{in_words(error)}"
    if why:
        with contextlib.suppress(OSError):  # on a full disk its keeper finds the exit code alone
            write(folder / FAILURE, why.encode())
    os._exit(code)  # threads of the wires must not keep a peer that is done


def _how(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

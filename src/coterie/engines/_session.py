"""What a runner says to any engine: carry out this job. And how engines do that whose nodes go round by round."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from coterie import records
from coterie.config.configuration import Configuration, Method
from coterie.engines._need import Need
from coterie.errors import RunError
from coterie.job import Job, Ledger
from coterie.mail.traffic import Traffic
from coterie.node.description import Description
from coterie.node.snapshot import diverged
from coterie.protocols import Place
from coterie.records.journal import Channel
from coterie.records.models import Trained

CHECKPOINT_SECONDS = 15.0
"""At most this much work is lost to a sudden end (more, if writing a checkpoint is slow: see `CheckpointClock`)."""
LISTED = 1000
"""How many links that are down in a round are listed; of more only the number is told."""
TRAFFIC = "traffic/"
"""Where a checkpoint has the messages that were not told yet."""


class WorkerLostError(RunError):
    """A worker, or the machine it was on, is not there any more."""


@dataclass(frozen=True)
class JobRun:
    """One job to be carried out, and all that a session needs to know for it."""

    method: str
    seed: int
    settings: Method
    job: Job
    experiment: Configuration
    """All of the run, for processes that read it anew."""
    folder: records.RunFolder | None
    """Where the run is kept, if it is."""
    channel: Channel
    """Takes the job's events."""
    stopping: Callable[[], bool]
    """Whether the run is to end after the present round."""
    prepared: Callable[[], None] = lambda: None
    """Told when rounds begin: until then a run that is to end does so at once."""
    plan: dict[str, Any] | None = None
    """The choices that were made for it when the run began (workers, stacking); None: none yet."""


@dataclass
class Outcome:
    """What a job has brought so far."""

    rows: pl.DataFrame
    measures: pl.DataFrame | None = None
    models: Trained | None = None
    """What the nodes have learnt, once all rounds are done; peers keep theirs themselves."""


class Session(ABC):
    """A running engine."""

    estimates: ClassVar[bool] = False
    """Whether its nodes find out the gain for themselves before the first round, if they are to."""

    @abstractmethod
    def choose(self, job: Job, times: int = 1) -> dict[str, Any]:
        """How a job will be computed here (workers, stacking): chosen when a run begins, and kept for all of it.

        It is one of so many that are computed alike.
        """

    @abstractmethod
    def need(self, job: Job) -> Need | None:
        """The memory that a job will take here beside what is there already; None if that is on other machines."""

    @abstractmethod
    def run(self, task: JobRun) -> Outcome:
        """Carry out a job, from its checkpoint if there is one; `KeyboardInterrupt` if it is stopped before its end."""

    @abstractmethod
    def close(self) -> None:
        """Free what is held."""


class Engine(ABC):
    """Where the nodes live: a frozen dataclass whose fields are the settings."""

    @abstractmethod
    def open(self) -> Session:
        """Start what computes."""

    def alone(self) -> "Engine":
        """The engine without processes of its own, for parts that cannot go to any."""
        return self


class StepwiseSession(Session):
    """A session whose nodes go round by round together, so that checkpoints are taken of all of them between rounds."""

    ledger: Ledger
    traffic: Traffic
    """Counts what is sent; a new one for each job, made by `begin`."""
    active: NDArray[np.bool_] | None
    """Which arcs carry messages in the present round, set by `round`; None: all."""
    places: Sequence[Place]
    """Where the nodes stand that took part in the present round, set by `round`."""

    @property
    @abstractmethod
    def plan(self) -> dict[str, Any]:
        """The choices this session made for the present job (workers, stacking): recorded, and kept on resume."""

    @property
    @abstractmethod
    def descriptions(self) -> dict[int, Description]:
        """The architectures of the present job, by number."""

    @abstractmethod
    def begin(self, job: Job, plan: dict[str, Any] | None = None) -> None:
        """Lay out a job and draw its starting models; `plan` are the choices of the run that is resumed."""

    @abstractmethod
    def evaluate(self) -> None:
        """Measure every node's model as it is."""

    @abstractmethod
    def round(self, number: int, evaluate: bool) -> None:
        """One round of the protocol; with `evaluate`, models are measured, once more after the merge if asked."""

    @abstractmethod
    def snapshot(self) -> dict[str, Tensor]:
        """All state between rounds."""

    @abstractmethod
    def restore(self, state: dict[str, Tensor]) -> None:
        """Go back to a snapshot."""

    def sound(self, state: dict[str, Tensor]) -> bool:
        """Whether the models of a snapshot, which was taken just now, are all finite."""
        return not diverged(state)

    def divided(self) -> dict[str, Tensor]:
        """All state between rounds but for what `write_shards` writes."""
        return self.snapshot()

    def write_shards(self, folder: Path) -> int:
        """Write what is not in `divided` to files of a checkpoint, and give their number."""
        return 0

    def read_shards(self, shards: Sequence[Path]) -> None:
        """Go back to what these files hold."""
        assert not shards, "this checkpoint is of another engine"

    def recover(self, error: WorkerLostError, task: JobRun) -> str:
        """Begin again with whoever is left, and say so; raises the error if there is no way."""
        raise error

    def remarks(self) -> list[str]:
        """What a user should know of how the present job is computed."""
        return []

    def told(self) -> dict[str, Any]:
        """What else there is to tell of what went between machines since it was told last."""
        return {}

    @final
    def run(self, task: JobRun) -> Outcome:
        """Round after round, with a checkpoint now and then; from the last one, if a worker is lost."""
        while True:
            try:
                return self._rounds(task)
            except WorkerLostError as error:
                said = self.recover(error, task)
                kept = task.folder.journalled(task.method, task.seed) if task.folder else 0
                task.channel.rewind(kept)
                task.channel.tell("warning", text=said)

    def _rounds(self, task: JobRun) -> Outcome:
        last, found = self._begin(task)
        task.prepared()
        rounds, evaluated = task.settings.rounds, set(task.settings.evaluated())
        clock = CheckpointClock(CHECKPOINT_SECONDS)
        for number in range(last + 1, rounds + 1):
            try:
                self.round(number, number in evaluated)
            except WorkerLostError:
                raise
            except Exception:  # the models are spoilt in the middle of a round: keep the records, not the models
                if task.folder:
                    task.folder.keep_rows(task.method, task.seed, found.rows, found.measures)
                raise
            self._tell(task, number, found, number in evaluated)
            if task.folder and number < rounds and (task.stopping() or clock.due()):
                with clock:
                    self._checkpoint(task, task.folder, number, found)
            if task.stopping() and number < rounds:
                raise KeyboardInterrupt
        if task.settings.keep_models:
            found.models = Trained.of(self.snapshot(), self.descriptions)
        return found

    def _begin(self, task: JobRun) -> tuple[int, Outcome]:
        """The round of the checkpoint, 0 if there is none, and what there is of records."""
        found = Outcome(records.empty(), pl.DataFrame(schema=records.MEASURES) if task.settings.measures else None)
        about = {"method": task.method, "seed": str(task.seed)}
        task.channel.sight = records.Sight(
            lambda: found.rows, lambda: Trained.of(self.snapshot(), self.descriptions).models(**about)
        )
        return self._first(task, found), found

    def _first(self, task: JobRun, found: Outcome) -> int:
        """Lay the job out, from its checkpoint if there is one, and say of which round that is."""
        method, seed, job, folder = task.method, task.seed, task.job, task.folder
        kept = folder.latest(method, seed) if folder else None
        about: dict[str, Any] = {"rounds": task.settings.rounds, "nodes": job.roster.nodes}
        if cycles := job.protocol.cycles(task.settings.rounds):
            about["cycles"] = cycles
        if folder and kept:
            last, state, rows, plan = kept
            task.channel.live("begin", round=last, **about)
            self.begin(job, plan)
            self._remark(task)
            told = {name.removeprefix(TRAFFIC): state.pop(name) for name in list(state) if name.startswith(TRAFFIC)}
            self.traffic.restore(told)
            self.restore(state)
            self.read_shards(folder.shards(method, seed))
            found.rows, found.measures = rows, folder.latest_measures(method, seed)
            return last
        task.channel.tell("begin", round=0, **about)
        self.begin(job, task.plan)
        self._remark(task)
        self.evaluate()
        self._record(task, 0, found)
        return 0

    def _remark(self, task: JobRun) -> None:
        for text in self.remarks():
            task.channel.live("warning", text=text)

    def _tell(self, task: JobRun, number: int, found: Outcome, evaluated: bool) -> None:
        """Write down what a round has brought."""
        if task.job.faults.fails:
            self._tell_faults(task, number)
        for place in self.places:
            for said in place.remarks:
                text = f"round {number}, node {place.node}: {said}"
                task.channel.tell("warning", round=number, node=place.node, text=text)
        if evaluated:
            self._record(task, number, found)
            still = None if task.job.network.changes else task.job.graph(number)
            task.channel.tell("exchange", round=number, **self.traffic.take(still), **self.told())
        roles: dict[str, list[int]] = {}
        for place in self.places:
            for role in place.roles:
                roles.setdefault(role, []).append(place.node)
        task.channel.tell("round", round=number, **({"roles": roles} if roles else {}))

    def _record(self, task: JobRun, number: int, found: Outcome) -> None:
        about = (task.method, task.seed, number, self.ledger, task.job.members(number))
        fresh = records.rows(*about)
        found.rows = records.together([found.rows, fresh])
        if found.measures is not None:
            found.measures = pl.concat([found.measures, records.measured(*about)])
        task.channel.tell("evaluation", round=number, **records.as_lists(fresh))

    def _tell_faults(self, task: JobRun, number: int) -> None:
        """Who fails or is away in this round, and which links fail between those who are there."""
        graph = task.job.graph(number)
        up = task.job.faults.up(graph, number)
        lost = np.zeros(0, np.int64)
        if self.active is not None:
            once = graph.directed | (graph.sources < graph.targets)
            lost = np.flatnonzero(~self.active & up[graph.sources] & up[graph.targets] & once)
        if up.all() and not len(lost):
            return
        pairs = np.stack([graph.sources[lost], graph.targets[lost]], 1) if len(lost) <= LISTED else None
        down = {} if pairs is None else {"down": pairs.tolist()}
        task.channel.tell("fault", round=number, nodes=np.flatnonzero(~up).tolist(), links=len(lost), **down)

    def _checkpoint(self, task: JobRun, folder: records.RunFolder, number: int, found: Outcome) -> None:
        models = self.divided()
        if not self.sound(models):  # the next training says so: nobody goes on from here
            return
        with task.channel.sealed("checkpoint", round=number):
            state = models | {TRAFFIC + name: counts for name, counts in self.traffic.state().items()}
            about = (task.method, task.seed, number, state, found.rows, self.plan, found.measures)
            folder.checkpoint(*about, events=task.channel.count, shards=self.write_shards)


class CheckpointClock:
    """Says when a checkpoint is due: every so many seconds, but never more than a fiftieth of the time."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.cost, self.last = seconds, 0.0, time.monotonic()

    def due(self) -> bool:
        """Whether enough time has passed since the last one."""
        return time.monotonic() - self.last >= max(self.seconds, 50 * self.cost)

    def __enter__(self) -> None:
        self.started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.last = time.monotonic()
        self.cost = self.last - self.started

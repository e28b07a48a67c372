"""A process at work: its modules, its view of the shared matrices, and the operations it can be asked for."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from coterie.contract import Fields, Message, finite
from coterie.engines._dealing import GroupRows
from coterie.engines._gauge import Gauge
from coterie.engines._groups import Group
from coterie.engines._probing import Probe
from coterie.errors import during
from coterie.job import PLAIN, Indices, Roster, Samples
from coterie.lessons import PEAK, Homecoming, Lesson
from coterie.metrics import Occasion, Values
from coterie.node import bests
from coterie.node.architecture import architectures
from coterie.node.bundles import Bundle
from coterie.node.distances import squared_distances
from coterie.node.evaluation import Curves, lent, score
from coterie.node.merging import Exchange, Merger
from coterie.node.rows import stack_height
from coterie.node.student import RowStudent, Schoolhouse, exercise
from coterie.node.training import NONE, Trainer, Turns


@dataclass(frozen=True)
class AnswerTask:
    """Messages to be answered: which rows answer which messages of a bundle."""

    rows: Indices
    messages: Indices
    bundle: Bundle


def shared(tensor: Tensor) -> Tensor:
    """A tensor where other processes can see it."""
    return tensor.share_memory_() if tensor.device.type == "cpu" else tensor


PackedFields = dict[str, np.ndarray]
"""Fields on their way to another process: tensors would take a file descriptor each."""


PackedMessage = tuple[PackedFields, float, int]
"""A message on its way to another process: fields, the sender's number of samples, and the round."""


@dataclass(frozen=True)
class ExerciseTask:
    """An exercise of one node."""

    group: int
    row: int
    name: str
    heard: dict[int, PackedMessage]
    to: list[int]
    trains: bool = False


@dataclass(frozen=True)
class LessonTask:
    """A lesson that one node gives."""

    group: int
    row: int
    name: str
    """The protocol's field with the lesson."""
    turn: int
    heard: dict[int, tuple[int, PackedMessage]]
    """Whose models it was handed, each with the architecture's number."""


class TrainingReport(NamedTuple):
    """What came of the training of some rows."""

    seconds: np.ndarray
    batches: np.ndarray
    finite: np.ndarray
    """Whether their parameters still are."""
    curves: dict[int, dict[int, float]]
    """Their nodes' validation losses by epoch, if they were measured."""


@dataclass(frozen=True)
class Done:
    """What came of an exercise."""

    said: list[tuple[PackedFields, list[int]]]
    seconds: float
    batches: int
    flops: int
    finite: bool
    """Whether the node's parameters still are."""


def packed(fields: Fields) -> PackedFields:
    """Fields as they travel between processes; nothing is copied on the CPU."""
    return {name: field.detach().cpu().numpy() for name, field in fields.items()}


def unpacked(arrays: PackedFields, device: str) -> Fields:
    """Fields that have arrived."""
    return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}


class Worker:
    """The process `number` of `count`: it takes its own part of all columns, and the rows it is given."""

    def __init__(self, number: int, count: int) -> None:
        self.number, self.count = number, count
        self.samples: Samples | None = None
        self.trainers: list[Trainer] = []
        self.mergers: list[Merger] = []
        self.groups: list[Group] = []
        self.gauges: list[Gauge] = []
        self.look_up: Callable[[], None] = lambda: None
        """Called now and then during long work, by whom it may be ended."""
        self.trained: Callable[[int, Indices], None] = lambda g, rows: None
        """Told of rows of an architecture that have just been trained."""
        self.school = Schoolhouse()
        self.notes: dict[int, dict[str, Tensor]] = {}
        """What the exercises of the nodes that are served here keep."""

    def load(self, samples: Samples) -> None:
        """Take a data set into view."""
        self.samples = samples

    def probe(self, roster: Roster, group: int, rows: int, most: float) -> float:
        """Seconds per row in stacks of so many, found in so many seconds."""
        assert self.samples is not None
        return Probe(roster, self.samples, group).seconds(rows, most)

    def open(self, roster: Roster, groups: list[Group]) -> None:
        """Begin a job."""
        assert self.samples is not None
        self.rule, self.protocol, self.groups, self.notes = roster.rule.make(), roster.protocol.make(), groups, {}
        made = architectures(roster, self.samples)
        stacked = [a.signature for a, group in zip(made, groups, strict=True) if group.mode.stack]
        self.school = Schoolhouse({a.signature: a for a in made}, 1, stacked)
        self.trainers, self.mergers, self.gauges = [], [], []
        for g, group in enumerate(groups):
            trainer = Trainer(roster, self.samples, g, made[g], group.matrix, group.integers)
            trainer.optimiser_state, trainer.squares = group.optimiser_state, group.squares
            self.trainers.append(trainer)
            self.mergers.append(Merger(self.rule, trainer.params, trainer.buffers, group.state, trainer.me))
            self.gauges.append(Gauge(self.rule, trainer, group, self.number, self.count))

    def meet(self, degree: Indices) -> None:
        """Let all nodes know how many they hear from now on."""
        for trainer in self.trainers:
            trainer.meet(degree)

    def _chunks(self, g: int, rows: Indices) -> Iterator[Indices]:
        """Rows that are computed together, one lot after the other."""
        size = self.groups[g].mode.chunk if self.groups[g].mode.stack else 1
        for i in range(0, len(rows), size):
            self.look_up()
            yield rows[i : i + size]

    def _during(self, operation: str, g: int, rows: Indices, round: int) -> contextlib.AbstractContextManager[None]:
        return during(operation, self.trainers[g].nodes[rows].tolist(), round)

    def train(self, parts: list[GroupRows], round: int, measures: tuple[str, ...], turns: Turns) -> TrainingReport:
        """Train these rows, noting what `measures` ask of training."""
        found = [self._train(g, rows, round, measures, turns) for g, rows in parts]
        arrays = [np.concatenate([NONE, *(one[i] for one in found)]) for i in range(3)]
        curves = {node: own for one in found for node, own in one.curves.items()}
        return TrainingReport(arrays[0], arrays[1].astype(np.int64), arrays[2].astype(np.bool_), curves)

    def _train(self, g: int, rows: Indices, round: int, measures: tuple[str, ...], turns: Turns) -> TrainingReport:
        trainer = self.trainers[g]
        seconds: list[float] = []
        batches: list[int] = []
        curves = trainer.curves = Curves(trainer) if "epochs" in measures else None
        if "steps" in measures:
            self.gauges[g].before_training(rows)
        for chunk in self._chunks(g, rows):
            start = time.perf_counter()
            with self._during("training", g, chunk, round):
                if self.groups[g].mode.stack:
                    batches += trainer.train_stack(chunk, round, turns).tolist()
                else:
                    row = int(chunk[0])
                    turn = turns.get(int(trainer.nodes[row]), PLAIN)
                    batches.append(trainer.train_row(row, round, turn=turn))
            seconds += [(time.perf_counter() - start) / len(chunk)] * len(chunk)
            self.trained(g, chunk)
        trainer.curves = None
        if "steps" in measures:
            self.gauges[g].after_training(rows)
        sums = [trainer.matrix[row].sum() for row in rows.tolist()]  # row by row: all at once would be copied
        sound = torch.stack(sums).isfinite() if sums else torch.ones(0, dtype=torch.bool)
        return TrainingReport(
            np.array(seconds), np.array(batches), sound.cpu().numpy(), curves.points if curves else {}
        )

    def observe(self, parts: list[GroupRows], round: int) -> None:
        """Let the rule look at these rows' data."""
        for g, rows in parts:
            stack, state = self.groups[g].mode.stack, self.groups[g].state
            for chunk in self._chunks(g, rows):
                with self._during("observing the data of", g, chunk, round):
                    self.trainers[g].observe(self.rule, chunk, round, state, stack)

    def score(self, parts: list[GroupRows], occasion: Occasion, test: Indices) -> dict[str, Values]:
        """Judge these rows on test samples, or on their own validation data."""
        found = [score(self.trainers[g], chunk, occasion, test) for g, rows in parts for chunk in self._chunks(g, rows)]
        return {name: np.concatenate([f[name] for f in found]) for name in found[0]} if found else {}

    def score_peaks(self, parts: list[GroupRows], test: Indices) -> tuple[Indices, dict[str, Values]]:
        """Judge the models that these rows' nodes keep beside their own: whose they are, and what they are worth."""
        nodes, found = [], []
        for g, rows in parts:
            trainer = self.trainers[g]
            for chunk in self._chunks(g, np.array([r for r in rows if PEAK in self._noted(trainer, r)], np.int64)):
                peaks = torch.stack([self._noted(trainer, r)[PEAK] for r in chunk])
                with lent(trainer, chunk, peaks):
                    found.append(score(trainer, chunk, "peak", test))
                nodes.append(trainer.nodes[chunk])
        values = {name: np.concatenate([f[name] for f in found]) for name in found[0]} if found else {}
        return np.concatenate([*nodes, np.empty(0, np.int64)]), values

    def hold_best(self, parts: list[GroupRows], worth: Values) -> None:
        """Keep those of these rows that are worth more than they ever were; `worth` has a number for each node."""
        for g, rows in parts:
            for row in rows.tolist():
                trainer = self.trainers[g]
                bests.hold(self._noted(trainer, row), trainer.matrix[row], worth[trainer.nodes[row]])

    def _noted(self, trainer: Trainer, row: int) -> dict[str, Tensor]:
        return self.notes.setdefault(int(trainer.nodes[row]), {})

    def home(self, parts: list[GroupRows], lesson: str, turn: int) -> None:
        """Let a lesson keep what it wants of the models that have come home to these rows."""
        kept: Lesson = getattr(self.protocol, lesson)
        for g, rows in parts:
            trainer = self.trainers[g]
            for row in rows.tolist():
                kept.home(Homecoming(trainer.matrix[row], self._noted(trainer, row), turn, trainer.roster.rounds))

    def merge(self, g: int, exchange: Exchange) -> None:
        """This process's part of a merge: some columns, or some rows."""
        with self._during("merging at", g, exchange.rows, exchange.round):
            self._merge(g, exchange)

    def _merge(self, g: int, exchange: Exchange) -> None:
        if self.rule.span == "coordinate":
            self.mergers[g].by_columns(exchange, *self._columns(self.mergers[g].params.shape[1]))
        else:
            mine = np.arange(self.number, len(exchange.rows), self.count)
            out = self.groups[g].out
            assert out is not None
            if len(mine):
                width = max(self.mergers[g].params.shape[1], 1)
                self.mergers[g].by_rows(exchange.take(mine), out, max(1, 2**22 // (4 * width)))

    def settle(self, g: int, exchange: Exchange) -> None:
        """Store what every process's `merge` has left: merged rows, a rule's scalars, and averaged float buffers."""
        if self.rule.span == "model":
            out = self.groups[g].out
            assert out is not None
            mine = torch.as_tensor(exchange.rows[self.number :: self.count])
            self.mergers[g].params[mine] = out[mine]
        if self.number == self.count - 1:  # the one who has columns even if there are fewer columns than processes
            self.mergers[g].store_scalars()
        if self.number == 0 and self.mergers[g].buffers.shape[1]:
            self.mergers[g].average_buffers(exchange)

    def answer(self, g: int, task: AnswerTask, round: int) -> Fields:
        """What rows answer: a row of each field for every message, or no field at all."""
        trainer, mode = self.trainers[g], self.groups[g].mode
        fields = {name: self.mergers[g].tensor(f) for name, f in task.bundle.fields.items() if name != "buffers"}
        sizes, answers = torch.from_numpy(task.bundle.sizes).to(trainer.matrix.device), Fields()
        for chunk in self._chunks(g, np.arange(len(task.rows))):
            height = stack_height(len(chunk), mode.chunk)
            some = np.pad(chunk, (0, height - len(chunk)), mode="edge")  # the last again, where there are too few
            at = torch.as_tensor(task.messages[some])
            theirs = Message({name: f[at] for name, f in fields.items()}, sizes[at], task.bundle.round)
            with self._during("answering at", g, task.rows[some], round):
                answer = trainer.answer(self.rule, task.rows[some], theirs, round, mode.stack)
            for name, said in answer.items():
                if name not in answers:
                    answers[name] = shared(said.new_empty(len(task.rows), said.shape[1]))
                answers[name][torch.as_tensor(chunk)] = said[: len(chunk)]
        return answers

    def exercise(self, tasks: list[ExerciseTask], round: int, steps: bool = False) -> list[Done]:
        """Carry these exercises out, one after the other, noting their `steps` if asked."""
        return [self._exercise(task, round, steps) for task in tasks]

    def _exercise(self, task: ExerciseTask, round: int, steps: bool) -> Done:
        start, trainer = time.perf_counter(), self.trainers[task.group]
        device = trainer.roster.device
        heard = {
            sender: Message(unpacked(fields, device), torch.tensor([size], device=device), said_in)
            for sender, (fields, size, said_in) in task.heard.items()
        }
        notes = self.notes.setdefault(int(trainer.nodes[task.row]), {})
        noting = self.gauges[task.group].steps_of(task.row) if steps else None
        student = RowStudent(trainer, task.row, round, heard, notes, task.to, self.school, noting)
        with during(f"exercise {task.name} of", [student.node], round):
            said = [(packed(fields), to) for fields, to in exercise(self.protocol, task.name, student)]
        seconds, flops = time.perf_counter() - start, student.flops if task.trains else 0
        return Done(said, seconds, student.batches, flops, finite(trainer.params[task.row]))

    def teach(
        self, tasks: list[LessonTask], round: int, threads: int
    ) -> list[tuple[dict[int, PackedFields], float, int]]:
        """Give these lessons, one after the other: what each pupil goes home with, and what it cost.

        Costs are seconds and floating-point operations.

        Where others have nothing to do meanwhile, as many `threads` are at work here as there are workers.
        """
        return [self._teach(task, round, threads) for task in tasks]

    def _teach(self, task: LessonTask, round: int, threads: int) -> tuple[dict[int, PackedFields], float, int]:
        start, own = time.perf_counter(), self.trainers[task.group]
        node, device = int(own.nodes[task.row]), own.roster.device
        heard = {
            sender: (self.trainers[group].architecture.signature, self._message(packed, device))
            for sender, (group, packed) in task.heard.items()
        }
        school = replace(self.school, threads=threads)
        data = school.classroom(own, task.row, round, self.notes.setdefault(node, {}), task.turn)
        with during("the lesson of", [node], round):
            taught = school.teach(getattr(self.protocol, task.name), own, task.row, heard, data)
        home = {p: packed(fields) for p, (_, fields) in taught.items()}
        return home, time.perf_counter() - start, school.spent(data, own.samples)

    def _message(self, packed: PackedMessage, device: str) -> Message:
        fields, size, number = packed
        return Message(unpacked(fields, device), torch.tensor([size], device=device), number)

    def kept(self) -> dict[int, PackedFields]:
        """The notes of the nodes that are served here."""
        return {node: packed(notes) for node, notes in self.notes.items()}

    def keep(self, notes: dict[int, PackedFields]) -> None:
        """Take over what nodes noted before."""
        self.notes = {node: unpacked(arrays, self.trainers[0].roster.device) for node, arrays in notes.items()}

    def distances(self, g: int, averages: sp.csr_array, present: Indices | None) -> tuple[np.ndarray, np.ndarray]:
        """This process's columns of the squared distances to the neighbours' mean and to the mean of these rows."""
        params = self.mergers[g].params
        return squared_distances(params, averages, *self._columns(params.shape[1]), present)

    def gauge(self, g: int, what: str, *args: Any) -> Any:
        """This process's part of a measure."""
        return getattr(self.gauges[g], what)(*args)

    def _columns(self, width: int) -> tuple[int, int]:
        return width * self.number // self.count, width * (self.number + 1) // self.count

    def call(self, name: str, *args: Any) -> Any:
        """Do an operation by name."""
        return getattr(self, name)(*args)

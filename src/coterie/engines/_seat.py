"""The worker program of a cluster: the rows of some nodes, computed for as a simulator of its own would."""

import platform
import resource
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from safetensors.torch import load

from coterie import files
from coterie.config.build import load_samples
from coterie.config.configuration import Method
from coterie.datasets import each
from coterie.engines._dealing import GroupRows
from coterie.engines._groups import Mode
from coterie.engines._holdings import Block, Holdings
from coterie.engines._matrices import Matrices
from coterie.engines._moves import Made, Reference, Request, Run, columns_used, picked
from coterie.engines._trying import Faster
from coterie.engines._turning import Turned, turn
from coterie.engines._wire import Wire
from coterie.engines._worker import (
    AnswerTask,
    Done,
    ExerciseTask,
    LessonTask,
    PackedMessage,
    TrainingReport,
    Worker,
    packed,
)
from coterie.job import Indices, Job, Samples
from coterie.metrics import Occasion, Values
from coterie.node.bundles import Bundle
from coterie.node.distances import squared_distances
from coterie.node.merging import Exchange
from coterie.node.snapshot import KeptRows, Snapshot, diverged
from coterie.node.training import Turns
from coterie.records.tensors import pieces, read_tensors

NOBODY: Indices = np.empty(0, np.int64)


def live(g: int) -> int:
    """The name under which the present rows of an architecture are asked for."""
    return -1 - g


class Seat:
    """One worker: what it is asked for is in the numbering of all rows, and it answers in it."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.worker = wire, Worker(0, 1)
        self.samples: Samples | None = None

    def about(self) -> dict[str, Any]:
        """What the machine is, and what is free there."""
        return {"machine": platform.node(), "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}

    def call(self, request: Request) -> Any:
        """Do what is asked for, with the messages that it needs."""
        if request.folds:
            self.held.fold(request.folds)
        if request.sends or request.gets:
            self.held.move(request.sends, request.gets)
        self.early = list(request.early)
        found = getattr(self, request.name)(*request.args)
        self.wire.sent()
        return found

    def nothing(self) -> None:
        """Do nothing but wait for the messages that were asked to come."""
        self.held.arrived()

    # A job.

    def load(self, samples: Samples | Method) -> None:
        """Take a data set into view, from this machine's own folder if it was not sent along."""
        loaded = load_samples(samples) if isinstance(samples, Method) else samples
        parts = {name: getattr(loaded, name) for name in ("train_x", "train_y", "test_x", "test_y")}
        device = self.wire.device
        self.samples = replace(loaded, **{name: each(part, lambda t: t.to(device)) for name, part in parts.items()})
        self.worker.load(self.samples)

    def open(self, job: Job, own: tuple[Indices, ...], modes: list[Mode]) -> None:
        """Begin a job on these nodes, by architecture."""
        assert self.samples is not None
        self.every = job.roster.groups
        self.local = []
        for nodes, mine in zip(self.every, own, strict=True):
            at = np.full(len(nodes), -1)
            at[np.searchsorted(nodes, mine)] = np.arange(len(mine))
            self.local.append(at)
        self.own = [np.flatnonzero(at >= 0) for at in self.local]
        roster = replace(job.roster, groups=own)
        rule, protocol = roster.rule.make(), roster.protocol.make()
        self.models = Matrices(replace(job, roster=roster, samples=self.samples, rule=rule, protocol=protocol), modes)
        self.roster = roster
        self.worker.open(roster, self.models.groups)
        self.worker.trained = self._trained
        self.held = Holdings(self.models, self.wire)
        self.faster = Faster()

    def begin_round(self, number: int, degree: Indices | None) -> None:
        """A round begins."""
        self.held.forget()
        self.models.begin_round(number, degree)

    def meet(self, degree: Indices) -> None:
        """Let all nodes know how many they hear from now on."""
        self.roster = replace(self.roster, degree=degree)
        self.worker.meet(degree)

    def _here(self, parts: list[GroupRows]) -> list[GroupRows]:
        return [(g, self.local[g][rows]) for g, rows in parts]

    # Computing for one's own rows.

    def train(self, parts: list[GroupRows], round: int, measures: tuple[str, ...], turns: Turns) -> TrainingReport:
        self.ready = [np.zeros(len(nodes), bool) for nodes in self.every]
        return self.worker.train(self._here(parts), round, measures, turns)

    def _trained(self, g: int, rows: Indices) -> None:
        """Send what is ready, while other rows still train."""
        self.ready[g][self.own[g][rows]] = True
        for move in [m for m in self.early if m.group == g and self.ready[g][m.run.ids].all()]:
            at, trainer = torch.as_tensor(self.local[g][move.run.ids]), self.worker.trainers[g]
            whole = {"w": trainer.params, "buffers": trainer.buffers}
            for name in sorted(move.kinds):
                self.wire.send(move.peer, whole[name][at])
            self.early.remove(move)

    def observe(self, parts: list[GroupRows], round: int) -> None:
        self.worker.observe(self._here(parts), round)

    def score(self, parts: list[GroupRows], occasion: Occasion, test: Indices) -> dict[str, Values]:
        return self.worker.score(self._here(parts), occasion, test)

    def hold_best(self, parts: list[GroupRows], worth: Values) -> None:
        self.worker.hold_best(self._here(parts), worth)

    def score_peaks(self, parts: list[GroupRows], test: Indices) -> tuple[Indices, dict[str, Values]]:
        return self.worker.score_peaks(self._here(parts), test)

    def home(self, parts: list[GroupRows], lesson: str, turn: int) -> None:
        self.worker.home(self._here(parts), lesson, turn)

    def gauge(self, g: int, what: str, rows: Indices, *about: Any) -> Any:
        """Measures of these rows; how far all are apart is found with the others."""
        mine = self.local[g][rows]
        if what != "apart":
            return self.worker.gauge(g, what, mine, *about)
        params = self.worker.trainers[g].params[torch.as_tensor(mine[mine >= 0])]
        mean = self.wire.sum(params.sum(0, dtype=torch.float64)) / len(rows)
        squares = self.wire.sum((params - mean).square_().sum(0))
        self.models.apart(g).copy_((squares / len(rows)).sqrt())
        return None

    def apart(self, g: int) -> np.ndarray:
        """How far all rows are apart in each column, as `gauge` found it last."""
        found: np.ndarray = self.models.apart(g).cpu().numpy()
        return found

    def distances(
        self, g: int, runs: list[Run], averages: sp.csr_array, present: Indices | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """One's own rows' squared distances to the neighbours' mean and to the mean of all present; 0 elsewhere."""
        trainer, mine = self.worker.trainers[g], self.own[g]
        here = mine if present is None else np.intersect1d(mine, present)
        some = trainer.params[torch.as_tensor(self.local[g][here])]
        centre = self.wire.sum(some.sum(0, dtype=torch.float64)).to(trainer.params.dtype)
        centre /= len(self.every[g]) if present is None else len(present)
        self.held.arrived()
        found = np.zeros(len(self.every[g])), np.zeros(len(self.every[g]))
        if len(mine):
            width = trainer.params.shape[1]
            others = self.held.table(runs)["w"] if runs else trainer.params[:0]
            parts = squared_distances(trainer.params, averages, 0, width, None, others, centre)
            for whole, part in zip(found, parts, strict=True):
                whole[mine] = part
        self.held.held.pop(live(g), None)
        return found

    def show(self, g: int) -> None:
        """Let one's present rows be asked for by others."""
        self.held.keep(Bundle(g, {"w": "params"}, np.ones((len(self.own[g]), 1)), 0, NOBODY), self.own[g], live(g))

    # Messages.

    def say(self, key: int, g: int, rows: Indices, model: bool, ids: Indices) -> Made | None:
        """What these rows say, as these messages of a bundle."""
        bundle = self.models.say(g, self.local[g][rows], model)
        return None if bundle is None else self.held.keep(bundle, ids, key)

    def protect(self, keys: Sequence[int]) -> None:
        self.held.protect(keys)

    def adopt(self, g: int, row: int, run: Run) -> None:
        """Let a row be the model that a message holds."""
        self.held.arrived()
        self.models.adopt(g, int(self.local[g][row]), self.held.bundle(g, [run], np.ones((1, 1)), 0), 0)

    def merge(self, g: int, exchange: Exchange, heard: list[tuple[list[Run], sp.csr_array, np.ndarray]]) -> None:
        """Merge one's own rows: first those that heard nobody elsewhere, while others' messages are under way.

        To merge in two parts is more work: where messages are quick it is not done, which changes no number.
        """
        rows, start = self.local[g][exchange.rows], time.perf_counter()
        inside = np.ones(len(rows), bool)
        for runs, arcs, _ in heard:
            own = np.concatenate([self.held.inside(run) for run in runs] or [np.empty(0, bool)])
            inside &= np.asarray(arcs @ (~own).astype(np.float32)).ravel() == 0
        mixed = bool(inside.any() and not inside.all())
        if mixed and not (parts := self.faster.way(g)):
            inside[:] = False
        sooner, later = np.flatnonzero(inside), np.flatnonzero(~inside)
        apart: dict[int, Block] = {}
        if len(sooner):
            if len(later):
                apart = self.held.apart(self._needed(heard, later), rows[sooner])
            self._merge(g, self._part(g, exchange, heard, rows, sooner, {}))
        self.held.arrived()
        if len(later):
            self._merge(g, self._part(g, exchange, heard, rows, later, apart))
        if mixed:
            self.faster.note(g, parts, time.perf_counter() - start)

    def _needed(self, heard: list[tuple[list[Run], sp.csr_array, np.ndarray]], some: Indices) -> list[Run]:
        """The messages that some rows heard."""
        return [run for runs, arcs, _ in heard for run in picked(runs, columns_used(sp.csr_array(arcs[some])))]

    def _merge(self, g: int, exchange: Exchange) -> None:
        self.worker.merge(g, exchange)
        self.worker.settle(g, exchange)

    def _part(
        self,
        g: int,
        exchange: Exchange,
        heard: list[tuple[list[Run], sp.csr_array, np.ndarray]],
        rows: Indices,
        some: Indices,
        apart: dict[int, Block],
    ) -> Exchange:
        """The exchange for some of its rows; `apart` has what they heard of rows that have changed meanwhile."""
        bundles = []
        for runs, arcs, sizes in heard:
            cut = sp.csr_array(arcs[some])
            used = columns_used(cut)
            if not len(used):
                continue
            cut.indices = np.searchsorted(used, cut.indices).astype(cut.indices.dtype)
            cut = sp.csr_array((cut.data, cut.indices, cut.indptr), shape=(len(some), len(used)))
            bundles.append(self.held.heard(g, picked(runs, used), cut, sizes[used], exchange.round, apart))
        own = None if exchange.own is None else exchange.own[some]
        voices = None if exchange.voices is None else exchange.voices[some]
        return Exchange(rows[some], tuple(bundles), exchange.round, own, voices)

    def turn(
        self, g: int, exchange: Exchange, arcs: sp.csr_array, runs: list[Run], owners: Indices, sizes: np.ndarray
    ) -> None:
        """Merge a block of columns of all rows, between two exchanges in which everyone sends to all others.

        Every message is the model of the row of its number, and nothing else.
        """
        trainer = self.worker.trainers[g]
        own = Turned(trainer.params, self.local[g], self.every[g])
        turn(self.wire, self.worker.rule, self.roster, self.models.layouts[g], own, exchange, arcs, runs, owners, sizes)

    def answer(self, g: int, task: AnswerTask, runs: list[Run], sizes: np.ndarray, round: int) -> Made | None:
        """What rows answer, a message each: to those named by these runs."""
        self.held.arrived()
        if not len(task.rows):
            return None
        heard = self.held.bundle(g, runs, sizes, task.bundle.round)
        mine = AnswerTask(self.local[g][task.rows], np.arange(len(task.rows)), heard)
        return self._made(g, self.worker.answer(g, mine, round))

    def _made(self, g: int, fields: dict[str, Any]) -> Made | None:
        """Hold what was made here; nothing if it says nothing."""
        if not fields:
            return None
        nodes = np.zeros(len(torch.atleast_2d(torch.as_tensor(next(iter(fields.values()))))), np.int64)
        bundle = self.models.bundle(g, nodes, fields)
        return self.held.keep(bundle, np.arange(len(nodes)))

    def _read(self, message: Any) -> PackedMessage:
        """A message that was named."""
        named, size, number = message
        assert isinstance(named, Reference)
        table = self.held.table([Run(named.key, np.array([named.id]))])
        return packed({name: rows[0] for name, rows in table.items()}), size, number

    def exercise(self, tasks: list[ExerciseTask], round: int, steps: bool) -> list[Done]:
        self.held.arrived()
        read = [
            replace(t, row=int(self.local[t.group][t.row]), heard={s: self._read(m) for s, m in t.heard.items()})
            for t in tasks
        ]
        done = self.worker.exercise(read, round, steps)
        found = []
        for task, one in zip(tasks, done, strict=True):
            said: Any = [(self._made(task.group, fields), to) for fields, to in one.said]
            found.append(replace(one, said=said))
        return found

    def teach(self, tasks: list[LessonTask], round: int, threads: int, groups: list[int]) -> list[Any]:
        """Lessons; `groups` has the architecture of each node."""
        self.held.arrived()
        read = [
            replace(
                t,
                row=int(self.local[t.group][t.row]),
                heard={s: (g, self._read(m)) for s, (g, m) in t.heard.items()},
            )
            for t in tasks
        ]
        found = self.worker.teach(read, round, threads)
        return [
            ({pupil: self._made(groups[pupil], fields) for pupil, fields in taught.items()}, seconds, flops)
            for taught, seconds, flops in found
        ]

    # What is kept.

    def kept(self) -> dict[int, Any]:
        return self.worker.kept()

    def keep(self, notes: dict[int, Any]) -> None:
        self.worker.keep(notes)

    def rows(self) -> dict[int, KeptRows]:
        """The present state of one's own rows."""
        return self.models.rows()

    def restore(self, rows: dict[int, KeptRows]) -> None:
        """Go back to a former state, of these rows as far as they are one's own."""
        for g, mine in self.models.rows().items():
            both, here, there = (
                np.intersect1d(mine.nodes, rows[g].nodes, return_indices=True) if g in rows else [NOBODY] * 3
            )
            if not len(both):
                continue
            to, at = torch.as_tensor(here), torch.as_tensor(there)
            mine.matrix[to] = rows[g].matrix[at].to(mine.matrix)
            mine.integers[to] = rows[g].integers[at]
            pairs = ((mine.state, rows[g].state), (mine.optimiser, rows[g].optimiser))
            for name, tensor, kept in ((n, t, kept) for own, kept in pairs for n, t in own.items()):
                tensor[to] = kept[name][at].to(tensor)

    def sound(self) -> bool:
        """Whether all of one's own models are finite."""
        return not diverged(Snapshot(self.models.rows()).tensors())

    def write(self, path: Path, shared: bool) -> list[bytes] | None:
        """Write one's own rows to a file; if the folder is another machine's, give what should stand in it."""
        content = pieces(Snapshot(self.models.rows()).tensors())
        if not shared:
            return [bytes(piece) for piece in content]
        files.put(path, *content)
        return None

    def sees(self, path: Path, content: bytes) -> bool:
        """Whether a file is to be seen from here."""
        try:
            return path.read_bytes() == content
        except OSError:
            return False

    def begins(self, path: Path, head: bytes) -> bool:
        """Whether a file is to be seen from here, and begins so."""
        try:
            with path.open("rb") as file:
                return file.read(len(head)) == head
        except OSError:
            return False

    def read(self, path: Path, content: bytes | None) -> None:
        """Take one's own rows from a file of rows, or from its content."""
        tensors = read_tensors(path)[0] if content is None else load(content)
        self.restore(Snapshot.read(tensors).rows)

    def counts(self) -> tuple[int, int]:
        """How many bytes were sent to others so far, and the most memory that was used."""
        return self.wire.sent_bytes, self.about()["peak"]

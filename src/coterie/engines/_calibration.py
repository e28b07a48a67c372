"""Which way of computing rows is faster here: measured once per machine and model, then remembered."""

import contextlib
import hashlib
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from coterie import files, waiting
from coterie.engines._groups import Mode
from coterie.errors import ConfigError
from coterie.job import Roster, Samples
from coterie.node.architecture import architectures
from coterie.node.training import Trainer
from coterie.parts import Choice

CHUNK_BYTES = (256 * 1024, 1024 * 1024, 4 * 1024 * 1024, 16 * 1024 * 1024)
"""Sizes of a stack's parameters that are tried."""
SECONDS = 5.0
"""What a calibration may take, more or less: what would be longer is not tried."""


def choose_mode(
    roster: Roster,
    samples: Samples,
    group: int,
    asked: Literal["auto", "stack", "loop"],
    chunk: int,
    workers: int,
    times: int = 1,
) -> Mode:
    """Stack or loop, and how many rows at once: as asked, else the faster one on this machine.

    Jobs of this kind will be run `times` times. If one row after the other takes all of them no longer than it takes
    to find out what is faster, nothing is measured.
    """
    if asked == "loop":
        return Mode(False, 1)
    probe, each = _Probe(roster, samples, group), max(-(-len(roster.groups[group]) // workers), 1)
    known, stackable = _Known(), f"{probe.signature} stackable"
    share = f"{probe.signature} batch {roster.training.batch_size} share {each} {asked}"
    deadline, alone = time.monotonic() + SECONDS, 0.0
    if asked == "auto" and not known.has(stackable, share):
        alone = probe.looped(deadline)
        if alone * times * roster.rounds * _rows_of_a_round(roster, group, workers, probe.steps) < SECONDS:
            return Mode(False, 1)
    if not known.has(stackable, share):
        name = roster.models[group].name
        waiting.tell(f"calibrating {name}: is it faster stacked? (about {SECONDS:.0f} s, once on this machine)")
    if not known.recall(stackable, probe.stackable):
        if asked == "stack":
            raise ConfigError(
                f"model {roster.models[group].name!r} cannot be stacked",
                expected="no batch-norm statistics, dropout, data-dependent control flow, optimisers out of step, "
                "schedules or early stopping",
                cure="Use --engine.mode loop (or auto).",
            )
        return Mode(False, 1)
    if chunk:
        return Mode(True, chunk)

    def fastest() -> int:
        sizes = sorted({max(1, min(each, b // (4 * probe.width))) for b in CHUNK_BYTES})
        took = {0: alone or probe.looped(deadline)} if asked == "auto" else {}
        for size in sizes:
            if not took or time.monotonic() + 2 * size * min(took.values()) < deadline:
                took[size] = probe.stacked(size, deadline)
        return min(took, key=lambda size: took[size])

    best = known.recall(share, fastest)
    return Mode(best > 0, max(best, 1))


def _rows_of_a_round(roster: Roster, group: int, workers: int, steps: int) -> float:
    """How many times a worker does in a round what a probe does with one row."""
    return sum(roster.steps(int(node)) for node in roster.groups[group]) / max(steps, 1) / workers


class _Probe:
    """A few rows of the model, trained for a moment with made-up order of the real data."""

    def __init__(self, roster: Roster, samples: Samples, group: int) -> None:
        self.roster, self.samples, self.group = roster, samples, group
        self.architecture = architectures(roster, samples)[group]
        self.width = max(self.architecture.width, 1)
        self.steps = min(4, max(roster.steps(int(n)) for n in roster.groups[group]))
        """How many mini-batches a row is trained for."""
        x = samples.train_x
        plain = isinstance(x, torch.Tensor) and x.is_floating_point() and samples.classes
        kind = ",".join(map(str, samples.shape)) if plain else samples.kind
        model, clamp = roster.models[group], roster.training.clamp is not None
        alike = not roster.training.keep_optimiser or roster.training.batches is not None
        alike &= not (roster.training.renew_optimiser and roster.optimiser.make().slots)
        self.in_step = alike and roster.training.patience is None and not roster.optimiser.make().scheduled
        self.signature = (
            f"{self.architecture.signature} {model.settings} {_text(model)} on {kind} {roster.objective.name} "
            f"{_text(roster.objective)} {roster.optimiser.name} {_text(roster.optimiser)} clamp {clamp} "
            f"in step {self.in_step} kept {roster.training.keep_optimiser} {roster.device} torch {torch.__version__}"
        )

    def _trainer(self, rows: int) -> Trainer:
        steps, size = self.steps, self.roster.training.batch_size
        whole = np.arange(min(len(self.samples.train_y), steps * size))
        roster = replace(
            self.roster,
            groups=tuple(np.arange(rows) for _ in self.roster.groups),
            train=tuple(whole[: max(len(whole) - row % 2, 1)] for row in range(rows)),  # so that a batch is padded
            validation=tuple(whole[:0] for _ in range(rows)),
            degree=np.zeros(rows, np.int64),
            labels=self.roster.labels[:1].expand(rows, -1),
            training=replace(self.roster.training, epochs=None, batches=steps, keep_optimiser=False, patience=None),
        )
        matrix = torch.zeros(rows, self.architecture.width, device=self.roster.device)
        integers = torch.zeros(rows, self.architecture.integers, dtype=torch.int64, device=self.roster.device)
        for row in range(rows):
            self.architecture.read(matrix[row], integers[row])
        return Trainer(roster, self.samples, self.group, self.architecture, matrix, integers)

    def stackable(self) -> bool:
        """Whether vmap can take the model, in training and in evaluation, and gives what the model itself gives."""
        # running statistics, optimisers at different counts, nodes that stop one by one
        if self.architecture.buffers.size or not self.in_step:
            return False
        both, few = np.arange(2), torch.arange(min(len(self.samples.test_y), 4))
        stacked, looped = self._trainer(2), self._trainer(2)
        alike, own = self.samples.inputs(few, test=True), self.samples.inputs(few.expand(2, -1), test=True)
        try:
            stacked.train_stack(both, 1)
            said = [stacked.outputs(both, alike), stacked.outputs(both, own, own=True)]
        except Exception:
            return False
        for row in range(2):
            looped.train_row(row, 1)
        trained = torch.allclose(looped.matrix, stacked.matrix, rtol=1e-2, atol=1e-4)
        wanted = torch.cat([stacked.outputs(both[[row]], alike) for row in both])  # a single row is not stacked
        return trained and all(torch.allclose(s, wanted, rtol=1e-2, atol=1e-3) for s in said)

    def stacked(self, rows: int, deadline: float) -> float:
        """Seconds per row when this many are stacked."""
        trainer = self._trainer(rows)
        return _best(lambda: trainer.train_stack(np.arange(rows), 1), deadline) / rows

    def looped(self, deadline: float) -> float:
        """Seconds per row one by one."""
        trainer = self._trainer(1)
        return _best(lambda: trainer.train_row(0, 1), deadline)


def _text(choice: Choice) -> str:
    """A mark of the file a part stands in: it may change, and keep its name."""
    module = sys.modules.get(choice.part.target.__module__)
    file = getattr(module, "__file__", None)
    return hashlib.blake2b(Path(file).read_bytes(), digest_size=4).hexdigest() if file else ""


def _best(run: Callable[[], object], deadline: float) -> float:
    """The least of up to six times that it takes, fewer if the deadline has come; the first is without its habits."""
    took: list[float] = []
    while not took or (len(took) < 6 and time.monotonic() < deadline):
        start = time.perf_counter()
        run()
        took.append(time.perf_counter() - start)
    return min(took[1:] or took)


class _Known:
    """What was measured on this machine before, in a small file of the cache folder."""

    def __init__(self) -> None:
        self.path = files.cache_folder() / f"modes-{platform.node() or 'machine'}.json"
        self.known: dict[str, int] = {}
        with contextlib.suppress(OSError, ValueError, RecursionError):  # what is damaged is measured anew
            found = files.read_json(self.path)
            self.known = {key: value for key, value in found.items() if isinstance(value, int) and value >= 0}

    def has(self, *keys: str) -> bool:
        """Whether all of this is known; of what cannot be stacked no more than that."""
        return self.known.get(keys[0]) == 0 or all(key in self.known for key in keys)

    def recall(self, key: str, measure: Callable[[], int]) -> int:
        """The remembered value, or a new one that is remembered from now on."""
        if key not in self.known:
            self.known[key] = int(measure())
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile(dir=self.path.parent, delete=False) as file:  # others may write, too
                    file.write(files.as_json(self.known))
                os.replace(file.name, self.path)
            except OSError:
                pass  # a cache that cannot be written only costs the next run a measurement
        return self.known[key]

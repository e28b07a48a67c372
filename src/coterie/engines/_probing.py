"""Some rows of a model, trained for a moment: how long that takes, and whether they can be stacked at all."""

import hashlib
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from coterie.job import Roster, Samples
from coterie.node.architecture import architectures
from coterie.node.training import Trainer
from coterie.parts import Choice


class Probe:
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

    def seconds(self, rows: int, most: float) -> float:
        """Seconds per row when this many are stacked, or for 0 one by one; found in so many seconds.

        On a processor they are its own seconds: what else runs on the machine now says nothing of the way.
        """
        trainer = self._trainer(max(rows, 1))
        clock = time.thread_time if self.roster.device == "cpu" else time.perf_counter
        if not rows:
            return _best(lambda: trainer.train_row(0, 1), most, clock)
        return _best(lambda: trainer.train_stack(np.arange(rows), 1), most, clock) / rows


def _text(choice: Choice) -> str:
    """A digest of the source file of a part: where it was edited, what was measured before counts no more."""
    module = sys.modules.get(choice.part.target.__module__)
    file = getattr(module, "__file__", None)
    return hashlib.blake2b(Path(file).read_bytes(), digest_size=4).hexdigest() if file else ""


def _best(run: Callable[[], object], most: float, clock: Callable[[], float]) -> float:
    """The least of up to six times that it takes, fewer if that is more than so many seconds.

    The first does not count: it is without its habits, and traces what the others replay.
    """
    run()
    took, deadline = list[float](), time.monotonic() + most
    while not took or (len(took) < 6 and time.monotonic() < deadline):
        start = clock()
        run()
        took.append(clock() - start)
    return min(took)

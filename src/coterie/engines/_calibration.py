"""Which way of computing rows is faster here: measured once per machine and model, then remembered."""

import json
import os
import platform
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from coterie.engines._job import Job, Samples
from coterie.engines._site import Mode, architectures
from coterie.engines._training import Trainer

CHUNK_BYTES = (256 * 1024, 1024 * 1024, 4 * 1024 * 1024, 16 * 1024 * 1024)
"""Sizes of a stack's parameters that are tried."""


def choose_mode(
    job: Job, samples: Samples, group: int, asked: Literal["auto", "stack", "loop"], chunk: int, workers: int
) -> Mode:
    """Stack or loop, and how many rows at once: as asked, else the faster one on this machine."""
    rows = len(job.groups[group])
    if asked == "loop":
        return Mode(False, 1)
    probe = _Probe(job, samples, group)
    if not probe.stackable():
        if asked == "stack":
            raise_unstackable(job.models[group].name)
        return Mode(False, 1)
    if chunk:
        return Mode(True, chunk)
    share = max(-(-rows // workers), 1)
    sizes = sorted({max(1, min(share, b // (4 * probe.width))) for b in CHUNK_BYTES})
    if asked == "auto" and share == 1:
        return Mode(False, 1)
    memory = _memory_file()
    key = f"{probe.signature} batch {job.training.batch_size} share {share} {asked}"
    known = json.loads(memory.read_text()) if memory.is_file() else {}
    if key not in known:
        times = {size: probe.stacked(size) for size in sizes if size > 1 or asked == "stack"}
        if asked == "auto":
            times[0] = probe.looped()
        known[key] = min(times, key=lambda size: times[size])
        _remember(memory, known)
    best = int(known[key])
    return Mode(best > 0, max(best, 1))


def raise_unstackable(name: str) -> None:
    """The error for a model that vmap cannot take."""
    from coterie.errors import ConfigError

    raise ConfigError(
        f"model {name!r} cannot be stacked",
        expected="a model without batch-norm statistics, dropout or data-dependent control flow",
        cure="Use --engine.mode loop (or auto).",
    )


class _Probe:
    """A few rows of the model, trained for a moment with made-up order of the real data."""

    def __init__(self, job: Job, samples: Samples, group: int) -> None:
        self.job, self.samples, self.group = job, samples, group
        self.architecture = architectures(job, samples)[group]
        self.width = max(self.architecture.width, 1)
        shape = ",".join(map(str, samples.shape))
        clamp = job.training.clamp is not None
        self.signature = (
            f"{self.architecture.signature} on {shape} {job.objective.name} {job.optimiser.name} clamp {clamp} "
            f"{job.device} torch {torch.__version__}"
        )

    def _trainer(self, rows: int) -> Trainer:
        steps = min(4, max(self.job.steps(int(n)) for n in self.job.groups[self.group]))
        size = self.job.training.batch_size
        whole = np.arange(min(len(self.samples.train_y), steps * size))
        job = replace(
            self.job,
            groups=tuple(np.arange(rows) for _ in self.job.groups),
            train=(whole,) * rows,
            validation=(whole[:0],) * rows,
            degree=np.zeros(rows, np.int64),
            labels=self.job.labels[:1].expand(rows, -1),
            training=replace(self.job.training, epochs=None, batches=steps, keep_optimiser=False),
        )
        matrix = torch.zeros(rows, self.architecture.width, device=self.job.device)
        integers = torch.zeros(rows, self.architecture.integers, dtype=torch.int64, device=self.job.device)
        for row in range(rows):
            self.architecture.read(matrix[row], integers[row])
        return Trainer(job, self.samples, self.group, self.architecture, matrix, integers)

    def stackable(self) -> bool:
        """Whether vmap can take the model's training step and gives what the model itself gives."""
        if self.architecture.buffers.size or (
            self.job.training.keep_optimiser and not self.job.training.batches
        ):  # running statistics, or optimisers that are at different counts
            return False
        stacked = self._trainer(2)
        try:
            stacked.train_stack(np.arange(2), 1)
        except Exception:
            return False
        looped = self._trainer(2)
        looped.train_row(0, 1)
        return torch.allclose(looped.matrix[0], stacked.matrix[0], rtol=1e-2, atol=1e-4)

    def stacked(self, rows: int) -> float:
        """Seconds per row when this many are stacked."""
        trainer = self._trainer(rows)
        return _best(lambda: trainer.train_stack(np.arange(rows), 1)) / rows

    def looped(self) -> float:
        """Seconds per row one by one."""
        trainer = self._trainer(4)
        return _best(lambda: [trainer.train_row(r, 1) for r in range(4)]) / 4


def _best(run: object) -> float:
    assert callable(run)
    run()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def cache_folder() -> Path:
    """Where measurements and downloads are kept: `COTERIE_CACHE`, or the user's cache folder."""
    named = os.environ.get("COTERIE_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "coterie"


def _memory_file() -> Path:
    return cache_folder() / f"modes-{platform.node() or 'machine'}.json"


def _remember(path: Path, known: dict[str, int]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(known, file, indent=1)
        os.replace(file.name, path)
    except OSError:
        return  # a cache that cannot be written only costs the next run a measurement

"""How much memory a job will take, estimated before any of it is taken, and what would fit if it does not."""

from dataclasses import dataclass

import numpy as np
import torch

from coterie.datasets import tensors
from coterie.errors import ConfigError
from coterie.job import Job
from coterie.node.architecture import Architecture, architectures
from coterie.node.cost import cost
from coterie.processes import memory_free
from coterie.report.tables import humanise

FLOAT = 4
PROCESS = 150_000_000
"""What a worker's process takes for itself: libraries and interpreter, as far as processes do not share them."""
PEER = 350_000_000
"""The same of a peer's, which shares less."""


@dataclass(frozen=True)
class Need:
    """The memory of a job in bytes: what each node takes, and what does not depend on their number."""

    nodes: int
    each: float
    fixed: float

    @property
    def all(self) -> float:
        """All of it."""
        return self.nodes * self.each + self.fixed

    def check(self, method: str) -> None:
        """Refuse what cannot be had here, and say what would fit."""
        free = memory_free()
        if free is None or self.all <= free:
            return
        fit = int((free - self.fixed) / self.each) if free > self.fixed else 0
        fits = f"About {fit} nodes would fit: --nodes {fit}; or take" if fit > 1 else "Take"
        cure = f"{fits} a smaller model, or fewer workers (--engine.workers 1)."
        raise ConfigError(
            f"{method} does not fit into memory",
            expected=f"up to {humanise(free)}",
            got=f"about {humanise(self.all)}",
            cure=cure,
        )


def stacked_need(job: Job, workers: int, device: str) -> Need:
    """Matrices of all rows, with what rules, optimisers and measures keep beside them, and some worker processes."""
    here = workers if device == "cpu" else 1
    made, rule = architectures(job.roster, job.samples), job.rule
    beside = (rule.span == "model") + rule.squares + job.best + 2 * ("steps" in job.measures)
    if job.roster.training.keep_optimiser:
        beside += len(job.roster.optimiser.make().slots)
    rows = sum(
        len(nodes) * (FLOAT * a.width + FLOAT * a.layout.size * beside + _memory(job, nodes, a))
        for nodes, a in zip(job.roster.groups, made, strict=True)
    )
    return Need(job.roster.nodes, rows / job.roster.nodes, here * _step(job, made) + (here - 1) * PROCESS)


def alone_need(job: Job, processes: int = 0) -> Need:
    """Nodes that are each alone with a model, sums in double precision and what has come, in processes or in this."""
    made = architectures(job.roster, job.samples)
    rows = sum(len(nodes) * 6 * FLOAT * a.width for nodes, a in zip(job.roster.groups, made, strict=True))
    each, step = rows / job.roster.nodes, _step(job, made)
    if not processes:
        return Need(job.roster.nodes, each, step)
    data = sum(t.nbytes for x in (job.samples.train_x, job.samples.test_x) for t in tensors(x))
    return Need(job.roster.nodes, each + step + PEER + data, 0)


def _memory(job: Job, nodes: np.ndarray, architecture: Architecture) -> float:
    """Bytes that the rule keeps for a node."""
    me = job.roster.me(nodes[:1], 0, architecture.layout)
    kept = job.rule.init(me, torch.zeros(1, architecture.layout.size))
    return float(sum(t.nbytes for t in kept.values()))


def _step(job: Job, made: list[Architecture]) -> float:
    """Bytes of a training step: gradients with the optimiser's, and what forward passes keep for backward ones."""
    kept = [cost(model, job.samples).activation_bytes for model in job.roster.models]
    batch = job.roster.training.batch_size
    return max(3 * FLOAT * a.width + batch * each for a, each in zip(made, kept, strict=True))

"""Evaluation: how models are judged by metrics, and when a node's training is better taken back."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from coterie.datasets import Inputs
from coterie.job import Indices
from coterie.metrics import Mean, Metric, Occasion, Values
from coterie.node.rows import Rows, pad

BATCH = 250
"""Samples that a model is shown at once."""


def score(models: Rows, rows: Indices, occasion: Occasion, test: Indices) -> dict[str, Values]:
    """Judge these rows by the metrics of this occasion, on test samples or each on its own validation data.

    A value for each row under the name of the column; NaN where a row has no validation data.
    """
    found = {column: make() for column, make in models.judges[occasion].items()}
    own = occasion == "validation"
    if own and not any(len(models.roster.validation[int(models.nodes[r])]) for r in rows):
        return {name: np.full(len(rows), np.nan) for name in found}
    _feed(list(found.values()), models, rows, None if own else test)
    return {name: metric.value() for name, metric in found.items()}


@contextlib.contextmanager
def lent(models: Rows, rows: Indices, others: Tensor) -> Iterator[None]:
    """Other models in the place of these rows for a while."""
    where = torch.as_tensor(rows)
    own = models.matrix[where]  # a copy
    models.matrix[where] = others
    try:
        yield
    finally:
        models.matrix[where] = own


def _feed(metrics: list[Metric], models: Rows, rows: Indices, test: Indices | None) -> None:
    for x, y, real in _batches(models, rows, test) if metrics else ():
        for generated in {metric.generated for metric in metrics}:
            said = (models.answers if generated else models.outputs)(rows, x, own=test is None)
            for metric in (m for m in metrics if m.generated == generated):
                metric.add(said, y, real.to(said.device))


def _batches(models: Rows, rows: Indices, test: Indices | None) -> Iterator[tuple[Inputs, Tensor, Tensor]]:
    """Inputs, targets [m, B, …] and which samples are real [m, B]; test inputs are the same for all rows."""
    samples = models.samples
    parts = [test] if test is not None else [models.roster.validation[int(models.nodes[r])] for r in rows]
    for start in range(0, max(map(len, parts)), BATCH):
        chunks = [part[start : start + BATCH] for part in parts]
        if test is not None:
            where = torch.as_tensor(chunks[0])
            targets = samples.targets(where, test=True)
            shared = targets.expand(len(rows), *targets.shape)
            yield samples.inputs(where, test=True), shared, torch.ones(shared.shape[:2])
        else:
            index, share = pad(chunks, len(rows), BATCH)
            yield samples.inputs(index), samples.targets(index), (share > 0).float()


class _PlainLoss(Mean):
    """The mean of what one model's loss is outside of training."""

    def __init__(self, models: Rows, row: int) -> None:
        self.models, self.me = models, replace(models.me(row, 0), seed=0)  # as an objective is handed it in training

    def each(self, outputs: Tensor, targets: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        return self.models.plain_loss(outputs[0], targets[0], self.me).unsqueeze(0), real


class Curves:
    """The loss of nodes' models on their validation data as training goes on, epoch by epoch: what training minimises.

    A node without validation data has none.
    """

    def __init__(self, models: Rows) -> None:
        self.models = models
        self.points: dict[int, dict[int, float]] = {}
        """By node, and by how many epochs its model has behind it."""

    def note(self, row: int, epoch: int) -> None:
        """Judge the model of a row as it is now."""
        models, node = self.models, int(self.models.nodes[row])
        own, me = torch.as_tensor(models.roster.validation[node]), replace(models.me(row, 0), seed=0)
        if not len(own):
            return
        models.point(row)
        module, total = models.architecture.module.eval(), 0.0
        with torch.no_grad():
            for where in own.split(BATCH):
                said = module(models.samples.inputs(where))
                loss = models.training_loss(said, models.samples.targets(where), me)
                total += float(loss.sum(dtype=torch.float64))
        self.points.setdefault(node, {})[epoch] = total / len(own)


class Caution:
    """Looks at one node's validation loss after each epoch, and takes its training back when that has risen."""

    def __init__(self, models: Rows, row: int, memory: list[Tensor]) -> None:
        self.models, self.row, self.lowest, self.risen = models, row, math.inf, 0
        self._tensors = [models.matrix, models.integers, *memory]
        self._before = [t[row].clone() for t in self._tensors]

    def gives_up(self) -> bool:
        """Whether the loss stood above its lowest often enough in a row: then all is as it was before the round."""
        measure = _PlainLoss(self.models, self.row)
        _feed([measure], self.models, np.array([self.row]), None)
        loss = float(measure.value()[0])
        self.models.architecture.train()
        self.risen = 0 if loss <= self.lowest else self.risen + 1  # a loss that is no number has risen, too
        self.lowest = min(self.lowest, loss)
        if self.risen < (self.models.roster.training.patience or math.inf):
            return False
        for tensor, before in zip(self._tensors, self._before, strict=True):
            tensor[self.row] = before
        return True

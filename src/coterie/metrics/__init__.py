"""Metrics: how a model is judged. One file each; found by looking.

A metric is a class, child of `Metric`, made anew for each evaluation. It is fed what models say batch by batch, for one
model or several at once: outputs `[m, B, …]`, targets `[m, B, …]` and which samples are real `[m, B]`, 1 or 0, because
batches may be padded. One that judges texts says `generated = True` and is fed, instead of scores, the tokens that
models generate. In the end it gives one number per model. Most are means: a child of `Mean` says what one sample
is worth. Whatever a metric keeps must depend on the samples only, not on how they were cut into batches.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.datasets import IGNORED
from coterie.errors import ConfigError
from coterie.parts import Choice

Values = NDArray[np.float64]
Occasion = Literal["test", "validation", "merged", "peak"]
"""When models are judged: on test samples after training, on one's own validation samples then, on test samples again
after the merge, and those that lessons keep beside the present ones."""
OCCASIONS: tuple[Occasion, ...] = ("test", "validation", "merged", "peak")
DEFAULT = tuple(Choice("metrics", name) for name in ("accuracy", "loss", "f1"))


class Metric(ABC):
    """How a model is judged: a class whose fields, if it is a dataclass, are the settings."""

    lower: ClassVar[bool] = False
    """Whether less of it is better."""
    validated: ClassVar[bool] = True
    """Whether it is also taken on each node's own validation samples, which are few."""
    generated: ClassVar[bool] = False
    """Whether it is fed what models generate, tokens as in targets, and not their scores."""

    @abstractmethod
    def add(self, outputs: Tensor, targets: Tensor, real: Tensor) -> None:
        """Take a batch into account; `real` is 0 where a sample is padding and must not count."""

    @abstractmethod
    def value(self) -> Values:
        """The number for each model, `[m]`; NaN for one that had no sample."""


BASE = Metric


class Mean(Metric):
    """A metric that is the mean of a number for each sample, or for each token of a sample."""

    _sum: Values | float = 0.0
    _count: Values | float = 0.0

    @abstractmethod
    def each(self, outputs: Tensor, targets: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """What samples or tokens are worth, and how much each counts (`real`, or 0), both `[m, N]`."""

    def add(self, outputs: Tensor, targets: Tensor, real: Tensor) -> None:
        """Add up what the samples of a batch are worth."""
        worth, counts = self.each(outputs, targets, real)
        self._sum = self._sum + (worth * counts).sum(1).double().cpu().numpy()
        self._count = self._count + counts.sum(1).double().cpu().numpy()

    def value(self) -> Values:
        """Divide the sum by how many there were."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self._sum / self._count, np.float64)


def labelled(metric: Metric, outputs: Tensor, targets: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores `[m, N, C]`, labels `[m, N]` and which of them count, for metrics of class labels or tokens.

    Tokens stand in a row, as many samples would; those whose target is -100 do not count.
    """
    if targets.is_floating_point() or outputs.shape[:-1] != targets.shape:
        raise ConfigError(
            f"metric {type(metric).__name__.lower()}",
            expected="class labels or tokens, and a score for each class",
            got=f"{targets.dtype} targets {list(targets.shape[1:])} for outputs {list(outputs.shape[1:])}",
            cure="Learn numbers with --objective squared_error --metrics error.",
        )
    if targets.dim() == 2:  # one label for each sample: nothing is ignored
        return outputs, targets, real
    labels = targets.flatten(1)
    counts = real.view(*real.shape, *[1] * (targets.dim() - 2)).expand(targets.shape).flatten(1)
    return outputs.flatten(1, -2), labels.clamp(min=0), counts * (labels != IGNORED)


def confused(metric: Metric, outputs: Tensor, targets: Tensor, real: Tensor) -> NDArray[np.int64]:
    """How many samples of a batch are of a class and were taken for another, `[m, true, said]`."""
    scores, labels, counts = labelled(metric, outputs, targets, real)
    rows, _, classes = scores.shape
    cell = (labels * classes + scores.argmax(-1)) + torch.arange(rows, device=labels.device)[:, None] * classes**2
    hits = torch.bincount(cell.reshape(-1), counts.reshape(-1).double(), minlength=rows * classes**2)
    return hits.long().cpu().numpy().reshape(rows, classes, classes)


def per_number(metric: Metric, outputs: Tensor, targets: Tensor, apart: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The mean over the numbers of each target, `[m, N]`, of what `apart` says of an output and its target."""
    if outputs.numel() != targets.numel():
        raise ConfigError(
            f"metric {type(metric).__name__.lower()}",
            expected="an output for each number of a target",
            got=f"outputs {list(outputs.shape[1:])} for targets {list(targets.shape[1:])}",
            cure="Let the model give as many numbers as a target has, or judge by something else: --metrics loss.",
        )
    each = apart(outputs.reshape(targets.shape), targets)
    return each.flatten(2).mean(2) if each.dim() > 2 else each


def label(metric: Choice) -> str:
    """The name of a metric in columns: that of the part, or of the class in a user's own file."""
    return metric.name.rpartition(":")[2].lower()


def taken(metrics: Sequence[Choice], occasion: Occasion) -> tuple[Choice, ...]:
    """The metrics by which models are judged on an occasion: all, those that are `validated`, or the first one."""
    if occasion in ("merged", "peak"):
        return tuple(metrics[:1])
    return tuple(m for m in metrics if occasion == "test" or m.make().validated)


def columns(metrics: Sequence[Choice]) -> tuple[str, ...]:
    """The columns of records that hold these metrics, in order."""
    return tuple(f"{occasion}_{label(m)}" for occasion in OCCASIONS for m in taken(metrics, occasion))

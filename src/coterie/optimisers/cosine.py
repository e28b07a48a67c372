"""A learning rate that rises, and then falls along a cosine."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from coterie.optimisers import Optimiser
from coterie.optimisers.adamw import AdamW


@dataclass(frozen=True)
class Cosine(Optimiser):
    """Another optimiser whose rate rises along a line, and then falls along half a cosine, as epochs go by.

        lr(e) = start + (lr − start)·e/warmup                                      e < warmup
        lr(e) = floor + (lr − floor)·(1 + cos(π·(e − warmup)/(E − warmup)))/2      else

    e is how many epochs the model has behind it, by whomever it was trained, and E how many it has in all (`epochs`, or
    else what rounds or the turns of a relay make); nobody who receives a model warms up anew. `of` is the optimiser, of
    which everything but the rate counts. Models are trained one by one, since each may be elsewhere on its way.

    Reference: Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017
    """

    scheduled: ClassVar[bool] = True
    of: Optimiser = AdamW()
    lr: float = 3e-5
    floor: float = 1e-5
    warmup: float = 1.0
    start: float = 1e-6
    epochs: float | None = None

    def __post_init__(self) -> None:
        if self.of.scheduled:
            raise ValueError("it holds an optimiser, not another schedule: --optimiser.of adamw")
        if not (0 <= self.start <= self.lr and 0 <= self.floor <= self.lr):
            raise ValueError(f"start {self.start:g} and floor {self.floor:g} must lie between 0 and lr {self.lr:g}")
        if self.warmup < 0 or (self.epochs is not None and self.epochs <= 0):
            raise ValueError(f"warmup {self.warmup:g} and epochs {self.epochs} must not be negative, epochs not 0")

    @property
    def slots(self) -> tuple[str, ...]:
        return self.of.slots

    @property
    def spares(self) -> bool:
        return self.of.spares

    def at(self, epoch: float, epochs: float) -> Optimiser:
        return self._with(self.rate(epoch, epochs if self.epochs is None else self.epochs))

    def rate(self, epoch: float, epochs: float) -> float:
        """The learning rate after so many epochs of so many in all."""
        if epoch < self.warmup:
            return self.start + (self.lr - self.start) * epoch / self.warmup
        along = (epoch - self.warmup) / max(epochs - self.warmup, 1e-9)
        return self.floor + (self.lr - self.floor) * (1 + math.cos(math.pi * min(along, 1.0))) / 2

    def step(self, w: Tensor, gradient: Tensor, buffers: dict[str, Tensor], count: int) -> None:
        """A step at the highest rate: for lessons, which know no epochs."""
        self._with(self.lr).step(w, gradient, buffers, count)

    def _with(self, rate: float) -> Optimiser:
        held: Any = self.of
        made: Optimiser = replace(held, lr=rate)
        return made

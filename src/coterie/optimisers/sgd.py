"""Stochastic gradient descent."""

from dataclasses import dataclass

from torch import Tensor

from coterie.optimisers import Optimiser


@dataclass(frozen=True)
class SGD(Optimiser):
    """Stochastic gradient descent with momentum and weight decay.

    m ← momentum·m + (g + weight_decay·w),   w ← w − lr·m
    """

    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("momentum",) if self.momentum else ()

    def step(self, w: Tensor, gradient: Tensor, buffers: dict[str, Tensor], count: int) -> None:
        if self.weight_decay:
            gradient = gradient.add_(w, alpha=self.weight_decay)
        if self.momentum:
            gradient = buffers["momentum"].mul_(self.momentum).add_(gradient)
        w.sub_(gradient, alpha=self.lr)

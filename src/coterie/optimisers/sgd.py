"""Stochastic gradient descent."""

from dataclasses import dataclass

import torch
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
            momentum = buffers["momentum"]
            gradient = torch.add(gradient, momentum, alpha=self.momentum, out=momentum)  # one pass, not two
        w.sub_(gradient, alpha=self.lr)

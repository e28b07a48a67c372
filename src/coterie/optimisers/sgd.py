"""Stochastic gradient descent."""

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.optimisers import Optimiser


@dataclass(frozen=True)
class SGD(Optimiser):
    """Stochastic gradient descent with momentum, weight decay, and a pull back to where training began.

    m ← momentum·m + (g + weight_decay·w + prox·(w − w⁰)),   w ← w − lr·m

    Without `decay_biases` only weights decay, tensors of two dimensions or more. w⁰ is w before the first step: that of
    the round, unless the optimiser is kept from round to round.

    Reference: Li et al., Federated Optimization in Heterogeneous Networks, 2020, for `prox`
    """

    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    decay_biases: bool = True
    prox: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        return (*(["momentum"] if self.momentum else []), *(["origin"] if self.prox else []))

    @property
    def spares(self) -> bool:
        return bool(self.weight_decay) and not self.decay_biases

    def step(self, w: Tensor, gradient: Tensor, buffers: dict[str, Tensor], count: int) -> None:
        if self.spares:
            gradient = gradient.addcmul_(w, buffers["weights"], value=self.weight_decay)
        elif self.weight_decay:
            gradient = gradient.add_(w, alpha=self.weight_decay)
        if self.prox and count == 1:
            buffers["origin"].copy_(w)
        elif self.prox:
            gradient = gradient.add_(w, alpha=self.prox).sub_(buffers["origin"], alpha=self.prox)
        if self.momentum:
            momentum = buffers["momentum"]
            gradient = torch.add(gradient, momentum, alpha=self.momentum, out=momentum)  # one pass, not two
        w.sub_(gradient, alpha=self.lr)

"""Adam with decoupled weight decay."""

from dataclasses import dataclass

from torch import Tensor

from coterie.optimisers import Optimiser
from coterie.optimisers.adam import adam_step


@dataclass(frozen=True)
class AdamW(Optimiser):
    """Adam whose weight decay acts on the parameters alone, not through the gradient's moments.

        w ← (1 − lr·weight_decay)·w, then Adam's step

    Reference: Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019
    """

    slots = ("mean", "square")
    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01

    def step(self, w: Tensor, gradient: Tensor, buffers: dict[str, Tensor], count: int) -> None:
        w.mul_(1 - self.lr * self.weight_decay)
        adam_step(w, gradient, buffers, count, self.lr, self.beta1, self.beta2, self.eps)

"""Adam."""

from dataclasses import dataclass

from torch import Tensor

from coterie.optimisers import Optimiser


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam: steps scaled by running means of the gradient and of its square.

        m ← β₁m + (1−β₁)g,  v ← β₂v + (1−β₂)g²,  w ← w − lr · m/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + ε)

    Reference: Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015
    """

    slots = ("mean", "square")
    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def step(self, w: Tensor, gradient: Tensor, buffers: dict[str, Tensor], count: int) -> None:
        if self.weight_decay:
            gradient = gradient.add_(w, alpha=self.weight_decay)
        adam_step(w, gradient, buffers, count, self.lr, self.beta1, self.beta2, self.eps)


def adam_step(
    w: Tensor,
    gradient: Tensor,
    buffers: dict[str, Tensor],
    count: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """The update that Adam and AdamW share."""
    mean = buffers["mean"].lerp_(gradient, 1 - beta1)
    square = buffers["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    scale = square.sqrt().div_((1 - beta2**count) ** 0.5).add_(eps)
    w.addcdiv_(mean, scale, value=-lr / (1 - beta1**count))

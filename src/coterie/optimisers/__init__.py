"""Optimisers: how a gradient becomes a step. One file each; found by looking.

Written over tensors of any shape and element by element, so that the same lines serve one node's tensors and a stack's.
"""

from typing import ClassVar

from torch import Tensor


class Optimiser:
    """What an optimiser keeps for each parameter, and one step."""

    room: ClassVar[str] = "optimisers"
    scheduled: ClassVar[bool] = False
    """Whether it is another one as training goes on: then engines ask for it in every step, node by node."""

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the buffers, each of the parameters' shape, zero at first."""
        return ()

    @property
    def spares(self) -> bool:
        """Whether biases are treated in another way: then its buffers hold `weights`, 1 for weights, 0 for others."""
        return False

    def step(self, w: Tensor, gradient: Tensor, buffers: dict[str, Tensor], count: int) -> None:
        """Change `w` and its buffers in place; `count` is 1 at the first step. `gradient` may be used as scratch."""
        raise NotImplementedError

    def at(self, epoch: float, epochs: float) -> "Optimiser":
        """The optimiser for the next step of a model that has so many epochs behind it, of so many in all."""
        return self


BASE = Optimiser
"""What a user's own must inherit."""

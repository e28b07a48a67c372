"""Optimisers: how a gradient becomes a step. One file each; found by looking.

Written over tensors of any shape and element by element, so that the same lines serve one node's tensors and a stack's.
"""

from torch import Tensor


class Optimiser:
    """What an optimiser keeps for each parameter, and one step."""

    slots: tuple[str, ...] = ()
    """The names of the buffers, each of the parameters' shape, zero at first."""

    def step(self, w: Tensor, gradient: Tensor, buffers: dict[str, Tensor], count: int) -> None:
        """Change `w` and its buffers in place; `count` is 1 at the first step. `gradient` may be used as scratch."""
        raise NotImplementedError

"""Augmentations: how training samples are varied whenever they are trained on. One file each; found by looking.

An augmentation maps `(x, draw)` to samples of the same shape. `x` has the samples of some mini-batches, `[N, *shape]`,
or several such tensors; `draw(…)` gives numbers for each sample, uniform between 0 and 1, and `draw.normal(…)` normal
ones. These are keyed by node, round, step and place in the mini-batch, so that every engine varies alike.
"""

import contextlib
import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.datasets import Inputs
from coterie.randomness import uniforms

Augment = Callable[[Inputs, "Draw"], Inputs]


class Draw:
    """What some samples are varied by: numbers of its own for each, whoever else is varied at the same time."""

    def __init__(self, seed: int, nodes: NDArray[np.int64], round: int, step: int, size: int, device: str) -> None:
        """For mini-batches of `size` samples of these nodes, one after the other."""
        self._seed, self._round, self._step, self._device = seed, round, step, device
        self._nodes, self._places = np.repeat(nodes, size), np.tile(np.arange(size), len(nodes))
        self._calls = 0

    def __call__(self, *shape: int) -> Tensor:
        """Uniform numbers in [0, 1), `[N, *shape]`; others at each call."""
        return self._numbers(*shape).float().to(self._device)

    def normal(self, *shape: int) -> Tensor:
        """Normal numbers, `[N, *shape]`; others at each call."""
        drawn = self._numbers(*shape).clamp(min=2.0**-54)
        return (torch.erfinv(2 * drawn - 1) * 2**0.5).float().to(self._device)

    @contextlib.contextmanager
    def each(self) -> Iterator[list[int]]:
        """A seed for each sample, for what draws from PyTorch's or Python's own generators, which are left alone."""
        seeds = (self._numbers() * 2.0**53).long().tolist()
        kept = random.getstate()
        try:
            with torch.random.fork_rng(devices=[]):
                yield seeds
        finally:
            random.setstate(kept)

    def _numbers(self, *shape: int) -> Tensor:
        self._calls += 1
        count = int(np.prod(shape, dtype=np.int64))
        who = (self._nodes[:, None], self._round, self._step, self._places[:, None], self._calls)
        drawn = uniforms(self._seed, "augmentation", *who, np.arange(count))
        return torch.from_numpy(drawn.reshape(len(self._nodes), *shape))

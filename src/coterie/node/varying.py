"""Training samples as augmentations vary them."""

import numpy as np
import torch

from coterie.augmentations import Draw
from coterie.datasets import Inputs, each, tensors
from coterie.errors import ConfigError
from coterie.job import Indices, Roster, Samples


class Varying:
    """The augmentations of a job, one after the other."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.ways = [(choice.called, choice.make()) for choice in roster.augment]

    def __bool__(self) -> bool:
        return bool(self.ways)

    def __call__(self, x: Inputs, nodes: Indices | int, round: int, step: int) -> Inputs:
        """Mini-batches in this step, `[B, *shape]` of one node or `[n, B, *shape]` of several, varied."""
        if not self.ways:
            return x
        who = np.atleast_1d(np.asarray(nodes, np.int64))
        stacked = np.ndim(nodes) > 0
        flat = each(x, lambda t: t.flatten(0, 1)) if stacked else x
        size = len(tensors(flat)[0]) // len(who)
        draw = Draw(self.roster.seed, who, round, step, size, self.roster.device)
        with torch.no_grad():
            for _, way in self.ways:
                flat = way(flat, draw)
        return each(flat, lambda t: t.unflatten(0, (len(who), size))) if stacked else flat

    def check(self, samples: Samples) -> None:
        """Show two samples to each before anything is trained, and refuse what makes something else of them."""
        x = samples.inputs(torch.arange(2) % len(samples.train_y))
        for name, way in self.ways:
            try:
                made = way(x, Draw(0, np.zeros(1, np.int64), 1, 1, 2, self.roster.device))
                alike = _kinds(made) == _kinds(x)
            except Exception as error:
                said = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
                what = f"augmentation {name} does not take the samples"
                raise ConfigError(what, expected=f"a function of {samples.kind} and draw", got=said) from error
            if not alike:
                expected, got = _kinds(x), _kinds(made)
                what = f"augmentation {name} makes other samples"
                raise ConfigError(
                    what, expected=expected, got=got, cure="Give back samples of the same shape and type."
                )


def _kinds(x: Inputs) -> str:
    """The types and shapes of some samples, in words."""
    return ", ".join(f"{str(t.dtype).removeprefix('torch.')} {list(t.shape)}" for t in tensors(x))

"""Whether greedy answers to prompts about a sample name what they should, and nothing else."""

import numpy as np
import torch
from torch import Tensor

from coterie.datasets import IGNORED
from coterie.errors import ConfigError
from coterie.metrics import Metric, Values


class Answers(Metric):
    """A score of 0 or 1 for each sample, by its answers to all prompts.

    Objects are the words that belong to the right answers of some samples and not of all: of "buy a ring" and
    "buy a cross", ring and cross. An error is an object that is in no right answer of the sample.
    """

    generated = True
    strict: bool
    """Whether each answer must also have the objects of the right one."""

    def __init__(self) -> None:
        self._said: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, outputs: Tensor, targets: Tensor, real: Tensor) -> None:
        """Keep the answers: what is an object shows when all samples are known."""
        if targets.is_floating_point() or outputs.dim() != targets.dim() or targets.dim() < 3:
            raise ConfigError(
                f"metric {type(self).__name__.lower()}",
                expected="answers and targets that are tokens",
                got=f"{targets.dtype} targets {list(targets.shape[1:])} for answers {list(outputs.shape[1:])}",
                cure="Take a data set with texts for targets, such as --dataset patterns.",
            )
        self._said.append((outputs.cpu(), targets.cpu(), real.cpu() > 0))

    def value(self) -> Values:
        """The mean over samples."""
        each = (torch.cat(parts, 1) for parts in zip(*self._said, strict=True))
        rows = zip(*each, strict=True)
        return np.array([self._score(said[real], right[real]) for said, right, real in rows], np.float64)

    def _score(self, said: Tensor, right: Tensor) -> float:
        """The mean of one model's samples, answers and targets `[N, …, A]`; NaN without any."""
        if not len(right):
            return float("nan")
        words = int(max(said.max(), right.max())) + 1
        own, named = _present(right, words), _present(said, words)
        objects = own.any(0) & ~own.all(0)
        good = ~(named & objects & ~own).any(1)
        if self.strict:
            wanted = (right != IGNORED) & objects[right.clamp(min=0)]
            found = (right.unsqueeze(-1) == said.unsqueeze(-2)).any(-1)
            good &= (found | ~wanted).flatten(1).all(1)
        return float(good.double().mean())


def _present(tokens: Tensor, words: int) -> Tensor:
    """Which words are in the texts of each sample, `[N, words]`."""
    flat = tokens.flatten(1)
    found = torch.zeros(len(flat), words + 1, dtype=torch.bool)
    return found.scatter_(1, flat.masked_fill(flat == IGNORED, words), True)[:, :words]

"""The rows of one architecture: whose models they are, and what these say to samples."""

import functools
import operator
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from coterie.contract import Me
from coterie.datasets import Inputs, each
from coterie.errors import ConfigError
from coterie.job import Indices, Roster, Samples
from coterie.metrics import OCCASIONS, Metric, Occasion, label, taken
from coterie.node.architecture import Architecture
from coterie.node.confusion import Confusion
from coterie.node.measures import CONFUSION
from coterie.objectives import draws
from coterie.objectives.cross_entropy import cross_entropy
from coterie.parts import Choice


class Rows:
    """The models of one architecture in this process: a matrix with one row for each node, and one module for all."""

    def __init__(
        self,
        roster: Roster,
        samples: Samples,
        group: int,
        architecture: Architecture,
        matrix: Tensor,
        integers: Tensor,
        nodes: Indices | None = None,
    ) -> None:
        self.roster, self.samples, self.architecture = roster, samples, architecture
        self.group, self.nodes = group, roster.groups[group] if nodes is None else nodes
        self.matrix, self.integers = matrix, integers
        self.objective = roster.objective.make()
        self.draws = draws(self.objective)
        self.judges = {o: _judges(roster.metrics, o) for o in OCCASIONS}
        if roster.confusion:
            self.judges["test"][CONFUSION] = Confusion
        """By occasion, what makes each metric, under the name of its column."""
        self._me = roster.me(self.nodes, 0, architecture.layout)

    @property
    def params(self) -> Tensor:
        """The trainable columns of the matrix, `[n, P]`."""
        return self.matrix[:, : self.architecture.layout.size]

    @property
    def buffers(self) -> Tensor:
        """The columns of float buffers, `[n, B]`."""
        return self.matrix[:, self.architecture.layout.size :]

    def me(self, rows: Indices | int, round: int) -> Me:
        """What the nodes at these rows know of themselves; `[1]` scalars for a single row."""
        m, at = self._me, self.matrix.device
        scalars = {name: getattr(m, name)[rows].to(at) for name in ("node", "size", "degree", "labels")}
        return replace(m, **scalars, round=round)

    def point(self, row: int, params: Tensor | None = None) -> None:
        """Let the module be the model of a row, at its own parameters or at others."""
        self.architecture.point(self.params[row] if params is None else params, self.buffers[row], self.integers[row])

    def outputs(self, rows: Indices, x: Inputs, own: bool = False) -> Tensor:
        """What these rows' models say, `[m, B, …]`, to the same samples `[B, …]` or each to its own `[m, B, …]`."""
        self.architecture.module.eval()
        with torch.no_grad():
            if len(rows) == 1:
                self.point(int(rows[0]))
                said: Tensor = self.architecture.module(each(x, lambda t: t[0]) if own else x)
                return said.unsqueeze(0)
            stacked: Tensor = vmap(self.architecture.forward, in_dims=(0, 0 if own else None))(
                self.params[torch.as_tensor(rows)], x
            )
            return stacked

    def answers(self, rows: Indices, x: Inputs, own: bool = False) -> Tensor:
        """The tokens that these rows' models generate, `[m, B, …]`, one model after the other; as for `outputs`."""
        module = self.architecture.module.eval()
        if not callable(generate := getattr(module, "generate", None)):
            cure = "Take one that does, such as --model minigpt, or judge by other metrics."
            raise ConfigError(f"model {self.architecture.name!r} has no method `generate` for answers", cure=cure)
        said: list[Tensor] = []
        with torch.no_grad():
            for i, row in enumerate(rows):
                self.point(int(row))
                said.append(generate(each(x, operator.itemgetter(i)) if own else x))
        return torch.stack(said)

    def supervise(self, row: int) -> Callable[[Tensor, Tensor], Tensor]:
        """The training objective of any model on samples of a row's node: outputs `[..., B, C]`, a loss for each."""
        me = replace(self.me(row, 0), seed=0)

        def supervise(outputs: Tensor, targets: Tensor) -> Tensor:
            each = [self.training_loss(o, targets, me) for o in outputs.view(-1, *outputs.shape[-2:])]
            return torch.stack(each).view(outputs.shape[:-1])

        return supervise

    def plain_loss(self, outputs: Tensor, targets: Tensor, me: Me) -> Tensor:
        """The loss per sample outside of training: cross-entropy for class labels, else what training minimises.

        Methods that look at gradients or validation losses are written for cross-entropy, whatever training smooths or
        teaches; without classes there is none.
        """
        return cross_entropy(outputs, targets, me) if self.samples.classes else self.training_loss(outputs, targets, me)

    def training_loss(self, outputs: Tensor, targets: Tensor, me: Me) -> Tensor:
        """The loss per sample that training minimises; an objective that draws gets the middle of what it may draw."""
        noise = (torch.full(targets.shape[:1], 0.5, device=targets.device),) if self.draws else ()
        loss: Tensor = self.objective(outputs, targets, me, *noise)
        return loss


def _judges(metrics: tuple[Choice, ...], occasion: Occasion) -> dict[str, Callable[[], Metric]]:
    found = {f"{occasion}_{label(m)}": m for m in taken(metrics, occasion)}
    return {column: functools.partial(m.part.make, **m.settings) for column, m in found.items()}


def pad(batches: list[Indices], height: int, most: int) -> tuple[Tensor, Tensor]:
    """Ragged index lists as [height, B] and each sample's share of its row's mean (0 for padding).

    B is `most` or a power of two below it: few shapes, few traces.
    """
    lengths = np.array([len(b) for b in batches] + [0] * (height - len(batches)))
    width = min(most, 1 << max(int(lengths.max()) - 1, 0).bit_length())
    index = np.zeros((height, width), np.int64)
    for row, batch in enumerate(batches):
        index[row, : len(batch)] = batch
    real = np.arange(index.shape[1]) < lengths[:, None]
    share = real / np.maximum(lengths, 1)[:, None]
    return torch.from_numpy(index), torch.from_numpy(share).float()


def standing(rows: Indices) -> slice | Tensor:
    """Where some rows stand in a matrix: as a slice, if they do so one after the other."""
    together = len(rows) > 0 and (np.diff(rows) == 1).all()
    return slice(int(rows[0]), int(rows[-1]) + 1) if together else torch.as_tensor(rows)


def stack_height(live: int, full: int) -> int:
    """Round the number of live rows up to one of a few heights, so that few shapes need a trace of their own."""
    height = full
    while height > 1 and -(-height // 2) >= live:
        height = -(-height // 2)
    return height

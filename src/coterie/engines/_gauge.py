"""Measures in the simulator: what each process computes of its share of rows or columns, and how it comes together."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from coterie.contract import Layout, Rule
from coterie.engines import Ledger, World
from coterie.engines._job import Indices
from coterie.engines._training import Trainer
from coterie.measures import Steps, Values, layers, spread, tensor_means

if TYPE_CHECKING:
    from coterie.engines._pool import Pool
    from coterie.engines._site import Group

COLUMNS = 1 << 16
"""How many columns are summed over nodes at a time: their sums stay in a fast cache."""


class Gauge:
    """Measures one process's share of the rows of one architecture, one row at a time.

    A value depends neither on how many processes there are nor on how rows are stacked.
    """

    def __init__(self, rule: Rule, trainer: Trainer, group: "Group", share: int, shares: int) -> None:
        self.rule, self.trainer, self.group, self.share, self.shares = rule, trainer, group, share, shares
        self.layout = trainer.architecture.layout

    def begin(self) -> None:
        """Note where this share of the rows starts a round."""
        for row in self._mine():
            self.steps_of(row).begin(self.trainer.params[row])

    def before_training(self, rows: Indices) -> None:
        """These rows are going to be trained, here."""
        for row in rows.tolist():
            self.steps_of(row).before_training(self.trainer.params[row])

    def after_training(self, rows: Indices) -> None:
        """These rows have been trained."""
        for row in rows.tolist():
            self.steps_of(row).after_training(self.trainer.params[row])

    def spread(self, rows: Indices) -> Values:
        """σ_ap of this share of these rows, [rows, layers]."""
        mine = rows[self.share :: self.shares].tolist()
        return np.array([spread(self.trainer.params[row], self.layout) for row in mine])

    def steps(self) -> dict[str, Values]:
        """The steps of this share of all rows, [rows, layers] each."""
        found = [self.steps_of(row).end(self.trainer.params[row], self.layout) for row in self._mine()]
        return {name: np.array([f[name] for f in found]) for name in found[0]} if found else {}

    def tell(self, round: int) -> list[dict[str, float]]:
        """What the rule tells of this share of all rows."""
        state = self.group.state
        told = (
            self.rule.tell(self.trainer.me(row, round), self.trainer.params[row], {k: s[row] for k, s in state.items()})
            for row in self._mine()
        )
        return [{name: float(value) for name, value in t.items()} for t in told]

    def apart(self, some: Indices) -> None:
        """The standard deviation of each column over some rows, of this share of the columns."""
        params, out = [self.trainer.params[row] for row in some.tolist()], self.group.apart
        assert out is not None
        rows, width = len(params), len(out)
        for start in range(COLUMNS * self.share, width, COLUMNS * self.shares):
            columns = slice(start, min(start + COLUMNS, width))
            mean, squares = torch.zeros_like(out[columns]), torch.zeros_like(out[columns])
            for row in params:  # row by row: a sum over a block may depend on the block
                mean.add_(row[columns])
            mean.div_(rows)
            for row in params:
                squares.add_((row[columns] - mean).square_())
            out[columns] = squares.div_(rows).sqrt_()

    def _mine(self) -> range:
        return range(self.share, len(self.trainer.params), self.shares)

    def steps_of(self, row: int) -> Steps:
        """Where the steps of a row are noted."""
        start, trained = self.group.start, self.group.trained
        assert start is not None
        assert trained is not None
        return Steps(start[row], trained[row])


class Gauges:
    """All measures of a job: asked of every process, brought together in the ledger."""

    def __init__(self, world: World, layouts: list[Layout], groups: "list[Group]", pool: "Pool", ledger: Ledger):
        self.kinds, self.job, self.world, self.there = world.measures, world.job, world, world.there(0)
        self.layouts, self.groups, self.pool, self.ledger = layouts, groups, pool, ledger

    def begin(self, round: int) -> None:
        """A round begins that will be measured."""
        self.there = self.world.there(round)
        if "steps" in self.kinds:
            for g in range(len(self.groups)):
                self.pool.all("gauge", g, "begin")

    def trained(self, g: int, rows: Indices) -> None:
        """These rows are as the test samples see them: after their training, before the merge."""
        if "spread" not in self.kinds:
            return
        self._spread(g, rows, "sigma_ap", "sigma_ap_merged")  # nothing may be merged, as in round 0
        if len(self.groups) == 1:  # nodes of different architectures have no parameter in common
            self.pool.all("gauge", g, "apart", np.flatnonzero(self.there[self.job.groups[g]]))
            apart = self.groups[g].apart
            assert apart is not None
            for layer, value in zip(layers(self.layouts[g]), tensor_means(apart, self.layouts[g]), strict=True):
                self.ledger.note("sigma_an", layer, None, value)

    def end(self, round: int) -> None:
        """A round is over."""
        for g, group in enumerate(self.groups):
            nodes = self.job.groups[g]
            if "spread" in self.kinds:
                self._spread(g, np.arange(len(group.matrix)), "sigma_ap_merged")
            if "steps" in self.kinds:
                for share, found in enumerate(self.pool.all("gauge", g, "steps")):
                    for name, values in found.items():
                        self._note(g, name, nodes[share :: self.pool.workers], values)
            if "rule" in self.kinds:
                for share, told in enumerate(self.pool.all("gauge", g, "tell", round)):
                    for node, each in zip(nodes[share :: self.pool.workers], told, strict=True):
                        for name, value in each.items():
                            self.ledger.note(name, None, node, value)

    def _spread(self, g: int, rows: Indices, *names: str) -> None:
        nodes = self.job.groups[g][rows]
        for share, values in enumerate(self.pool.all("gauge", g, "spread", rows)):
            for name in names if len(values) else ():
                self._note(g, name, nodes[share :: self.pool.workers], values)

    def _note(self, g: int, name: str, nodes: Indices, values: Values) -> None:
        for layer, column in zip(layers(self.layouts[g]), values.T, strict=True):
            self.ledger.note(name, layer, nodes, column)


def room(world: World, rows: int, width: int, make: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """What measures need beside the matrix of one architecture, shared between processes; nothing unless asked for."""
    found: dict[str, Tensor] = {}
    if "steps" in world.measures:
        found |= {name: make(torch.zeros(rows, width)) for name in ("start", "trained")}
    if "spread" in world.measures:
        found["apart"] = make(torch.zeros(width, dtype=torch.float64))
    return found

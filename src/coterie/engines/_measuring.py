"""Measures of a whole job: asked of every worker, brought together in the ledger."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from coterie.contract import Layout
from coterie.engines._groups import Group
from coterie.engines._workers import Workers
from coterie.job import Indices, Job, Ledger
from coterie.node.measures import Values, layers, tensor_means


class Gauges:
    """All measures of a job: asked of every process, brought together in the ledger."""

    def __init__(self, job: Job, layouts: list[Layout], groups: list[Group], pool: Workers, ledger: Ledger):
        self.kinds, self.roster, self.job, self.there = job.measures, job.roster, job, job.members(0)
        self.layouts, self.groups, self.pool, self.ledger = layouts, groups, pool, ledger

    def begin(self, round: int) -> None:
        """A round begins that will be measured."""
        self.there = self.job.members(round)
        if "steps" in self.kinds:
            for g in range(len(self.groups)):
                self.pool.all("gauge", g, "begin")

    def trained(self, g: int, rows: Indices) -> None:
        """These rows are as the test samples see them: after their training, before the merge."""
        if "spread" not in self.kinds:
            return
        self._spread(g, rows, "sigma_ap", "sigma_ap_merged")  # nothing may be merged, as in round 0
        if len(self.groups) == 1:  # nodes of different architectures have no parameter in common
            self.pool.all("gauge", g, "apart", np.flatnonzero(self.there[self.roster.groups[g]]))
            apart = self.groups[g].apart
            assert apart is not None
            for layer, value in zip(layers(self.layouts[g]), tensor_means(apart, self.layouts[g]), strict=True):
                self.ledger.note("sigma_an", layer, None, value)

    def end(self, round: int) -> None:
        """A round is over."""
        for g, group in enumerate(self.groups):
            nodes = self.roster.groups[g]
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
        nodes = self.roster.groups[g][rows]
        for share, values in enumerate(self.pool.all("gauge", g, "spread", rows)):
            for name in names if len(values) else ():
                self._note(g, name, nodes[share :: self.pool.workers], values)

    def _note(self, g: int, name: str, nodes: Indices, values: Values) -> None:
        for layer, column in zip(layers(self.layouts[g]), values.T, strict=True):
            self.ledger.note(name, layer, nodes, column)


def beside(job: Job, rows: int, width: int, make: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """What measures need beside the matrix of one architecture, shared between processes; nothing unless asked for."""
    found: dict[str, Tensor] = {}
    if "steps" in job.measures:
        found |= {name: make(torch.zeros(rows, width)) for name in ("start", "trained")}
    if "spread" in job.measures:
        found["apart"] = make(torch.zeros(width, dtype=torch.float64))
    return found

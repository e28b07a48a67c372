"""Measures in the simulator: what each process computes of its own rows or columns, and how it comes together."""

import numpy as np
import torch

from coterie.contract import Rule
from coterie.engines._groups import Group
from coterie.job import Indices
from coterie.node.measures import Steps, Values, spread
from coterie.node.training import Trainer

COLUMNS = 1 << 16
"""How many columns are summed over nodes at a time: their sums stay in a fast cache."""


class Gauge:
    """Measures rows of one architecture, one at a time, and its own part of the columns: `number` of `count`.

    A value depends neither on how many processes there are nor on how rows are stacked.
    """

    def __init__(self, rule: Rule, trainer: Trainer, group: Group, number: int, count: int) -> None:
        self.rule, self.trainer, self.group, self.number, self.count = rule, trainer, group, number, count
        self.layout = trainer.architecture.layout

    def begin(self, rows: Indices) -> None:
        """Note where these rows start a round."""
        for row in rows.tolist():
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
        """σ_ap of these rows, [rows, layers]."""
        return np.array([spread(self.trainer.params[row], self.layout) for row in rows.tolist()])

    def steps(self, rows: Indices) -> dict[str, Values]:
        """The steps of these rows, [rows, layers] each."""
        found = [self.steps_of(row).end(self.trainer.params[row], self.layout) for row in rows.tolist()]
        return {name: np.array([f[name] for f in found]) for name in found[0]} if found else {}

    def tell(self, rows: Indices, round: int) -> list[dict[str, float]]:
        """What the rule tells of these rows."""
        state = self.group.state
        told = (
            self.rule.tell(self.trainer.me(row, round), self.trainer.params[row], {k: s[row] for k, s in state.items()})
            for row in rows.tolist()
        )
        return [{name: float(value) for name, value in t.items()} for t in told]

    def apart(self, some: Indices) -> None:
        """The standard deviation of each column over some rows, of this process's columns."""
        params, out = [self.trainer.params[row] for row in some.tolist()], self.group.apart
        assert out is not None
        rows, width = len(params), len(out)
        for start in range(COLUMNS * self.number, width, COLUMNS * self.count):
            columns = slice(start, min(start + COLUMNS, width))
            mean, squares = torch.zeros_like(out[columns]), torch.zeros_like(out[columns])
            for row in params:  # row by row: a sum over a block may depend on the block
                mean.add_(row[columns])
            mean.div_(rows)
            for row in params:
                squares.add_((row[columns] - mean).square_())
            out[columns] = squares.div_(rows).sqrt_()

    def steps_of(self, row: int) -> Steps:
        """Where the steps of a row are noted."""
        start, trained = self.group.start, self.group.trained
        assert start is not None
        assert trained is not None
        return Steps(start[row], trained[row])

"""The shared memory of one architecture, as `Matrices` lays it out and workers see it."""

from dataclasses import dataclass

from torch import Tensor

from coterie.contract import State


@dataclass(frozen=True)
class Mode:
    """How rows of one architecture are computed: one by one, or stacked in chunks."""

    stack: bool
    chunk: int


@dataclass(frozen=True)
class Group:
    """The shared memory of one architecture."""

    matrix: Tensor
    integers: Tensor
    out: Tensor | None
    """Where rules that see whole rows write before anyone's parameters change."""
    state: State
    optimiser_state: dict[str, Tensor]
    squares: Tensor | None
    """Where training sums up its squared gradients, for rules that ask for them."""
    mode: Mode
    start: Tensor | None = None
    trained: Tensor | None = None
    """Where each row began the round, and what its training has changed since, if steps are measured."""
    apart: Tensor | None = None
    """The standard deviation of each column over the rows, if spread is measured."""

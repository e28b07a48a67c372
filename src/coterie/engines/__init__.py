"""Engines: where the nodes live. One file each; found by looking.

An engine's `open` gives a session that runs one job (a method with a seed) at a time, round by round.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from coterie.contract import Rule
from coterie.engines._job import Choice, Indices, Job, Samples
from coterie.errors import ConfigError, DivergedError
from coterie.faults import Faults
from coterie.graph import Graph
from coterie.initialisers import Origin
from coterie.protocols import Place


@dataclass(frozen=True)
class World:
    """One method with one seed, ready to run in any engine."""

    job: Job
    samples: Samples
    graph: Graph
    rule: Rule
    protocol: Any
    initialiser: Choice
    start: str
    faults: Faults
    gains: NDArray[np.float64]
    """What each node multiplies its first weights with, if its initialiser does."""
    test: Indices
    """The test samples that evaluations use."""
    origin: Origin | None = None
    """Where the nodes start, if not as their numbers say: a peer alone with its neighbours has no number of its own."""
    measures: tuple[str, ...] = ()
    """What is measured beside the columns of the ledger: some of `coterie.measures.KINDS`."""

    def there(self, round: int) -> NDArray[np.bool_]:
        """Who belongs to the network in this round."""
        return self.faults.there(round, self.job.nodes)

    def place(self, node: int, round: int, memory: dict[str, int]) -> Place:
        """Where a node stands in this round, among those who are there."""
        near, far = self.graph.neighbours(node), self.graph.audience(node)
        if self.faults.churns:
            here = self.faults.there(round, self.graph.nodes)
            near, far = near[here[near]], far[here[far]]
        return Place(node, near, far, round, self.job.seed, memory)


@dataclass
class Ledger:
    """What each node has done and cost so far, and its latest measurements."""

    nodes: int
    totals: dict[str, np.ndarray] = field(default_factory=dict)
    latest: dict[str, np.ndarray] = field(default_factory=dict)
    noted: dict[tuple[str, str | None], np.ndarray] = field(default_factory=dict)
    """(measure, layer) -> a value for each node and, last, for the whole network; NaN where there is none."""

    TOTALS = ("sent_bytes", "received_bytes", "batches", "train_seconds", "merge_seconds", "evaluate_seconds")
    LATEST = (
        "test_accuracy",
        "test_loss",
        "test_f1",
        "validation_accuracy",
        "validation_loss",
        "merged_accuracy",
        "neighbourhood_distance",
        "consensus_distance",
        "staleness",
    )

    def __post_init__(self) -> None:
        self.totals = {name: np.zeros(self.nodes) for name in self.TOTALS}
        self.latest = {name: np.full(self.nodes, np.nan) for name in self.LATEST}

    def add(self, name: str, nodes: Indices, amount: Any) -> None:
        np.add.at(self.totals[name], nodes, amount)

    def note(self, measure: str, layer: str | None, nodes: Indices | int | None, values: Any) -> None:
        """Write down a measure of some nodes, or of the whole network (None)."""
        noted = self.noted.setdefault((measure, layer), np.full(self.nodes + 1, np.nan))
        noted[self.nodes if nodes is None else nodes] = values


def diverged(node: int, round: int) -> DivergedError:
    """The error for a node whose training left the finite numbers."""
    return DivergedError(
        f"the parameters of node {node} are not finite any more after its training in round {round}",
        cure="Lower --lr, or clamp the loss (--clamp 10); what was recorded before is kept.",
    )


def foreign(node: int) -> ConfigError:
    """The error for a node that is to go on from a model it cannot hold."""
    return ConfigError(
        f"node {node} is handed a model of another architecture than its own",
        cure="Give all nodes one model, or choose a protocol that keeps architectures apart.",
    )


class Session(Protocol):
    """A running engine."""

    ledger: Ledger

    @property
    def plan(self) -> dict[str, Any]:
        """The choices this session made for the present job (workers, stacking): recorded, and kept on resume."""
        ...

    def begin(self, world: World, plan: dict[str, Any] | None = None) -> None:
        """Lay out a job and draw its starting models; `plan` are the choices of the run that is resumed."""
        ...

    def evaluate(self) -> None:
        """Measure every node's model as it is."""
        ...

    def round(self, number: int, evaluate: bool) -> None:
        """One round of the protocol; with `evaluate`, models are measured after their training and after the merge."""
        ...

    def snapshot(self) -> dict[str, Tensor]:
        """All state between rounds."""
        ...

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go back to a snapshot."""
        ...

    def close(self) -> None:
        """Free what is held."""
        ...

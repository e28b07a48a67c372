"""Everything a process must know to compute for some rows of one run: plain data, shared tensors, names of parts."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.contract import Layout, Me, Rule
from coterie.errors import ConfigError, DivergedError
from coterie.initialisers import Origin
from coterie.network.faults import Faults
from coterie.network.graph import Graph
from coterie.network.mixing import Mixing
from coterie.network.rounds import Network
from coterie.parts import Choice
from coterie.protocols import Place, Protocol
from coterie.randomness import generator, uniforms

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """A data set in memory that all processes share. Images are kept channels-last: convolutions want them so."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int
    shape: tuple[int, ...]

    def inputs(self, where: Tensor, test: bool = False) -> Tensor:
        """The samples at these indices, `[B, *shape]`."""
        source = self.test_x if test else self.train_x
        x = source.index_select(0, where.to(source.device))
        return x.permute(0, 3, 1, 2) if len(self.shape) == 3 else x

    def targets(self, where: Tensor, test: bool = False) -> Tensor:
        """The labels at these indices, in their shape."""
        source = self.test_y if test else self.train_y
        return source[where.to(source.device)]


@dataclass(frozen=True)
class Training:
    """How a node trains in a round."""

    epochs: int | None
    batches: int | None
    batch_size: int
    clamp: float | None
    keep_optimiser: bool
    patience: int | None = None
    """After how many epochs in a row with a risen validation loss a node gives the round's training up, if it may."""


@dataclass(frozen=True)
class Roster:
    """One method with one seed, laid out over its nodes."""

    seed: int
    models: tuple[Choice, ...]
    rule: Choice
    protocol: Choice
    objective: Choice
    optimiser: Choice
    training: Training
    groups: tuple[Indices, ...]
    """The nodes of each architecture; row r of matrix g belongs to node groups[g][r]."""
    train: tuple[Indices, ...]
    validation: tuple[Indices, ...]
    degree: Indices
    """How many each node hears, in the first round if that changes."""
    labels: Tensor
    """Label shares of each node's training data, [n, C]."""
    device: str
    mixing: Mixing = "data"
    """What models weigh where they are averaged."""

    @property
    def nodes(self) -> int:
        return len(self.train)

    def sizes(self, nodes: Indices) -> Tensor:
        """What these nodes count for in averages: their number of training samples, or 1 if all count alike."""
        if self.mixing != "data":
            return torch.ones(len(nodes), 1)
        return torch.tensor([float(len(self.train[i])) for i in nodes]).unsqueeze(1)

    def me(self, nodes: Indices, round: int, layout: Layout) -> Me:
        """What these nodes know of themselves, one row each."""
        return Me(
            node=torch.as_tensor(nodes).unsqueeze(1).to(self.device),
            size=self.sizes(nodes).to(self.device),
            degree=torch.as_tensor(self.degree[nodes]).unsqueeze(1).to(self.device, torch.float32),
            labels=self.labels[torch.as_tensor(nodes)].to(self.device),
            seed=self.seed,
            round=round,
            layout=layout,
        )

    def per_epoch(self, node: int) -> int:
        """Mini-batches in one pass over a node's data."""
        return math.ceil(len(self.train[node]) / self.training.batch_size)

    def steps(self, node: int) -> int:
        """Mini-batches that a node computes in a round, unless it stops early."""
        return self.training.batches or (self.training.epochs or 0) * self.per_epoch(node)

    def schedule(self, node: int, round: int) -> Iterator[Indices]:
        """The sample indices of each mini-batch of this node in this round (rounds count from 1)."""
        own, size = self.train[node], self.training.batch_size
        per_epoch, steps = self.per_epoch(node), self.steps(node)
        order, epoch = own, -1
        for step in range((round - 1) * steps, round * steps):
            if step // per_epoch != epoch:
                epoch = step // per_epoch
                order = generator(self.seed, "order", node, epoch).permutation(own)
            at = step % per_epoch * size
            yield order[at : at + size]

    def noise(self, nodes: Indices | int, round: int, step: int, size: int) -> Tensor:
        """Uniform numbers `[..., size]` for the samples of these nodes' mini-batches, for objectives that draw."""
        who = np.asarray(nodes)[..., None]
        drawn = uniforms(self.seed, "objective", who, round, step, np.arange(size))
        return torch.from_numpy(drawn.astype(np.float32)).to(self.device)


@dataclass(frozen=True)
class Job:
    """One method with one seed, ready to run in any engine."""

    roster: Roster
    samples: Samples
    network: Network
    rule: Rule
    protocol: Protocol
    initialiser: Choice
    merge_first: bool
    """Whether the untrained models are exchanged and merged before round 1."""
    faults: Faults
    gains: NDArray[np.float64]
    """What each node multiplies its first weights with, if its initialiser does."""
    test: Indices
    """The test samples that evaluations use."""
    origin: Origin | None = None
    """Where the nodes start, if not as their numbers say: a peer alone with its neighbours has no number of its own."""
    measures: tuple[str, ...] = ()
    """What is measured beside the columns of the ledger: some of `coterie.measures.KINDS`."""

    def members(self, round: int) -> NDArray[np.bool_]:
        """Who belongs to the network in this round."""
        return self.faults.members(round, self.roster.nodes)

    def graph(self, round: int) -> Graph:
        """Who hears whom in this round, and with what weight."""
        return self.network.graph(round)

    def place(self, node: int, round: int, memory: dict[str, int]) -> Place:
        """Where a node stands in this round, among those who are there."""
        graph = self.graph(round)
        near, far = graph.neighbours(node), graph.audience(node)
        if self.faults.churns:
            here = self.faults.members(round, graph.nodes)
            near, far = near[here[near]], far[here[far]]
        return Place(node, near, far, round, self.roster.seed, memory)


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

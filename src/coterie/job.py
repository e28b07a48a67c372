"""Everything a process must know to compute for some rows of one run: plain data, shared tensors, names of parts."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.contract import Layout, Me, Rule
from coterie.datasets import Inputs, Shape, each
from coterie.errors import ConfigError, DivergedError
from coterie.initialisers import Origin
from coterie.metrics import DEFAULT, columns, label, taken
from coterie.network.faults import Faults
from coterie.network.graph import Graph
from coterie.network.mixing import Mixing
from coterie.network.rounds import Network
from coterie.parts import Choice
from coterie.protocols import Place, Protocol, Train
from coterie.randomness import permuted, uniforms

Indices = NDArray[np.int64]
PLAIN = Train()
"""Training as the method has it, by the node's own count of epochs."""


@dataclass(frozen=True)
class Samples:
    """A data set in memory that all processes share. Images of floats are kept channels-last: convolutions want so."""

    train_x: Inputs
    train_y: Tensor
    test_x: Inputs
    test_y: Tensor
    classes: int
    """How many classes the labels have; 0 if targets are something else."""
    shape: Shape
    """Of one sample: a tuple, or a dict or tuple of such where a sample is several tensors."""
    origin: Any = None
    """The settings of a method by which another machine can load the same from its own data folder, if it can."""

    def inputs(self, where: Tensor, test: bool = False) -> Inputs:
        """The samples at these indices, in their shape: `[*where.shape, *shape]`, or several such tensors."""
        source = self.test_x if test else self.train_x

        def chosen(t: Tensor) -> Tensor:
            x = t.index_select(0, where.reshape(-1).to(t.device))
            x = x.permute(0, 3, 1, 2) if is_image(x) else x
            return x.unflatten(0, where.shape) if where.dim() > 1 else x

        taken: Inputs = each(source, chosen)
        return taken

    def targets(self, where: Tensor, test: bool = False) -> Tensor:
        """The labels or targets at these indices, `[*where.shape, …]`."""
        source = self.test_y if test else self.train_y
        taken: Tensor = source.index_select(0, where.reshape(-1).to(source.device)).unflatten(0, where.shape)
        return taken

    @property
    def answers(self) -> int:
        """How many numbers a model is to give: one for each class, or for each number of a target; 0 if none can tell.

        Targets that are whole numbers without classes, such as tokens, do not say how many there are to choose from.
        """
        return self.classes or (math.prod(self.train_y.shape[1:]) if self.train_y.is_floating_point() else 0)

    @property
    def kind(self) -> str:
        """Types and shapes of a sample and its target, in a line."""
        target = f"{self.classes} classes" if self.classes else _described(self.train_y)
        return f"{each(self.train_x, _described)} -> {target}"


def is_image(t: Tensor) -> bool:
    """Whether a batch is one of images of floats, `[N, C, H, W]` or as it is kept, `[N, H, W, C]`."""
    return t.dim() == 4 and t.is_floating_point()


def _described(t: Tensor) -> str:
    shape = t.permute(0, 3, 1, 2).shape[1:] if is_image(t) else t.shape[1:]
    return f"{str(t.dtype).removeprefix('torch.')} {list(shape)}"


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
    renew_optimiser: bool = False
    """Whether every epoch begins with a new optimiser."""
    clip: float | None = None
    """The greatest Euclidean norm of a mini-batch's gradient: longer ones are shortened to it."""
    work: Mapping[int, int] = field(default_factory=dict)
    """The epochs of nodes that train more or less than the others."""


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
    """Label shares of each node's training data, [n, C]; C is 0 where there are no classes."""
    device: str
    mixing: Mixing = "data"
    """What models weigh where they are averaged."""
    own: NDArray[np.float64] | None = None
    """ω_ii, what each node's own model weighs beside a neighbour's, if not 1."""
    metrics: tuple[Choice, ...] = DEFAULT
    """By what models are judged."""
    merged: bool = False
    """Whether they are judged once more after the merge, by the first of these."""
    rounds: int = 1
    """How many there are in all."""
    augment: tuple[Choice, ...] = ()
    """How training samples vary, one after the other."""
    confusion: bool = False
    """Whether it is counted which classes are taken for which."""

    @property
    def nodes(self) -> int:
        return len(self.train)

    def sizes(self, nodes: Indices) -> Tensor:
        """What these nodes count for in averages: their number of training samples, or 1 if all count alike."""
        if self.mixing != "data":
            return torch.ones(len(nodes), 1)
        return torch.tensor([float(len(self.train[i])) for i in nodes]).unsqueeze(1)

    def weighs(self, node: int) -> float:
        """ω_ii of a node before it has heard anyone."""
        return 1.0 if self.own is None else float(self.own[node])

    def beside(self, nodes: Indices, heard: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """ω_ii of these nodes, who have heard links of so much weight; None if it is 1."""
        if self.mixing == "metropolis":  # what is not heard is one's own
            return 1.0 - heard
        return None if self.own is None else self.own[nodes]

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

    def steps(self, node: int, turn: Train = PLAIN) -> int:
        """Mini-batches that a node computes when it trains, unless it stops early."""
        if turn.epochs is not None:
            return turn.epochs * self.per_epoch(node)
        return self.training.batches or self.training.work.get(node, self.training.epochs or 0) * self.per_epoch(node)

    def behind(self, node: int, round: int, turn: Train = PLAIN) -> int:
        """How many mini-batches the model has behind it when a node trains it in this round.

        Epochs go by this count: so many mini-batches of this node are `per_epoch` to the epoch, whoever computed them.
        """
        return (round - 1) * self.steps(node) if turn.start is None else turn.start * self.per_epoch(node)

    def epochs(self, node: int) -> float:
        """How many epochs a model has in all, as this node counts them."""
        turns = self.protocol.make().turns(self.nodes, self.rounds)
        return float(turns * self.steps(node) / max(self.per_epoch(node), 1))

    def seen(self, node: int, round: int, batches: int, turn: Train = PLAIN) -> int:
        """How many samples are in the first so many mini-batches of this node in this round."""
        own, size, per_epoch = len(self.train[node]), self.training.batch_size, self.per_epoch(node)

        def until(step: int) -> int:
            return step // per_epoch * own + min(step % per_epoch * size, own) if per_epoch else 0

        start = self.behind(node, round, turn)
        return until(start + batches) - until(start)

    def orders(self, node: int, round: int, turn: Train = PLAIN) -> Iterator[Indices]:
        """The samples that this node trains on in this round (rounds count from 1), in order, epoch by epoch.

        Of an epoch that begins before or ends after it, its part of whole mini-batches. Where the model's own epochs
        are counted, all nodes share one stream of orders: a model that walks through nodes with the same data is
        trained as if it had stayed.
        """
        own, size, per_epoch = self.train[node], self.training.batch_size, self.per_epoch(node)
        start, whose = self.behind(node, round, turn), node if turn.start is None else 0
        end = start + self.steps(node, turn)
        for epoch in range(start // per_epoch, -(-end // per_epoch)) if per_epoch else ():
            order = permuted(own, self.seed, "order", whose, epoch)
            first, last = max(start - epoch * per_epoch, 0), min(end - epoch * per_epoch, per_epoch)
            yield order[first * size : last * size]

    def schedule(self, node: int, round: int, turn: Train = PLAIN) -> Iterator[Indices]:
        """The sample indices of each mini-batch of this node in this round."""
        size = self.training.batch_size
        for order in self.orders(node, round, turn):
            for at in range(0, len(order), size):
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
    best: bool = False
    """Whether each node's best model so far is kept beside its present one."""
    origin: Origin | None = None
    """Where the nodes start, if not as their numbers say: a peer alone with its neighbours has no number of its own."""
    numbers: NDArray[np.int64] | None = None
    """What each node knows of the number that nodes agree on before the first round, if its initialiser asks for it."""
    measures: tuple[str, ...] = ()
    """What is measured beside the columns of the ledger: some of `coterie.node.measures.KINDS`."""
    notes: tuple[str, ...] = ()
    """What a user should know of it, such as that a model has random weights."""
    identity: int | None = None
    """What all call the one node that is known here; None: all are known, and are called by their numbers."""

    def start(self, node: int) -> Origin:
        """What a node knows when it draws its first weights."""
        known = self.origin or Origin(self.roster.seed, node, float(self.gains[node]))
        return known if self.numbers is None else replace(known, number=int(self.numbers[node]))

    def members(self, round: int) -> NDArray[np.bool_]:
        """Who belongs to the network in this round."""
        return self.faults.members(round, self.roster.nodes)

    def graph(self, round: int) -> Graph:
        """Who hears whom in this round, and with what weight."""
        return self.network.graph(round)

    def place(self, node: int, round: int, counters: dict[str, int]) -> Place:
        """Where a node stands in this round, among those who are there."""
        graph = self.graph(round)
        near, far = graph.neighbours(node), graph.audience(node)
        if self.faults.churns:
            here = self.faults.members(round, graph.nodes)
            near, far = near[here[near]], far[here[far]]
        known, name = (graph, node) if self.identity is None else (None, self.identity)
        return Place(node, near, far, round, self.roster.seed, counters, name, known, self.roster.training.epochs)


@dataclass
class Ledger:
    """What each node has done and cost so far, and its latest measurements."""

    nodes: int
    metrics: tuple[Choice, ...] = DEFAULT
    totals: dict[str, np.ndarray] = field(default_factory=dict)
    latest: dict[str, np.ndarray] = field(default_factory=dict)
    noted: dict[tuple[str, str | None], np.ndarray] = field(default_factory=dict)
    """(measure, layer) -> a value for each node and, last, for the whole network; NaN where there is none."""
    curves: dict[int, dict[int, float]] = field(default_factory=dict)
    """Each node's validation losses in this round, by how many epochs its model had behind it, if they are measured."""
    changed: NDArray[np.bool_] = field(init=False)
    """Whose model is another one since it was last measured."""

    TOTALS = ("sent_bytes", "received_bytes", "batches", "flops", "train_seconds", "merge_seconds", "evaluate_seconds")
    OTHERS = ("neighbourhood_distance", "consensus_distance", "staleness")

    def __post_init__(self) -> None:
        self.totals = {name: np.zeros(self.nodes) for name in self.TOTALS}
        self.latest = {name: np.full(self.nodes, np.nan) for name in (*columns(self.metrics), *self.OTHERS)}
        self.changed = np.ones(self.nodes, np.bool_)

    def judge(self, nodes: Indices, scores: Mapping[str, np.ndarray]) -> None:
        """Write down how these nodes' models were judged: by column a number for each, by measure a table."""
        for name, values in scores.items():
            if values.ndim == 1:
                self.latest[name][nodes] = values
                continue
            for true, said in np.ndindex(*values.shape[1:]):
                self.note(name, f"{true} as {said}", nodes, values[:, true, said])

    def expect(self, nodes: Indices) -> None:
        """Take what models are worth after a merge for what they were worth before it, until there is one."""
        for metric in taken(self.metrics, "merged"):
            self.latest[f"merged_{label(metric)}"][nodes] = self.latest[f"test_{label(metric)}"][nodes]

    def add(self, name: str, nodes: Indices, amount: Any) -> None:
        np.add.at(self.totals[name], nodes, amount)

    def draw(self, curves: Mapping[int, Mapping[int, float]]) -> None:
        """Write down nodes' validation losses by epoch."""
        for node, points in curves.items():
            self.curves.setdefault(node, {}).update(points)

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

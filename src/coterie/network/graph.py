"""Graphs: a network as arrays of arcs, its spectrum, mixing time, steady state and gain."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import connected_components

from coterie.errors import GraphError
from coterie.network import outages
from coterie.network._spectrum import left_fixed_vector, second_of_general, second_of_symmetric
from coterie.network.faults import Faults, Floats, Ints
from coterie.network.paths import diameter
from coterie.randomness import generator

_DRAWS = 1000  # of a graph that should be connected


@dataclass(frozen=True, eq=False)
class Graph:
    """A network of nodes 0 … n−1, held as arcs in order of (target, source).

    A source sends to a target, so row i of the matrix lists whom i hears. An undirected graph holds both arcs of every
    link. A node always hears itself; that is not an arc, but has a weight of its own in `loops`, else 1.
    """

    nodes: int
    sources: Ints
    targets: Ints
    weights: Floats
    directed: bool = False
    loops: Floats | None = None
    """ω_ii, what the own model of each node weighs, if not 1."""

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise GraphError("a network needs nodes", expected="at least 1", got=self.nodes)
        sources, targets = np.asarray(self.sources, np.int64), np.asarray(self.targets, np.int64)
        weights = np.asarray(self.weights, np.float64)
        _check_arcs(self.nodes, sources, targets, weights)
        code = targets * self.nodes + sources
        order = np.argsort(code, kind="stable")
        code = code[order]
        twice = np.flatnonzero(code[1:] == code[:-1])
        if twice.size:
            link = f"{code[twice[0]] % self.nodes} {code[twice[0]] // self.nodes}"
            raise GraphError(
                "a link is listed twice", got=link, cure="List each link once, or make the network directed."
            )
        sources, targets, weights = sources[order], targets[order], weights[order]
        if not self.directed:
            back = np.argsort(sources * self.nodes + targets, kind="stable")
            same = np.array_equal(sources[back], targets) and np.array_equal(targets[back], sources)
            if not (same and np.array_equal(weights[back], weights)):
                raise GraphError("an undirected network needs both arcs of every link, of equal weight")
        if self.loops is not None and not (self._own(self.loops) > 0).all():
            raise GraphError("own weights cannot be", expected="numbers above 0", got=np.min(self.loops))
        for name, array in (("sources", sources), ("targets", targets), ("weights", weights)):
            object.__setattr__(self, name, array)

    @classmethod
    def from_edges(
        cls,
        nodes: int,
        edges: Iterable[tuple[int, int]],
        weights: ArrayLike | None = None,
        directed: bool = False,
    ) -> "Graph":
        """A graph from pairs (source, target), or from links in any order of their ends; i to i is i's own weight."""
        pairs = np.asarray(edges if isinstance(edges, np.ndarray) else list(edges), np.int64).reshape(-1, 2)
        strength = np.ones(len(pairs)) if weights is None else np.asarray(weights, np.float64)
        if strength.shape != (len(pairs),):
            raise GraphError("weights do not fit the links", expected=f"{len(pairs)} weights", got=strength.shape)
        keep = pairs[:, 0] != pairs[:, 1]
        loops = None
        if (strength[~keep] != 1).any():
            loops = np.ones(nodes)
            loops[pairs[~keep, 0]] = strength[~keep]
        pairs, strength = pairs[keep], strength[keep]
        if not directed:
            pairs, strength = np.concatenate([pairs, pairs[:, ::-1]]), np.concatenate([strength, strength])
        return cls(nodes, pairs[:, 0], pairs[:, 1], strength, directed, loops)

    @classmethod
    def from_networkx(cls, graph: "nx.Graph[Any]") -> "Graph":
        """A graph from networkx, nodes numbered in the order listed there, edges weighted by `weight` (1 if absent)."""
        number = {label: i for i, label in enumerate(graph)}
        found = list(graph.edges(data="weight", default=1.0))
        pairs = np.array([(number[a], number[b]) for a, b, _ in found], np.int64).reshape(-1, 2)
        return cls.from_edges(len(number), pairs, [float(w) for _, _, w in found], graph.is_directed())

    def to_networkx(self) -> "nx.Graph[int]":
        """This graph for networkx, with attribute `weight` on the edges."""
        graph: nx.Graph[int] = nx.DiGraph() if self.directed else nx.Graph()
        graph.add_nodes_from(range(self.nodes))
        keep = slice(None) if self.directed else self.sources < self.targets
        arcs = (self.sources[keep].tolist(), self.targets[keep].tolist(), self.weights[keep].tolist())
        graph.add_weighted_edges_from(zip(*arcs, strict=True))
        return graph

    @cached_property
    def degree(self) -> Ints:
        """The in-degree of each node: how many others it hears."""
        return np.bincount(self.targets, minlength=self.nodes).astype(np.int64)

    @property
    def edges(self) -> int:
        """The number of links, or of arcs if the graph is directed."""
        return len(self.sources) if self.directed else len(self.sources) // 2

    def neighbours(self, node: int) -> Ints:
        """The nodes that a node hears, in ascending order."""
        return self.sources[self._heard[node] : self._heard[node + 1]]

    def links(self, node: int) -> dict[int, float]:
        """Whom a node hears, and the weight of each of these links."""
        own = slice(self._heard[node], self._heard[node + 1])
        return dict(zip(self.sources[own].tolist(), self.weights[own].tolist(), strict=True))

    def audience(self, node: int) -> Ints:
        """The nodes that hear a node, in ascending order."""
        starts, targets = self._sent
        return targets[starts[node] : starts[node + 1]]

    def matrix(self) -> csr_array[np.float64]:
        """The weights as a sparse matrix: row = who hears, column = who sends."""
        return self._matrix.copy()

    def merge_matrix(self, sizes: ArrayLike | None = None, own: ArrayLike = 1.0) -> csr_array[np.float64]:
        """The matrix of one merge, M_ij = ω_ij d_j / Σ_k ω_ik d_k over neighbours and self: models W become M W.

        `own` is ω_ii, the weight of one's own model. A node that hears no data at all, its own included, keeps its
        model.
        """
        data = self._sizes(sizes)
        mixed = csr_array((self._matrix + diags_array(self._own(own))) @ diags_array(data))
        total: Floats = mixed.sum(axis=1)
        mixed = csr_array(diags_array(1.0 / np.where(total > 0, total, 1.0)) @ mixed)
        return csr_array(mixed + diags_array((total == 0).astype(np.float64)))

    def components(self) -> int:
        """The number of connected parts (strongly connected if the graph is directed)."""
        count, _ = connected_components(self._matrix, directed=self.directed, connection="strong")
        return int(count)

    def is_connected(self) -> bool:
        """Whether the graph is connected (strongly if directed), so that every model reaches every node."""
        return self.components() == 1

    def diameter(self) -> float:
        """The greatest number of hops from one node to another; infinite if the graph is not connected.

        Exact up to 2,000 nodes. Above, the longest of a few breadth-first sweeps, each from the end of the last:
        a lower bound, exact on trees and tight on most networks.
        """
        if not self.is_connected():
            return math.inf
        return diameter(self._matrix)

    def spectral_gap(self, own: ArrayLike = 1.0) -> float:
        """The spectral gap, 1 − |λ₂| of the merge matrix (A + own I) / row sums: 1 mixes at once, 0 never.

        Of directed graphs above 500 nodes an estimate, good to about three digits.
        """
        return 1.0 - self._second(own)

    def mixing_time(self, own: ArrayLike = 1.0) -> float:
        """The mixing time, 1 / −log|λ₂|: rounds of merging in which disagreement falls by a factor e."""
        second = self._second(own)
        if second < 1e-12:
            return 0.0
        return 1.0 / -math.log(second) if second < 1.0 else math.inf

    def expected_merge_matrix(
        self, sizes: ArrayLike | None = None, links: float = 1.0, presence: float = 1.0, own: ArrayLike = 1.0
    ) -> csr_array[np.float64]:
        """E[M], the mean of the merge matrix over rounds in which links and nodes fail, as `active` has it.

        Exact; with unequal weights or sizes to nine digits.
        """
        _check_chances(links, presence)
        arcs = outages.expected_arcs(self, self._sizes(sizes), self._own(own), links, presence)
        taken = csr_array((arcs, self.sources, self._heard), shape=(self.nodes, self.nodes))
        return csr_array(taken + diags_array(1.0 - np.bincount(self.targets, arcs, self.nodes)))

    def steady_state(
        self, sizes: ArrayLike | None = None, links: float = 1.0, presence: float = 1.0, own: ArrayLike = 1.0
    ) -> Floats:
        """The weights, with sum 1, of the nodes' first models in the consensus that merging alone would reach.

        The left fixed vector of `merge_matrix(sizes, own)`. For undirected graphs in closed form,

            v_i ∝ d_i (ω_ii d_i + Σ_{k ∈ N_i} ω_ik d_k),

        which is (k_i + 1) / Σ_j (k_j + 1) with equal sizes and weights; for directed ones from the
        first eigenvector, to eleven digits. Where links work with probability `links` and nodes with probability
        `presence`, v is random, and this is its mean: the left fixed vector of `expected_merge_matrix`. With equal
        sizes and weights that is v_i ∝ k_i / (1 − E[1 / (1 + B_i)]), B_i how many of its k_i neighbours a node hears.
        Only a connected graph has a consensus to speak of.

        Reference: Badie-Modiri et al., Initialisation and Network Effects in Decentralised Federated Learning, 2024
        """
        _check_chances(links, presence)
        data, mine = self._sizes(sizes), self._own(own)
        steady = links * presence == 1
        alike = all((x == x[:1]).all() for x in (data, np.concatenate([mine, self.weights[:1]]), self.weights))
        if self.directed or not (steady or alike):
            expected = self.expected_merge_matrix(data, links, presence, mine)
            return left_fixed_vector(expected, self.is_connected())
        if steady:
            found = data * (mine * data + self._matrix @ data)
        else:
            left = 1.0 - outages.kept(self.degree, links * presence)
            found = np.divide(self.degree, left, out=np.ones(self.nodes), where=left > 0)
        return np.asarray(found / found.sum(), np.float64)

    def gain(
        self, sizes: ArrayLike | None = None, links: float = 1.0, presence: float = 1.0, own: ArrayLike = 1.0
    ) -> float:
        """The gain, 1 / ‖steady state‖₂: how much merging independent models shrinks them.

        Of graphs with failing links or nodes the greatest value there can be: their consensus fluctuates about its
        mean, and so models shrink a little less (`estimates.under_outages` says how much). Outages that last do
        not change the mean matrix of a round, but make rounds depend on one another: `under_outages` measures that too.
        """
        return float(1.0 / np.linalg.norm(self.steady_state(sizes, links, presence, own)))

    def active(
        self,
        seed: int,
        round: int,
        links: float = 1.0,
        nodes: float = 1.0,
        outage: float | None = None,
        absence: float | None = None,
    ) -> NDArray[np.bool_]:
        """Which arcs carry a message this round, when each link and each node works with a given probability.

        `outage` and `absence` are the mean lengths in rounds of what fails, as `faults.Faults` has them.
        """
        return Faults(seed, links, nodes, outage, absence).active(self, round)

    def failing(
        self,
        seed: int,
        sizes: ArrayLike | None = None,
        links: float = 1.0,
        presence: float = 1.0,
        own: ArrayLike = 1.0,
        outage: float | None = None,
        absence: float | None = None,
    ) -> outages.Rounds:
        """The merge matrix of every round, when only the `active` arcs of that round carry a message."""
        _check_chances(links, presence)
        faults = Faults(seed, links, presence, outage, absence)
        return outages.Rounds(self, self._sizes(sizes), self._own(own), faults)

    def among(self, nodes: ArrayLike) -> "Graph":
        """The subgraph of these nodes, numbered anew in their order."""
        chosen = np.asarray(nodes, np.int64)
        place = np.full(self.nodes, -1)
        place[chosen] = np.arange(len(chosen))
        keep = (place[self.sources] >= 0) & (place[self.targets] >= 0)
        ends = place[self.sources[keep]], place[self.targets[keep]]
        loops = None if self.loops is None else self.loops[chosen]
        return Graph(len(chosen), *ends, self.weights[keep], self.directed, loops)

    def parts(self) -> list[Ints]:
        """The nodes of each connected part (strongly connected if the graph is directed)."""
        count, which = connected_components(self._matrix, directed=self.directed, connection="strong")
        return [np.flatnonzero(which == part) for part in range(count)]

    @cached_property
    def _heard(self) -> Ints:
        return np.concatenate([[0], np.cumsum(self.degree)])

    @cached_property
    def _sent(self) -> tuple[Ints, Ints]:
        counts = np.bincount(self.sources, minlength=self.nodes)
        return np.concatenate([[0], np.cumsum(counts)]), self.targets[np.argsort(self.sources, kind="stable")]

    @cached_property
    def _matrix(self) -> csr_array[np.float64]:
        return csr_array((self.weights, self.sources, self._heard), shape=(self.nodes, self.nodes), copy=True)

    @cached_property
    def _seconds(self) -> dict[bytes, float]:
        """What `_second` has found already, by own weights."""
        return {}

    def _second(self, own: ArrayLike) -> float:
        """|λ₂| of the merge matrix."""
        if self.nodes == 1:
            return 0.0
        mine = self._own(own)
        if (key := mine.tobytes()) not in self._seconds:
            self._seconds[key] = min(self._second_now(mine), 1.0)
        return self._seconds[key]

    def _second_now(self, own: Floats) -> float:
        if self.directed:
            return second_of_general(self.merge_matrix(own=own))
        if not self.is_connected():
            return 1.0
        total = own + self._matrix.sum(axis=1)
        root = diags_array(total**-0.5)
        # similar to the merge matrix, hence of the same eigenvalues, and symmetric
        similar = csr_array(root @ (self._matrix + diags_array(own)) @ root)
        return second_of_symmetric(similar, np.sqrt(total / total.sum()))

    def _sizes(self, sizes: ArrayLike | None) -> Floats:
        data = np.ones(self.nodes) if sizes is None else np.asarray(sizes, np.float64)
        if data.shape != (self.nodes,):
            raise GraphError("data sizes do not fit the network", expected=f"{self.nodes} numbers", got=data.shape)
        if not (np.isfinite(data).all() and (data >= 0).all() and data.any()):
            raise GraphError("data sizes cannot be", expected="numbers ≥ 0, not all 0", got=data.min())
        return data

    def _own(self, own: ArrayLike) -> Floats:
        given = np.asarray(own, np.float64)
        if given.shape not in ((), (self.nodes,)):
            raise GraphError("own weights do not fit the network", expected=f"{self.nodes} numbers", got=given.shape)
        if not (np.isfinite(given).all() and (given >= 0).all()):
            raise GraphError("own weights cannot be", expected="numbers ≥ 0", got=given.min())
        return np.broadcast_to(given, (self.nodes,))


def draw(
    make: Callable[[int, np.random.Generator], Graph],
    nodes: int,
    seed: int,
    *,
    connect: bool = False,
    round: int | None = None,
) -> Graph:
    """A connected graph of a family, the same for the same seed.

    Without `connect` a draw that falls apart is an error; with it the graph is drawn again, up to 1,000 times. The
    graph of one `round` of many may fall apart, unless `connect` forbids it.
    """
    key = () if round is None else (round,)
    cure = "Raise the parameter that sets how many links there are"
    for attempt in range(_DRAWS if connect else 1):
        rng = generator(seed, "topology", *key, attempt)
        graph = make(nodes, rng)
        if graph.nodes != nodes:
            raise GraphError("the network has another number of nodes", expected=nodes, got=graph.nodes)
        if not connect and round is not None:
            return graph
        parts = graph.components()
        if parts == 1:
            return graph
        what = f"the network is not connected: it has {parts} {'strong ' * graph.directed}components"
        # a family that drew nothing from its generator would give the same graph for ever
        if rng.random() == generator(seed, "topology", *key, attempt).random():
            raise GraphError(what, cure="Every draw would be the same: add links, or choose another topology.")
        if not connect:
            raise GraphError(what, cure=f"{cure}, or redraw with `--topology.connect true`.")
    raise GraphError(f"no connected network in {_DRAWS} draws: the last has {parts} components", cure=f"{cure}.")


def _check_chance(name: str, chance: float) -> None:
    if not 0 <= chance <= 1:
        raise GraphError(f"{name} is a probability", expected="a number from 0 to 1", got=chance)


def _check_chances(links: float, presence: float) -> None:
    _check_chance("links", links)
    _check_chance("presence", presence)
    if links * presence == 0:
        raise GraphError("nobody hears anybody", expected="links and presence above 0", got=f"{links} and {presence}")


def _check_arcs(nodes: int, sources: Ints, targets: Ints, weights: Floats) -> None:
    if not sources.shape == targets.shape == weights.shape == (sources.size,):
        raise GraphError("sources, targets and weights must be of one length")
    if not sources.size:
        return
    low, high = min(sources.min(), targets.min()), max(sources.max(), targets.max())
    if low < 0 or high >= nodes:
        got = low if low < 0 else high
        raise GraphError("a link names a node that does not exist", expected=f"nodes 0 to {nodes - 1}", got=got)
    if (sources == targets).any():
        raise GraphError(
            "a node is linked to itself", got=f"node {sources[sources == targets][0]}", cure="Leave it out."
        )
    wrong = ~(np.isfinite(weights) & (weights > 0))
    if wrong.any():
        raise GraphError("a link has an impossible weight", expected="a positive finite number", got=weights[wrong][0])

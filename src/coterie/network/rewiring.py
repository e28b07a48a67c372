"""Assortativity of a network, and rewiring that changes it at fixed degrees."""

import math

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from coterie.errors import GraphError
from coterie.network.faults import Floats
from coterie.network.graph import Graph

_SWEEPS = 200  # proposals for each link before it is given up
_STUCK = 20  # proposals for each link without coming nearer
_COOLING = 0.7  # of the temperature, per proposal for each link

Swap = tuple[int, int, int, int, int]
"""An exchange: the places of two links in the lists, the head of the second one before, and both tails before."""


def assortativity(graph: Graph) -> float:
    """The correlation of the degrees at the two ends of a link; NaN if all degrees are equal.

    Reference: Newman, Assortative Mixing in Networks, 2002
    """
    if graph.directed:
        raise GraphError("assortativity", expected="an undirected network", got="a directed one")
    ends = graph.degree[graph.sources].astype(np.float64)
    spread = float(ends.var()) if ends.size else 0.0
    if spread < 1e-12:
        return math.nan
    return float((ends * graph.degree[graph.targets]).mean() - ends.mean() ** 2) / spread


def rewire(
    graph: Graph, target: float, rng: np.random.Generator, *, tolerance: float = 1e-3, connected: bool = True
) -> Graph:
    """Rewire a network to another assortativity at fixed degrees, by simulated annealing on exchanges of link ends.

    Two links (a, b) and (c, d) become (a, d) and (c, b), unless that makes a loop or a second link between two nodes.
    An exchange that leads away from the target is accepted with probability exp(−change / temperature), and the
    temperature falls. The set of weights stays the same. With `connected`, exchanges that break a connected network
    are undone, a batch at a time.

    Reference: Xulvi-Brunet and Sokolov, Reshuffling Scale-Free Networks: From Random to Assortative, 2004
    """
    if not -1 <= target <= 1:
        raise GraphError("assortativity is a correlation", expected="a number from −1 to 1", got=target)
    now = assortativity(graph)
    if math.isnan(now):
        raise GraphError("every node has the same degree", cure="Only unequal degrees can be assortative.")
    links = _LinkTable(graph, target, tolerance)
    width, budget, stuck, best = 1000, _SWEEPS * graph.edges, 0, math.inf
    connected = connected and graph.is_connected()
    while links.distance > links.close and budget > 0 and stuck < _STUCK * graph.edges:
        before = links.gap
        done = links.anneal(rng, min(width, budget))
        if connected and done and not links.connected():
            links.undo(done, before)
            width = max(1, width // 2)
            budget, stuck = budget - width, stuck + width
            continue
        budget, stuck = budget - width, stuck + width
        if links.distance < best:
            stuck, best = 0, links.distance
        width = min(2 * width, graph.edges) if connected else width
    if links.distance > links.close:
        cure = f"These degrees may not allow it: choose a value nearer to {now:.2f}, or another network."
        raise GraphError("assortativity not reached", expected=target, got=f"{links.value:.3f}", cure=cure)
    return links.graph(graph)


class _LinkTable:
    """The links while they are rewired: as lists and as a set, and the gap of Σ k_a k_b to its target.

    At fixed degrees the assortativity is a linear function of that sum.
    """

    def __init__(self, graph: Graph, target: float, tolerance: float) -> None:
        first = graph.sources < graph.targets
        self.heads, self.tails = graph.sources[first].tolist(), graph.targets[first].tolist()
        self.weights: Floats = graph.weights[first]
        self.degree = graph.degree.tolist()
        self.taken = {_name(a, b) for a, b in zip(self.heads, self.tails, strict=True)}
        ends = graph.degree[graph.sources].astype(np.float64)
        self.unit = float(ends.var()) * len(self.heads)
        """What the sum changes by when assortativity changes by 1."""
        self.target = target
        self.gap = (target - assortativity(graph)) * self.unit
        self.close = tolerance * self.unit
        self.temperature = 0.5 * float(ends.var())

    @property
    def distance(self) -> float:
        return abs(self.gap)

    @property
    def value(self) -> float:
        return self.target - self.gap / self.unit

    def anneal(self, rng: np.random.Generator, proposals: int) -> list[Swap]:
        """Propose so many exchanges, or fewer if the target is reached; return those that were made, in order."""
        heads, tails, degree, taken = self.heads, self.tails, self.degree, self.taken
        pairs, luck = rng.integers(len(heads), size=(proposals, 2)).tolist(), rng.random((proposals, 2)).tolist()
        done: list[Swap] = []
        for (i, j), (turn, chance) in zip(pairs, luck, strict=True):
            a, b = heads[i], tails[i]
            c, d = (heads[j], tails[j]) if turn < 0.5 else (tails[j], heads[j])
            if a in (c, d) or b in (c, d):
                continue
            new, other = _name(a, d), _name(c, b)
            if new in taken or other in taken:
                continue
            gap = self.gap - (degree[a] - degree[c]) * (degree[d] - degree[b])
            worse = abs(gap) - abs(self.gap)
            if worse > 0 and chance >= math.exp(-worse / self.temperature):
                continue
            done.append((i, j, heads[j], b, tails[j]))
            taken -= {_name(a, b), _name(c, d)}
            taken |= {new, other}
            tails[i], heads[j], tails[j], self.gap = d, c, b, gap
            if abs(gap) <= self.close:
                break
        self.temperature *= _COOLING ** (proposals / len(heads))
        return done

    def undo(self, done: list[Swap], gap: float) -> None:
        """Take exchanges back."""
        for i, j, head, b, tail in reversed(done):
            self.taken -= {_name(self.heads[i], self.tails[i]), _name(self.heads[j], self.tails[j])}
            self.tails[i], self.heads[j], self.tails[j] = b, head, tail
            self.taken |= {_name(self.heads[i], b), _name(head, tail)}
        self.gap = gap

    def connected(self) -> bool:
        size = len(self.degree)
        pairs = coo_array((np.ones(len(self.heads)), (self.heads, self.tails)), shape=(size, size))
        count, _ = connected_components(pairs, directed=False)
        return bool(count == 1)

    def graph(self, like: Graph) -> Graph:
        pairs = np.array([self.heads, self.tails]).T
        return Graph.from_edges(like.nodes, pairs, self.weights)


def _name(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)

"""Random regular graphs."""

from dataclasses import dataclass

import networkx as nx
import numpy as np

from coterie.errors import GraphError
from coterie.network.faults import Ints
from coterie.network.graph import Graph
from coterie.topologies import Topology
from coterie.topologies._checks import between
from coterie.topologies._stubs import match


@dataclass(frozen=True)
class Regular(Topology):
    """Random k-regular: every node has exactly k neighbours, otherwise drawn at random.

    Directed, every node hears k others and is heard by k others.

    Reference: Steger and Wormald, Generating Random Regular Graphs Quickly, 1999
    """

    k: int = 4
    directed: bool = False

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        between("k", self.k, 0, nodes - 1, nodes)
        if self.directed:
            return Graph.from_edges(nodes, _arcs(nodes, self.k, rng), directed=True)
        if nodes * self.k % 2:
            cure = "Make one of the two even."
            raise GraphError(
                "no k-regular graph of this size", expected="nodes × k even", got=f"{nodes} × {self.k}", cure=cure
            )
        return Graph.from_networkx(nx.random_regular_graph(self.k, nodes, seed=rng))


def _arcs(nodes: int, k: int, rng: np.random.Generator) -> Ints:
    if 2 * k >= nodes:
        # what a sparser regular graph leaves out is regular too, and the sparser one is easier to find
        left = np.ones((nodes, nodes), np.bool_)
        left[tuple(_arcs(nodes, nodes - 1 - k, rng).T)] = False
        return np.argwhere(left & ~np.eye(nodes, dtype=np.bool_))
    ends = np.repeat(np.arange(nodes), k)
    while (found := match(ends, ends, rng, directed=True)) is None:
        pass
    return found

"""Watts–Strogatz."""

from dataclasses import dataclass

import networkx as nx
import numpy as np

from coterie.errors import GraphError
from coterie.network.graph import Graph
from coterie.topologies import Topology
from coterie.topologies._checks import between, probability


@dataclass(frozen=True)
class WS(Topology):
    """Watts–Strogatz small world: a ring of k nearest neighbours, each link rewired with probability p.

    Reference: Watts and Strogatz, Collective Dynamics of 'Small-World' Networks, 1998
    """

    k: int = 4
    p: float = 0.1

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        probability("p", self.p)
        between("k", self.k, 2, nodes - 1, nodes)
        if self.k % 2:
            cure = f"Set topology.k to {self.k - 1} or {self.k + 1}."
            raise GraphError(
                "topology.k counts neighbours on both sides", expected="an even number", got=self.k, cure=cure
            )
        return Graph.from_networkx(nx.watts_strogatz_graph(nodes, self.k, self.p, seed=rng))

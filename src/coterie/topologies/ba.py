"""Barabási–Albert."""

from dataclasses import dataclass

import networkx as nx
import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import Topology
from coterie.topologies._checks import between


@dataclass(frozen=True)
class BA(Topology):
    """Barabási–Albert: every new node links to m earlier ones, in proportion to their degrees.

    Degrees follow a power law, P(k) ∝ k^−3; the graph is always connected.

    Reference: Barabási and Albert, Emergence of Scaling in Random Networks, 1999
    """

    m: int = 2

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        between("m", self.m, 1, nodes - 1, nodes)
        return Graph.from_networkx(nx.barabasi_albert_graph(nodes, self.m, seed=rng))

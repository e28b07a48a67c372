"""Barabási–Albert."""

import networkx as nx
import numpy as np

from coterie.network.graph import Graph
from coterie.topologies._checks import between


def ba(nodes: int, rng: np.random.Generator, *, m: int = 2) -> Graph:
    """Barabási–Albert: every new node links to m earlier ones, in proportion to their degrees.

    Degrees follow a power law, P(k) ∝ k^−3; the graph is always connected.

    Reference: Barabási and Albert, Emergence of Scaling in Random Networks, 1999
    """
    between("m", m, 1, nodes - 1, nodes)
    return Graph.from_networkx(nx.barabasi_albert_graph(nodes, m, seed=rng))

"""Watts–Strogatz."""

import networkx as nx
import numpy as np

from coterie.errors import GraphError
from coterie.network.graph import Graph
from coterie.topologies._checks import between, probability


def ws(nodes: int, rng: np.random.Generator, *, k: int = 4, p: float = 0.1) -> Graph:
    """Watts–Strogatz small world: a ring of k nearest neighbours, each link rewired with probability p.

    Reference: Watts and Strogatz, Collective Dynamics of 'Small-World' Networks, 1998
    """
    probability("p", p)
    between("k", k, 2, nodes - 1, nodes)
    if k % 2:
        cure = f"Set topology.k to {k - 1} or {k + 1}."
        raise GraphError("topology.k counts neighbours on both sides", expected="an even number", got=k, cure=cure)
    return Graph.from_networkx(nx.watts_strogatz_graph(nodes, k, p, seed=rng))

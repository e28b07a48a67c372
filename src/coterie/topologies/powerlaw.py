"""Power-law degrees."""

import networkx as nx
import numpy as np

from coterie.errors import GraphError
from coterie.network.graph import Graph
from coterie.topologies._checks import between
from coterie.topologies._stubs import match

_DRAWS = 1000


def powerlaw(nodes: int, rng: np.random.Generator, *, exponent: float = 2.5, min_degree: int = 2) -> Graph:
    """Configuration model: degrees from a power law, half-links matched at random into a simple graph.

        P(k) ∝ k^−exponent,  min_degree ≤ k < n

    Reference: Newman, Strogatz and Watts, Random Graphs with Arbitrary Degree Distributions, 2001
    """
    between("min_degree", min_degree, 1, nodes - 1, nodes)
    if not exponent > 1:
        raise GraphError("topology.exponent is too small", expected="more than 1", got=exponent)
    possible = np.arange(min_degree, nodes)
    chance = (possible / min_degree) ** -exponent
    for _ in range(_DRAWS):
        degrees = rng.choice(possible, nodes, p=chance / chance.sum())
        if degrees.sum() % 2 or not nx.is_graphical(degrees.tolist()):
            continue
        ends = rng.permutation(np.repeat(np.arange(nodes), degrees))
        half = len(ends) // 2
        links = match(ends[:half], ends[half:], rng, directed=False)
        if links is not None:
            return Graph.from_edges(nodes, links)
    cure = "Raise topology.exponent, lower topology.min_degree or use more nodes."
    raise GraphError(f"no simple network with such degrees in {_DRAWS} draws", cure=cure)

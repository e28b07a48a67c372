"""The exponential graph."""

import numpy as np

from coterie.network.graph import Graph


def exponential(nodes: int, rng: np.random.Generator, *, directed: bool = False) -> Graph:
    """Exponential graph: node i is linked to i + 1, i + 2, i + 4, … (modulo n); directed, it only sends to them.

    About log₂ n links a node, and a diameter of at most log₂ n.

    Reference: Ying et al., Exponential Graph is Provably Efficient for Decentralized Deep Training, 2021
    """
    hops = 2 ** np.arange((nodes - 1).bit_length())
    here = np.repeat(np.arange(nodes), len(hops))
    links = np.stack([here, (here + np.tile(hops, nodes)) % nodes], axis=1)
    if not directed:
        links = np.unique(np.sort(links, axis=1), axis=0)
    return Graph.from_edges(nodes, links, directed=directed)

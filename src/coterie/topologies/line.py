"""The line."""

import numpy as np

from coterie.network.graph import Graph


def line(nodes: int, rng: np.random.Generator) -> Graph:
    """Line: every node is linked to the next; the slowest of all networks to mix."""
    here = np.arange(nodes - 1)
    return Graph.from_edges(nodes, np.stack([here, here + 1], axis=1))

"""The star."""

import numpy as np

from coterie.network.graph import Graph


def star(nodes: int, rng: np.random.Generator) -> Graph:
    """Star: every node is linked to node 0 and to nobody else."""
    leaves = np.arange(1, nodes)
    return Graph.from_edges(nodes, np.stack([np.zeros_like(leaves), leaves], axis=1))

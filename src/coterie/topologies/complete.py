"""The complete graph."""

import numpy as np

from coterie.network.graph import Graph


def complete(nodes: int, rng: np.random.Generator) -> Graph:
    """Complete: everyone hears everyone, so merging reaches consensus in one round."""
    return Graph.from_edges(nodes, np.stack(np.triu_indices(nodes, 1), axis=1))

"""The ring."""

import numpy as np

from coterie.network.graph import Graph


def ring(nodes: int, rng: np.random.Generator, *, directed: bool = False) -> Graph:
    """Ring: every node is linked to the next and the last to the first; directed, it only sends to the next.

    It mixes slowly: λ₂ = (1 + 2 cos(2π/n)) / 3, undirected.
    """
    here = np.arange(nodes if directed or nodes > 2 else nodes - 1)
    return Graph.from_edges(nodes, np.stack([here, (here + 1) % nodes], axis=1), directed=directed)

"""The grid."""

import numpy as np

from coterie.network.graph import Graph
from coterie.topologies._lattice import lattice


def grid(nodes: int, rng: np.random.Generator, *, dims: tuple[int, ...] | None = None, d: int = 2) -> Graph:
    """Grid: a rectangular lattice with open borders, of sides `dims` or of d sides as equal as can be."""
    return lattice(nodes, dims, d, wrap=False)

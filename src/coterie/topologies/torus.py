"""The torus."""

import numpy as np

from coterie.network.graph import Graph
from coterie.topologies._lattice import lattice


def torus(nodes: int, rng: np.random.Generator, *, dims: tuple[int, ...] | None = None, d: int = 2) -> Graph:
    """Torus: a rectangular lattice whose borders are joined, of sides `dims` or of d sides as equal as can be.

    With sides of three or more every node has 2d neighbours; the mixing time grows as n^(2/d).
    """
    return lattice(nodes, dims, d, wrap=True)

"""The torus."""

from dataclasses import dataclass

import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import Topology
from coterie.topologies._lattice import lattice


@dataclass(frozen=True)
class Torus(Topology):
    """Torus: a rectangular lattice whose borders are joined, of sides `dims` or of d sides as equal as can be.

    With sides of three or more every node has 2d neighbours; the mixing time grows as n^(2/d).
    """

    dims: tuple[int, ...] | None = None
    d: int = 2

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        return lattice(nodes, self.dims, self.d, wrap=True)

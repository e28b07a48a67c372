"""The grid."""

from dataclasses import dataclass

import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import Topology
from coterie.topologies._lattice import lattice


@dataclass(frozen=True)
class Grid(Topology):
    """Grid: a rectangular lattice with open borders, of sides `dims` or of d sides as equal as can be."""

    dims: tuple[int, ...] | None = None
    d: int = 2

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        return lattice(nodes, self.dims, self.d, wrap=False)

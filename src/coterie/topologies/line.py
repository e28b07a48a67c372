"""The line."""

from dataclasses import dataclass

import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import Topology


@dataclass(frozen=True)
class Line(Topology):
    """Line: every node is linked to the next; the slowest of all networks to mix."""

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        here = np.arange(nodes - 1)
        return Graph.from_edges(nodes, np.stack([here, here + 1], axis=1))

"""The ring."""

from dataclasses import dataclass

import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import Topology


@dataclass(frozen=True)
class Ring(Topology):
    """Ring: every node is linked to the next and the last to the first; directed, it only sends to the next.

    It mixes slowly: λ₂ = (1 + 2 cos(2π/n)) / 3, undirected.
    """

    directed: bool = False

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        here = np.arange(nodes if self.directed or nodes > 2 else nodes - 1)
        return Graph.from_edges(nodes, np.stack([here, (here + 1) % nodes], axis=1), directed=self.directed)

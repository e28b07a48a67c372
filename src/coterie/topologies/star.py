"""The star."""

from dataclasses import dataclass

import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import Topology


@dataclass(frozen=True)
class Star(Topology):
    """Star: every node is linked to node 0 and to nobody else."""

    @property
    def gain_exponent(self) -> float:
        """0: one node is heard by all, however many they are."""
        return 0.0

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        leaves = np.arange(1, nodes)
        return Graph.from_edges(nodes, np.stack([np.zeros_like(leaves), leaves], axis=1))

"""The complete graph."""

from dataclasses import dataclass

import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import Topology


@dataclass(frozen=True)
class Complete(Topology):
    """Complete: everyone hears everyone, so merging reaches consensus in one round."""

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        return Graph.from_edges(nodes, np.stack(np.triu_indices(nodes, 1), axis=1))

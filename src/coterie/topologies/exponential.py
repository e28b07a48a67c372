"""The exponential graph."""

from dataclasses import dataclass

import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import Topology


@dataclass(frozen=True)
class Exponential(Topology):
    """Exponential graph: node i is linked to i + 1, i + 2, i + 4, … (modulo n); directed, it only sends to them.

    About log₂ n links a node, and a diameter of at most log₂ n.

    Reference: Ying et al., Exponential Graph is Provably Efficient for Decentralized Deep Training, 2021
    """

    directed: bool = False

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        hops = 2 ** np.arange((nodes - 1).bit_length())
        here = np.repeat(np.arange(nodes), len(hops))
        links = np.stack([here, (here + np.tile(hops, nodes)) % nodes], axis=1)
        if not self.directed:
            links = np.unique(np.sort(links, axis=1), axis=0)
        return Graph.from_edges(nodes, links, directed=self.directed)

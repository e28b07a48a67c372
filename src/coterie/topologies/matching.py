"""Gossip pairs."""

from dataclasses import dataclass

import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import ChangingTopology


@dataclass(frozen=True)
class Matching(ChangingTopology):
    """Random matching: in each round the nodes meet in pairs, drawn anew; with an odd number one stays alone.

    Every node sends one model a round. If all weights are equal and n is even, the squared distance from consensus
    falls to (n − 2) / (2n − 2) of itself in a round, on average.

    Reference: Boyd et al., Randomized Gossip Algorithms, 2006
    """

    def draw_round(self, nodes: int, rng: np.random.Generator, round: int) -> Graph:
        return Graph.from_edges(nodes, rng.permutation(nodes)[: nodes // 2 * 2].reshape(-1, 2))

"""The exponential graph, one hop a round."""

from dataclasses import dataclass

import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import ChangingTopology


@dataclass(frozen=True)
class OnePeerExponential(ChangingTopology):
    """One-peer exponential graph: node i sends to i + 1, in the next round to i + 2, then to i + 4, … (modulo n).

    After ⌈log₂ n⌉ rounds it begins again. Every node sends and hears one model a round, and if n is a power of two and
    all weights are equal, the models of all nodes agree after log₂ n rounds of merging alone.

    Reference: Ying et al., Exponential Graph is Provably Efficient for Decentralized Deep Training, 2021; Assran et
    al., Stochastic Gradient Push for Distributed Deep Learning, 2019
    """

    def draw_round(self, nodes: int, rng: np.random.Generator, round: int) -> Graph:
        here, hops = np.arange(nodes), max(1, (nodes - 1).bit_length())
        there = (here + 2 ** ((round - 1) % hops)) % nodes
        return Graph.from_edges(nodes, np.stack([here, there], axis=1), directed=True)

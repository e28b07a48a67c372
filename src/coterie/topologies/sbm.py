"""The stochastic block model."""

from dataclasses import dataclass

import networkx as nx
import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import Topology
from coterie.topologies._checks import between, probability


@dataclass(frozen=True)
class SBM(Topology):
    """Stochastic block model: links are likelier inside a block than between blocks.

    Blocks are runs of consecutive nodes, equal in size up to one; a link exists with probability p_in inside a block
    and p_out between two.

    Reference: Holland, Laskey and Leinhardt, Stochastic Blockmodels: First Steps, 1983
    """

    blocks: int = 2
    p_in: float = 0.5
    p_out: float = 0.05

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        between("blocks", self.blocks, 1, nodes, nodes)
        probability("p_in", self.p_in)
        probability("p_out", self.p_out)
        sizes = [nodes // self.blocks + (b < nodes % self.blocks) for b in range(self.blocks)]
        chance = np.where(np.eye(self.blocks, dtype=np.bool_), self.p_in, self.p_out).tolist()
        return Graph.from_networkx(nx.stochastic_block_model(sizes, chance, seed=rng))

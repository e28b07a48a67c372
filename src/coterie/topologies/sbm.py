"""The stochastic block model."""

import networkx as nx
import numpy as np

from coterie.network.graph import Graph
from coterie.topologies._checks import between, probability


def sbm(nodes: int, rng: np.random.Generator, *, blocks: int = 2, p_in: float = 0.5, p_out: float = 0.05) -> Graph:
    """Stochastic block model: links are likelier inside a block than between blocks.

    Blocks are runs of consecutive nodes, equal in size up to one; a link exists with probability p_in inside a block
    and p_out between two.

    Reference: Holland, Laskey and Leinhardt, Stochastic Blockmodels: First Steps, 1983
    """
    between("blocks", blocks, 1, nodes, nodes)
    probability("p_in", p_in)
    probability("p_out", p_out)
    sizes = [nodes // blocks + (b < nodes % blocks) for b in range(blocks)]
    chance = np.where(np.eye(blocks, dtype=np.bool_), p_in, p_out).tolist()
    return Graph.from_networkx(nx.stochastic_block_model(sizes, chance, seed=rng))

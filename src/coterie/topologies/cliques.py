"""Two cliques."""

from dataclasses import dataclass

import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import Topology


@dataclass(frozen=True)
class Cliques(Topology):
    """Two cliques, of the odd and the even addresses, joined by one link between their lower-median members.

    Addresses count from 1: node 0 has address 1. With 50 nodes the link joins addresses 25 and 26.

    Reference: Khalil et al., DFML: Decentralized Federated Mutual Learning, 2024
    """

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        camps = [np.arange(first, nodes, 2) for first in (0, 1)]
        links = [camp[np.stack(np.triu_indices(len(camp), 1), axis=1)] for camp in camps]
        if nodes > 1:
            links.append(np.array([[camp[(len(camp) - 1) // 2] for camp in camps]]))
        return Graph.from_edges(nodes, np.concatenate(links))

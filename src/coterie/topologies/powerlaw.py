"""Power-law degrees."""

from dataclasses import dataclass

import networkx as nx
import numpy as np

from coterie.errors import GraphError
from coterie.network.graph import Graph
from coterie.topologies import Topology
from coterie.topologies._checks import between
from coterie.topologies._stubs import match

_DRAWS = 1000


@dataclass(frozen=True)
class PowerLaw(Topology):
    """Configuration model: degrees from a power law, half-links matched at random into a simple graph.

        P(k) ∝ k^−exponent,  min_degree ≤ k < n

    Reference: Newman, Strogatz and Watts, Random Graphs with Arbitrary Degree Distributions, 2001
    """

    exponent: float = 2.5
    min_degree: int = 2

    @property
    def gain_exponent(self) -> float:
        """(γ − 2) / (γ − 1) below γ = 3, where the greatest degree is near n^{1/(γ−1)}; 0 from γ = 2 down.

        There one node is heard by a given share of all, as in a star.

        Reference: Newman, Power Laws, Pareto Distributions and Zipf's Law, 2005
        """
        return 0.0 if self.exponent <= 2 else min((self.exponent - 2) / (self.exponent - 1), 0.5)

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        between("min_degree", self.min_degree, 1, nodes - 1, nodes)
        if not self.exponent > 1:
            raise GraphError("topology.exponent is too small", expected="more than 1", got=self.exponent)
        possible = np.arange(self.min_degree, nodes)
        chance = (possible / self.min_degree) ** -self.exponent
        for _ in range(_DRAWS):
            degrees = rng.choice(possible, nodes, p=chance / chance.sum())
            if degrees.sum() % 2 or not nx.is_graphical(degrees.tolist()):
                continue
            ends = rng.permutation(np.repeat(np.arange(nodes), degrees))
            half = len(ends) // 2
            links = match(ends[:half], ends[half:], rng, directed=False)
            if links is not None:
                return Graph.from_edges(nodes, links)
        cure = "Raise topology.exponent, lower topology.min_degree or use more nodes."
        raise GraphError(f"no simple network with such degrees in {_DRAWS} draws", cure=cure)

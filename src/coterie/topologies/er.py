"""Erdős–Rényi."""

from dataclasses import dataclass
from typing import Literal

import networkx as nx
import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import Topology
from coterie.topologies._checks import probability


@dataclass(frozen=True)
class ER(Topology):
    """Erdős–Rényi: every link exists with probability p, independently.

    The mean degree is p (n − 1); the graph is connected with high probability when p > log n / n. Weights are 1, or
    uniform in (0, 1].

    Reference: Gilbert, Random Graphs, 1959; Erdős and Rényi, On Random Graphs I, 1959
    """

    p: float = 0.2
    directed: bool = False
    weights: Literal["one", "uniform"] = "one"

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        probability("p", self.p)
        drawn = nx.fast_gnp_random_graph(nodes, self.p, seed=rng, directed=self.directed)
        strength = 1.0 - rng.random(drawn.number_of_edges()) if self.weights == "uniform" else None
        return Graph.from_edges(nodes, drawn.edges(), strength, self.directed)

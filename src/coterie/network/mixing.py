"""Mixing weights: how much each model that a node hears counts beside its own."""

from dataclasses import replace
from typing import Literal

import numpy as np

from coterie.errors import GraphError
from coterie.network.faults import Floats
from coterie.network.graph import Graph

Mixing = Literal["data", "uniform", "metropolis"]
"""By data sizes and the links' own weights; all alike; or by Metropolis and Hastings, which keeps the mean of all."""


def weighed(graph: Graph, mixing: Mixing) -> Graph:
    """The network with the weights of its links that this mixing gives them.

    `uniform` makes them all 1. With `metropolis` they are shares, and what is left is one's own (`own_weights`):

        w_ij = 1 / (1 + max(k_i, k_j)),   w_ii = 1 − Σ_j w_ij ≥ 1 / (1 + k_i)

    so that the matrix is symmetric, rows and columns sum to 1, and merging keeps the mean of all models.

    Reference: Xiao, Boyd and Kim, Distributed Average Consensus with Least-Mean-Square Deviation, 2007
    """
    match mixing:
        case "data":
            return graph
        case "uniform":
            return graph if (graph.weights == 1).all() else replace(graph, weights=np.ones_like(graph.weights))
    if graph.directed:
        cure = 'Set topology.mixing to "uniform", or choose an undirected network.'
        raise GraphError(
            "metropolis weights go both ways", expected="an undirected network", got="a directed one", cure=cure
        )
    degree = graph.degree
    shares = 1.0 / (1.0 + np.maximum(degree[graph.sources], degree[graph.targets]))
    found = replace(graph, weights=shares)
    check_doubly_stochastic(found)
    return found


def own_weights(graph: Graph, mixing: Mixing) -> Floats:
    """ω_ii of each node of a weighed network: 1, or what its links leave of 1."""
    if mixing != "metropolis":
        return np.ones(graph.nodes)
    return np.asarray(1.0 - np.bincount(graph.targets, graph.weights, graph.nodes), np.float64)


def check_doubly_stochastic(graph: Graph) -> None:
    """Refuse weights of which a row, with what is left for oneself, or a column does not sum to 1."""
    own = own_weights(graph, "metropolis")
    columns = own + np.bincount(graph.sources, graph.weights, graph.nodes)
    if (own < 0).any() or np.abs(columns - 1.0).max() > 1e-9:
        worst = int(np.argmax(np.abs(columns - 1.0))) if (own >= 0).all() else int(np.argmin(own))
        cure = "Give both directions of a link the same weight, and a node links of at most 1 in all."
        raise GraphError(f"the weights at node {worst} do not keep the mean", expected="sums of 1", cure=cure)

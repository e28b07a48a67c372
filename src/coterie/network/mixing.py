"""Mixing weights: how much each model that a node hears counts beside its own."""

import math
from dataclasses import replace
from typing import Literal

import numpy as np

from coterie.errors import GraphError
from coterie.network.faults import Floats
from coterie.network.graph import Graph

Mixing = Literal["data", "uniform", "metropolis"]
"""By data sizes and the links' own weights; all alike; or by Metropolis and Hastings, which keeps the mean of all."""


def weighed(graph: Graph, mixing: Mixing, own: float = 1.0) -> Graph:
    """The network with the weights of its links that this mixing gives them; one's own is multiplied by `own`.

    `uniform` makes them all 1. With `metropolis` they are shares, and what is left is one's own (`own_weights`):

        w_ij = 1 / (1 + max(k_i, k_j)),   w_ii = 1 − Σ_j w_ij ≥ 1 / (1 + k_i)

    so that the matrix is symmetric, rows and columns sum to 1, and merging keeps the mean of all models.

    Reference: Xiao, Boyd and Kim, Distributed Average Consensus with Least-Mean-Square Deviation, 2007
    """
    if not 0 < own < math.inf:
        raise GraphError("topology.own", expected="a number above 0", got=own)
    match mixing:
        case "data":
            return graph if own == 1 else replace(graph, loops=own * own_weights(graph, mixing))
        case "uniform":
            if own == 1 and graph.loops is None and (graph.weights == 1).all():
                return graph
            loops = None if own == 1 else np.full(graph.nodes, own)
            return replace(graph, weights=np.ones_like(graph.weights), loops=loops)
    if own != 1:
        cure = 'Set topology.mixing to "data" or "uniform", or leave topology.own out.'
        raise GraphError("metropolis weights say what one's own is", got=f"own = {own:g}", cure=cure)
    if graph.directed:
        cure = 'Set topology.mixing to "uniform", or choose an undirected network.'
        raise GraphError(
            "metropolis weights go both ways", expected="an undirected network", got="a directed one", cure=cure
        )
    degree = graph.degree
    shares = 1.0 / (1.0 + np.maximum(degree[graph.sources], degree[graph.targets]))
    found = replace(graph, weights=shares, loops=None)
    check_doubly_stochastic(found)
    return found


def own_weights(graph: Graph, mixing: Mixing) -> Floats:
    """ω_ii of each node of a weighed network: 1 or as it says, or what its links leave of 1."""
    if mixing != "metropolis":
        return np.ones(graph.nodes) if graph.loops is None else np.asarray(graph.loops, np.float64)
    return np.asarray(1.0 - np.bincount(graph.targets, graph.weights, graph.nodes), np.float64)


def check_doubly_stochastic(graph: Graph) -> None:
    """Refuse weights of which a row, with what is left for oneself, or a column does not sum to 1."""
    own = own_weights(graph, "metropolis")
    columns = own + np.bincount(graph.sources, graph.weights, graph.nodes)
    if (own < 0).any() or np.abs(columns - 1.0).max() > 1e-9:
        worst = int(np.argmax(np.abs(columns - 1.0))) if (own >= 0).all() else int(np.argmin(own))
        cure = "Give both directions of a link the same weight, and a node links of at most 1 in all."
        raise GraphError(f"the weights at node {worst} do not keep the mean", expected="sums of 1", cure=cure)

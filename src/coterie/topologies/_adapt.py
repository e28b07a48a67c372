"""Networks that users have in hand, as parts of this room."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np

from coterie.errors import ConfigError
from coterie.network.graph import Graph
from coterie.parts import Part
from coterie.topologies.file import File


def adapt(thing: Any) -> Callable[..., Any]:
    """A user's class or function as it is; a network in hand as a function that gives it, whatever is drawn."""
    if isinstance(thing, nx.Graph):
        thing = Graph.from_networkx(thing)
    elif isinstance(thing, np.ndarray) or hasattr(thing, "tocoo"):
        thing = _from_matrix(thing)
    if not isinstance(thing, Graph):
        made: Callable[..., Any] = thing
        return made
    graph = thing

    def given(nodes: int, rng: np.random.Generator) -> Graph:
        """A network in hand."""
        if nodes != graph.nodes:
            cure = f"Leave out nodes, or set it to {graph.nodes}."
            raise ConfigError("the network in hand is of another size", expected=nodes, got=graph.nodes, cure=cure)
        return graph

    vars(given)["size"] = graph.nodes
    return given


@functools.cache
def of_file(where: str) -> Part:
    """The network in a file, by its path alone."""

    @dataclass(frozen=True)
    class Named(File):
        path: str = where

    Named.__doc__ = File.__doc__

    return Part("topologies", "file", Named)


def _from_matrix(matrix: Any) -> Graph:
    """The network of an adjacency matrix: entry (a, b) is the weight of the link from a to b, symmetric or not."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ConfigError("a network as a matrix", expected="as many rows as columns", got=list(matrix.shape))
    made = nx.from_scipy_sparse_array if hasattr(matrix, "tocoo") else nx.from_numpy_array
    symmetric = not (abs(matrix - matrix.T) > 0).sum()
    return Graph.from_networkx(made(matrix, create_using=nx.Graph if symmetric else nx.DiGraph))

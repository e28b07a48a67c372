"""Topologies: who is whose neighbour. One file each; found by looking."""

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import networkx as nx
import numpy as np

from coterie.errors import ConfigError
from coterie.network.graph import Graph


class Topology(ABC):
    """A family of networks: a frozen dataclass whose fields are the settings.

    A network is a function of the settings, the number of nodes and what `rng` draws, so that whoever knows these has
    the same one. All draws come from `rng`.
    """

    room: ClassVar[str] = "topologies"
    changes: ClassVar[bool] = False
    """Whether the network is another one in later rounds: so it is with children of `ChangingTopology`."""

    @property
    def gain_exponent(self) -> float | None:
        """The exponent α of gain ∝ n^α that theory gives the family, up to logarithms; None where no theory tells.

        A half where ⟨(k+1)²⟩ / ⟨k+1⟩² stays finite as the network grows (for Barabási–Albert it grows like log n).
        """
        return 0.5

    @property
    def size(self) -> int | None:
        """How many nodes its networks have, if that is given with them."""
        return None

    @abstractmethod
    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        """One network of the family."""


class ChangingTopology(Topology):
    """A family of networks that change from round to round.

    The generator of a round is keyed by the common seed and the round, so that everyone computes the same network
    without a word. A round's network may fall apart: what matters is that rounds together reach everyone.
    """

    changes = True

    def since(self, round: int) -> int:
        """The round, at most this one, from which on the network has been what it is now."""
        return round

    @abstractmethod
    def draw_round(self, nodes: int, rng: np.random.Generator, round: int) -> Graph:
        """The network of a round; rounds count from 1."""

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        """The network of the first round."""
        return self.draw_round(nodes, rng, 1)


@dataclass(frozen=True)
class Drawn(Topology):
    """A user's own function of nodes and generator, with its settings bound."""

    function: Callable[[int, np.random.Generator], Any]

    @property
    def gain_exponent(self) -> None:
        """Nothing is known of it."""
        return None

    @property
    def size(self) -> int | None:
        """That of a network in hand."""
        known: int | None = getattr(getattr(self.function, "func", self.function), "size", None)
        return known

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        """What the function draws."""
        graph = self.function(nodes, rng)
        if isinstance(graph, nx.Graph):
            graph = Graph.from_networkx(graph)
        if isinstance(graph, Graph):
            return graph
        cure = "Return a coterie.network.graph.Graph: Graph.from_edges and Graph.from_networkx make one."
        raise ConfigError(
            "a topology draws networks", expected="a Graph of Coterie or networkx", got=type(graph).__name__, cure=cure
        )


def topology(made: Any) -> Topology:
    """A part of this room as a Topology: its own instance, or a plain function in a wrapper."""
    if isinstance(made, Topology):
        return made
    if isinstance(made, functools.partial) or inspect.isroutine(made):
        return Drawn(made)
    name = type(made).__name__
    cure = f"Write `class {name}(Topology)`, from coterie.topologies, or a function of nodes and rng."
    raise ConfigError(f"{name} is no topology", expected="a child of Topology", cure=cure)

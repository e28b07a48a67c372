"""Networks from settings, without what only training needs: they are looked at often, and should be there at once."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from coterie.config.slots import as_table, choice
from coterie.network.graph import Graph, draw
from coterie.network.mixing import Mixing, weighed
from coterie.network.rewiring import rewire
from coterie.network.rounds import Network
from coterie.randomness import generator
from coterie.topologies import ChangingTopology, Topology, topology


class Placed(Protocol):
    """What of a method its networks depend on."""

    @property
    def nodes(self) -> int:
        """How many there are."""
        ...

    @property
    def rounds(self) -> int:
        """For how many rounds there is a network."""
        ...

    @property
    def topology(self) -> Any:
        """The table of the topology, with every setting written out."""
        ...


@dataclass(frozen=True)
class Drawing:
    """A network to be looked at, without a method."""

    nodes: int
    rounds: int
    topology: dict[str, Any]


def family(method: Placed) -> Topology:
    """The family that networks are drawn from."""
    return topology(choice("topology", as_table(method.topology)).make())


def mixing(method: Placed) -> Mixing:
    """What models weigh in averages."""
    chosen: Mixing = as_table(method.topology)["mixing"]
    return chosen


def network(method: Placed, seed: int) -> Network:
    """The networks of this seed, with the weights that mixing gives them."""
    made, table = family(method), as_table(method.topology)

    def settled(graph: Graph, *key: int) -> Graph:
        target = table["assortativity"]
        wired = graph if target is None else rewire(graph, target, generator(seed, "rewiring", *key))
        return weighed(wired, mixing(method), table["own"])

    if not isinstance(made, ChangingTopology):
        return Network.still(settled(draw(made.draw, method.nodes, seed, connect=table["connect"])))
    changing = made

    def of_round(round: int) -> Graph:
        def drawn(nodes: int, rng: np.random.Generator) -> Graph:
            return changing.draw_round(nodes, rng, round)

        return settled(draw(drawn, method.nodes, seed, connect=table["connect"], round=round), round)

    return Network(of_round, changing.since, method.rounds)

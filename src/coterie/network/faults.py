"""Faults of a network: links and nodes that fail for a while, and nodes that join and leave."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from coterie.errors import ConfigError, GraphError
from coterie.randomness import uniforms

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NEVER = np.iinfo(np.int64).max


class Arcs(Protocol):
    """The arcs of a network, in order of (target, source): what faults and averages must know of it."""

    @property
    def nodes(self) -> int: ...
    @property
    def sources(self) -> Ints: ...
    @property
    def targets(self) -> Ints: ...
    @property
    def weights(self) -> Floats: ...
    @property
    def degree(self) -> Ints: ...
    @property
    def directed(self) -> bool: ...


@dataclass(frozen=True)
class Faults:
    """Which links and nodes work in which round, and who belongs to the network: a function of seed and round alone.

    A link works with probability `links`, a node with probability `presence`. With a mean length L of its outages,
    each is a two-state Markov chain, drawn anew with probability r and else as it was:

        state_t = draw_s,   s the last round up to t with a redraw,   r = 1 / (L · links)

    so that an outage ends with probability 1/L in each round. Without a length r is 1 and rounds are independent. Node
    i takes part from round `joins[i]` to the round before `leaves[i]`.

    Reference: Gilbert, Capacity of a Burst-Noise Channel, 1960
    """

    seed: int = 0
    links: float = 1.0
    presence: float = 1.0
    outage: float | None = None
    absence: float | None = None
    joins: Mapping[int, int] = field(default_factory=dict)
    leaves: Mapping[int, int] = field(default_factory=dict)
    _memo: dict[str, tuple[Any, int, Bools]] = field(default_factory=dict, compare=False, repr=False)
    """The states of links and of nodes that were asked for last: the next round follows from them."""

    def __post_init__(self) -> None:
        for name, chance in (("links", self.links), ("presence", self.presence)):
            if not 0 <= chance <= 1:
                raise GraphError(f"{name} is a probability", expected="a number from 0 to 1", got=chance)
        for name, length, of, chance in (
            ("outage", self.outage, "links", self.links),
            ("absence", self.absence, "presence", self.presence),
        ):
            if length is not None and chance == 1:
                raise ConfigError(f"{name}: nothing fails", got=f"{of} = 1", cure=f"Give {of} below 1, or no {name}.")
            if length is not None and not length * chance >= 1 - 1e-9:
                least = f"at least {1 / chance:.4g} rounds" if chance else "probabilities above 0"
                what = f"{name}: where a share of {chance:g} works, independent rounds alone make outages longer"
                raise ConfigError(what, expected=least, got=length)

    @property
    def fails(self) -> bool:
        """Whether any link or node fails, or is ever away."""
        return self.links < 1 or self.presence < 1 or self.churns

    @property
    def churns(self) -> bool:
        """Whether nodes come or go."""
        return bool(self.joins or self.leaves)

    def members(self, round: int, nodes: int) -> Bools:
        """The nodes that belong to the network in this round, as a mask; before the first, those of the first."""
        here = np.ones(nodes, np.bool_)
        for node, first in self.joins.items():
            here[node] &= max(round, 1) >= first
        for node, end in self.leaves.items():
            here[node] &= max(round, 1) < end
        return here

    def founding(self, nodes: int) -> "Faults":
        """These faults before the first round, when only the nodes of round 1 are there and nobody leaves."""
        away = np.flatnonzero(~self.members(1, nodes)).tolist()
        return Faults(self.seed, self.links, self.presence, self.outage, self.absence, dict.fromkeys(away, NEVER))

    def active(self, graph: Arcs, round: int) -> Bools:
        """Which arcs carry a message: link and both ends work, and both ends are there.

        Both arcs of a link work or fail together. A node that fails neither sends nor hears.
        """
        ends = (graph.sources, graph.targets)
        if not graph.directed:
            ends = np.minimum(*ends), np.maximum(*ends)
        up = self.up(graph, round)
        works = self._works(graph, "link", self.links, self.outage, round, *ends)
        return np.asarray(works & up[graph.sources] & up[graph.targets], np.bool_)

    def up(self, graph: Arcs, round: int) -> Bools:
        """Which nodes belong to the network in this round and do not fail."""
        works = self._works(graph, "node", self.presence, self.absence, round, np.arange(graph.nodes))
        return works & self.members(round, graph.nodes)

    def _works(self, graph: Arcs, what: str, chance: float, length: float | None, round: int, *ids: Ints) -> Bools:
        """The state of each chain: from the last redraw, found by looking back, at most to what is known already."""
        if chance == 1:
            return np.ones(len(ids[0]), np.bool_)
        if length is None:
            return uniforms(self.seed, what, *ids, round) < chance
        redraw = 1.0 / (length * chance)
        whose, known, before = self._memo.get(what, (None, 0, None))
        if whose is not graph or known > round or before is None:
            known, before = 0, uniforms(self.seed, what, *ids, 0) < chance
        state, left = before.copy(), np.arange(len(ids[0]))
        for at in range(round, known, -1):
            fresh = uniforms(self.seed, f"{what} redraw", *(i[left] for i in ids), at) < redraw
            drawn = left[fresh]
            state[drawn] = uniforms(self.seed, what, *(i[drawn] for i in ids), at) < chance
            left = left[~fresh]
            if not left.size:
                break
        self._memo[what] = graph, round, state
        return state.copy()


def check_churn(joins: Mapping[int, int], leaves: Mapping[int, int], nodes: int, rounds: int) -> None:
    """Refuse joins and leaves of unknown nodes, or in rounds that cannot be."""
    for name, moments in (("joins", joins), ("leaves", leaves)):
        for node, round in moments.items():
            if not 0 <= node < nodes:
                raise ConfigError(f"{name} names a node that does not exist", expected=f"0 to {nodes - 1}", got=node)
            if round < 1:
                raise ConfigError(f"{name}: node {node}", expected="a round, at least 1", got=round)
    for node, end in leaves.items():
        if end <= (first := joins.get(node, 1)):
            what = f"node {node} leaves before it has taken part"
            cure = f"It is there from round {first} on: let it leave in round {first + 1} or later."
            raise ConfigError(what, got=f"round {end}", cure=cure)
    faults = Faults(joins=joins, leaves=leaves)
    for round in sorted({1, *joins.values(), *leaves.values()}):
        if round <= rounds and not faults.members(round, nodes).any():
            raise ConfigError(f"nobody is there in round {round}", cure="Let somebody join earlier or leave later.")

"""Several aggregators a round, each with some of its neighbours: drawn anew in every round."""

import functools
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from coterie.contract import Rule
from coterie.errors import ConfigError
from coterie.lessons import Lesson
from coterie.lessons.mutual import Mutual
from coterie.network.graph import Graph
from coterie.protocols import Place, Round
from coterie.protocols._gathering import Gathering, Route
from coterie.randomness import generator


@dataclass(frozen=True)
class Meetings(Gathering):
    """Neighbours meet in groups that have nobody in common; in each, one teaches its own model and those of the others.

        round:  for each group S ∪ {a}:  w_i ← train(w_i);  {w_i} ← lesson of a ({w_i})

    Groups are drawn: in a random order, each node that is in none yet becomes the aggregator of up to `senders`
    neighbours (all, if not said) that are in none either, until there are `groups` (as many as can be, if not said).
    With one sender each, groups are the pairs of a random matching.

    Reference: Li et al., Decentralized Federated Learning via Mutual Knowledge Transfer, 2021, for pairs
    """

    lesson: Lesson = Mutual()
    senders: int | None = None
    groups: int | None = None

    tags = ("model", "back")

    def __post_init__(self) -> None:
        if min(self.senders or 1, self.groups or 1) < 1:
            raise ValueError(f"senders and groups are at least 1, not {self.senders} and {self.groups}")

    def fits(self, nodes: int, passing: Collection[int] = ()) -> None:
        """Refuse more senders than there are others."""
        if self.senders is not None and self.senders >= nodes > 1:
            cure = "Ask for fewer: --protocol.senders."
            raise ConfigError("protocol.senders", expected=f"at most {nodes - 1}", got=self.senders, cure=cure)

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        assert place.graph is not None, "groups are drawn where the network is known"
        near, turn = {*place.partners.tolist()}, place.round - 1
        drawn = draw_groups(place.graph, place.seed, place.round, self.senders, self.groups)
        for hub, team in drawn.items():
            if hub == place.node:
                yield from self.lead(place, Route(None, False, {n: (n,) for n in team if n in near}), turn)
            elif place.node in team and hub in near:
                yield from self.follow(Route(hub, True), turn)


@functools.lru_cache(maxsize=8)
def draw_groups(
    graph: Graph, seed: int, round: int, senders: int | None, most: int | None
) -> dict[int, tuple[int, ...]]:
    """The groups of a round: each aggregator with its senders."""
    draw, met, found = generator(seed, "groups", round), set[int](), dict[int, tuple[int, ...]]()
    for node in draw.permutation(graph.nodes).tolist():
        if node in met or (most is not None and len(found) == most):
            continue
        near = np.intersect1d(graph.neighbours(node), graph.audience(node))
        free = [n for n in draw.permutation(near).tolist() if n not in met][:senders]
        if free:
            met |= {node, *free}
            found[node] = tuple(sorted(free))
    return found

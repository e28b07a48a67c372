"""Meetings of an aggregator with its senders: models go to it, by way of others if it is far, and come back taught."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie.lessons import Lesson
from coterie.network.graph import Graph
from coterie.protocols import Adopt, Op, Place, Protocol, Receive, Round, Send, Teach, Train

Packets = Mapping[int, Any]


@dataclass(frozen=True)
class Route:
    """A node's part in a meeting."""

    parent: int | None
    """The next on the way to the aggregator; None at the aggregator itself."""
    sends: bool = False
    """Whether it takes part with its own model; else it only passes on what others send."""
    below: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The next on the ways from it -> those who take part behind each, itself included if it does."""

    @property
    def behind(self) -> list[tuple[int, int]]:
        """All who take part behind this node, each after the next on the way to it."""
        return [(child, origin) for child, origins in self.below.items() for origin in origins]

    def among(self, audible: set[int]) -> "Route":
        """The same without those of whom nothing can be heard."""
        return Route(self.parent, self.sends, {c: o for c, o in self.below.items() if c in audible})


class Gathering(Protocol):
    """A protocol in which some nodes meet in a round, and one of them gives a lesson to the models of all.

    Everyone who meets trains first. Whose model does not come is left out, and to whom none comes back keeps its own.
    """

    lesson: Lesson
    judged, in_step = "last", True

    def lead(self, place: Place, route: Route, turn: int) -> Any:
        """The aggregator's part; gives whether anybody came."""
        yield from self._train()
        models = yield from self._collect(route)
        taught: Packets = {}
        if models:
            place.roles.append("aggregator")
            taught = yield from self._teach(models, turn)
        yield from self._hand_out(route, taught)
        if place.node in taught:
            yield from self._take(taught[place.node], turn)
        return bool(models)

    def follow(self, route: Route, turn: int) -> Any:
        """The part of one who sends its model, or passes others' on; gives whether something came back for it."""
        assert route.parent is not None
        parent = np.array([route.parent])
        if route.sends:
            yield from self._train()
        models = yield from self._collect(route)
        if route.sends:
            yield from self._offer(parent)
        for _, origin in route.behind:
            yield _send(parent, f"model {origin}", models.get(origin))
        own = (yield Receive(parent, "back")) if route.sends else None
        taught = {}
        for _, origin in route.behind:
            if came := (yield Receive(parent, f"back {origin}")):
                taught[origin] = came[route.parent]
        yield from self._hand_out(route, taught)
        if own:
            yield from self._take(own[route.parent], turn)
        return bool(own)

    # What those who meet do with their models; protocols that send something else have ways of their own.

    def _train(self) -> Round:
        yield Train()

    def _offer(self, parent: np.ndarray) -> Round:
        yield Send(parent, "model", model=True)

    def _teach(self, models: Packets, turn: int) -> Any:
        return (yield Teach(models, turn=turn))

    def _take(self, packet: Any, turn: int) -> Round:
        yield Adopt(packet, turn)

    # The ways.

    def _collect(self, route: Route) -> Any:
        """The models of all who take part behind this node, by whose they are."""
        near = np.array([child for child, origin in route.behind if child == origin], np.int64)
        models = dict((yield Receive(near, "model")).items()) if len(near) else {}
        for child, origin in route.behind:
            if child != origin and (passed := (yield Receive(np.array([child]), f"model {origin}"))):
                models[origin] = passed[child]
        return models

    def _hand_out(self, route: Route, taught: Packets) -> Round:
        for child, origin in route.behind:
            yield _send(np.array([child]), "back" if child == origin else f"back {origin}", taught.get(origin))


def _send(to: np.ndarray, tag: str, packet: Any) -> Op:
    """Send a packet, or word that there is none."""
    return Send(to, tag, numbers=()) if packet is None else Send(to, tag, packet)


@functools.lru_cache(maxsize=256)
def tree(graph: Graph, root: int, hops: int) -> dict[int, int]:
    """Who is within so many hops of a node, over links that go both ways -> the next on a shortest way to it."""
    found: dict[int, int] = {root: root}
    edge = [root]
    for _ in range(hops):
        reached: dict[int, int] = {}
        for node in edge:
            for other in np.intersect1d(graph.neighbours(node), graph.audience(node)).tolist():
                if other not in found:
                    reached.setdefault(other, node)
        found |= reached
        edge = sorted(reached)
    del found[root]
    return found


def on_the_way(parents: Mapping[int, int], root: int, node: int, senders: Mapping[int, Any]) -> Route | None:
    """A node's part where these send their models along a tree to its root; None if it has none."""
    below: dict[int, list[int]] = {}
    for origin in senders:
        before, at = origin, origin
        while at not in (node, root):
            before, at = at, parents[at]
        if at == node and origin != node:
            below.setdefault(before, []).append(origin)
    if node != root and node not in senders and not below:
        return None
    return Route(
        None if node == root else parents[node], node in senders, {c: tuple(o) for c, o in sorted(below.items())}
    )

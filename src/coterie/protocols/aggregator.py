"""One node gathers everyone's models, teaches or averages them, and gives them back."""

import functools
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.contract import Rule
from coterie.errors import ConfigError
from coterie.lessons import Lesson
from coterie.lessons.average import Average
from coterie.network.graph import Graph
from coterie.protocols import Adopt, Nodes, Place, Protocol, Receive, Round, Send, Teach, Train


@dataclass(frozen=True)
class Aggregator(Protocol):
    """Everyone trains, hands the model to one node, and takes back what its lesson made of it.

        round:  w_i ← train(w_i);  the hub:  {w_i} ← lesson({w_i});  w_i ← what came back

    With the lesson `average` this is FedAvg, the hub being one of the trainers; the numbers are those of DecAvg on the
    complete graph. Nodes out of the hub's reach, or unheard, keep their own model. Who hears nothing from the hub turns
    in the same round to the node after it, up to `deputies` of them, as far as there are links, and the first who has
    heard nothing either is the hub of this round. All have trained from the last global model, so nothing is lost; a
    hub that comes back is the hub again. Several hubs take turns, round by round, and then begin again.

    Reference: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017
    """

    hub: int | tuple[int, ...] = 0
    lesson: Lesson = Average()
    deputies: int = 3

    def __post_init__(self) -> None:
        if self.deputies < 0:
            raise ValueError(f"deputies is at least 0, not {self.deputies}")
        if not self._hubs:
            raise ValueError("hub names nobody: give a node, or one for each round")

    @property
    def _hubs(self) -> tuple[int, ...]:
        return (self.hub,) if isinstance(self.hub, int) else self.hub

    def _hub(self, round: int) -> int:
        return self._hubs[(round - 1) % len(self._hubs)]

    def fits(self, nodes: int, passing: Collection[int] = ()) -> None:
        """Refuse a hub that is not there, or, without deputies, not always."""
        if wrong := [hub for hub in self._hubs if not 0 <= hub < nodes]:
            cure = "Choose one of the nodes, which are counted from 0."
            raise ConfigError("protocol.hub", expected=f"0 to {nodes - 1}", got=wrong[0], cure=cure)
        if self.deputies == 0 and (gone := [hub for hub in self._hubs if hub in passing]):
            cure = "Choose a hub that neither joins nor leaves, or give it some: --protocol.deputies 3."
            raise ConfigError("protocol.hub", expected="a node that is always there", got=gone[0], cure=cure)

    def out_of_step(self) -> "Aggregator":
        """Without deputies: whether the hub is gone is nothing to agree on for those in different rounds."""
        if len(self._hubs) > 1:
            cure = "Choose one, --protocol.hub 0, or --engine.mode sync."
            raise ConfigError("peers in different rounds have no hub by round", cure=cure)
        return replace(self, deputies=0)

    @property
    def tags(self) -> tuple[str, ...]:
        ranks = ("", *(f" {rank}" for rank in range(1, self.deputies + 1)))
        return tuple(
            f"{tag}{rank}{what}" for tag in ("start", "model") for rank in ranks for what in ("", " back", " hub")
        )

    def tells(self, nodes: int) -> dict[str, int]:
        """Deputies tell when they are the hub."""
        return {f"{tag} {rank} hub": 1 for tag in ("start", "model") for rank in range(1, self.deputies + 1)}

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        if place.round == 1 and merge_first:
            yield from self._exchange(place, "start")
        yield Train()
        yield from self._exchange(place, "model")

    def _exchange(self, place: Place, tag: str) -> Round:
        """Turn to the hub, then to its deputies until something comes back; be the hub when one's own turn has come.

        Who has got its model tells those after, so that nobody who is there waits for it.
        """
        hub, near = self._hub(place.round), self._near(place)
        if place.node == hub:
            yield from self._lead(place, place.neighbours, tag)
            return
        deputies, served = near[: self.deputies] if place.node in near else (), False
        if hub in place.audience:
            served = yield from self._hand_in(place, hub, tag)
        for rank, node in enumerate(deputies, 1):
            if node == place.node:
                yield from self._stand_in(place, near[rank:], f"{tag} {rank}", served)
                return
            if node in place.partners:
                served = yield from self._ask_deputy(place, node, f"{tag} {rank}", served)

    def _near(self, place: Place) -> tuple[int, ...]:
        """Who is linked with the hub, whether they are there or not."""
        assert place.graph is not None, "who is the hub is known where the nodes are numbered"
        return _near(place.graph, self._hub(place.round))

    def _stand_in(self, place: Place, behind: tuple[int, ...], tag: str, served: bool) -> Round:
        """Tell those who turn to this deputy if they hear from none before it whether it is the hub; if so, be it."""
        to = np.intersect1d(behind, place.partners).astype(np.int64)
        if len(to):
            yield Send(to, f"{tag} hub", numbers=() if served else (place.node,))
            if not served:
                yield from self._lead(place, to, tag)

    def _ask_deputy(self, place: Place, node: int, tag: str, served: bool) -> Any:
        """Hand one's model to a deputy, if it leads and one is not served yet; gives whether one is served then."""
        one = np.array([node])
        if served:
            yield Send(one, tag, numbers=())
        leads = yield Receive(one, f"{tag} hub")  # by the served, too: it is sent to all
        if leads and not served:
            return (yield from self._hand_in(place, node, tag))
        if not served:
            yield Send(one, tag, numbers=())
        return served

    def _hand_in(self, place: Place, node: int, tag: str) -> Any:
        """Send one's model, and take what comes back; gives whether something did."""
        one = np.array([node])
        yield Send(one, tag, model=True)
        back = (yield Receive(one, f"{tag} back")) if node in place.neighbours else None
        if back:
            yield Adopt(back[node])
        return bool(back)

    def _lead(self, place: Place, senders: Nodes, tag: str) -> Round:
        """Teach what is sent, and hand it back; who is not heard is told that nothing comes."""
        heard = yield Receive(senders, tag)
        if heard and "aggregator" not in place.roles:
            place.roles.append("aggregator")
        taught = (yield Teach(heard)) if heard else {}
        for node, packet in taught.items():
            if node == place.node:
                yield Adopt(packet)
            elif node in place.audience:  # where links have a direction it may have no way back
                yield Send(np.array([node]), f"{tag} back", packet)
        if len(unheard := np.setdiff1d(np.intersect1d(senders, place.audience), [*taught])):
            yield Send(unheard, f"{tag} back", numbers=())


@functools.lru_cache(maxsize=64)
def _near(graph: Graph, hub: int) -> tuple[int, ...]:
    """Who is linked with the hub both ways, in the order in which they take its place."""
    near = np.intersect1d(graph.neighbours(hub), graph.audience(hub))
    return tuple(near[np.argsort((near - hub) % graph.nodes)].tolist())

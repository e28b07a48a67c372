"""One node gathers everyone's models, teaches or averages them, and gives them back."""

import functools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from coterie.contract import Rule
from coterie.errors import ConfigError
from coterie.lessons import Classroom, Lesson, Pupil
from coterie.lessons.average import Average
from coterie.network.graph import Graph
from coterie.protocols import Adopt, Nodes, Place, Protocol, Receive, Round, Send, Teach, Train
from coterie.protocols._roles import check_roles, check_trainers, check_words, letters

Roles = Mapping[int, str]
"""Everyone's letter in a round: t, p or i."""


@dataclass(frozen=True)
class Apart(Lesson):
    """A lesson for others alone: who gives it, and does not train, goes home with what one of its kind is given."""

    of: Lesson

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        others = {node: pupil for node, pupil in pupils.items() if node != data.node}
        taught = self.of.teach(others, data)
        own = pupils[data.node].architecture
        if alike := [params for node, params in taught.items() if pupils[node].architecture == own]:
            taught[data.node] = alike[0]
        return taught


@dataclass(frozen=True)
class Aggregator(Protocol):
    """Everyone trains, hands the model to one node, and takes back what its lesson made of it.

        round:  w_i ← train(w_i);  the hub:  {w_i} ← lesson({w_i});  w_i ← what came back

    With the lesson `average` this is FedAvg, the hub being one of the trainers; the numbers are those of DecAvg on the
    complete graph. Nodes out of the hub's reach, or unheard, keep their own model. Who hears nothing from the hub turns
    in the same round to the node after it, up to `deputies` of them, as far as there are links, and the first who has
    heard nothing either is the hub of this round. All have trained from the last global model, so nothing is lost; a
    hub that comes back is the hub again. Several hubs take turns, round by round, and then begin again.

    Nodes in `proxy` do not train: a hub among them teaches the others' models and leaves its own aside, others only
    take what comes back. Nodes in `idle` take no part. `roles` say it by round instead, a word for each, and then the
    first again, with a letter for each node: t trains, p is such a proxy, i is idle.

    Reference: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017
    """

    hub: int | tuple[int, ...] = 0
    lesson: Lesson = Average()
    deputies: int = 3
    proxy: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_roles(self.roles, self.proxy, self.idle)
        if self.deputies < 0:
            raise ValueError(f"deputies is at least 0, not {self.deputies}")
        if not self._hubs:
            raise ValueError("hub names nobody: give a node, or one for each round")

    @property
    def _hubs(self) -> tuple[int, ...]:
        return (self.hub,) if isinstance(self.hub, int) else self.hub

    def _hub(self, round: int) -> int:
        return self._hubs[(round - 1) % len(self._hubs)]

    @property
    def apart(self) -> Lesson:
        """The lesson of a hub that does not train."""
        return Apart(self.lesson)

    def _roles(self, nodes: int, round: int) -> dict[int, str]:
        return letters(self.roles, self.proxy, self.idle, range(nodes), round)

    def trainers(self, graph: Graph, round: int) -> list[tuple[int, ...]]:
        """All who are neither a proxy nor idle, at once."""
        return [tuple(node for node, role in self._roles(graph.nodes, round).items() if role == "t")]

    def fits(self, nodes: int, passing: Collection[int] = ()) -> None:
        """Refuse a hub that is not there, or, without deputies, not always."""
        if wrong := [hub for hub in self._hubs if not 0 <= hub < nodes]:
            cure = "Choose one of the nodes, which are counted from 0."
            raise ConfigError("protocol.hub", expected=f"0 to {nodes - 1}", got=wrong[0], cure=cure)
        for name, named in (("proxy", self.proxy), ("idle", self.idle)):
            if wrong := [node for node in named if not 0 <= node < nodes]:
                cure = "Nodes are counted from 0."
                raise ConfigError(f"protocol.{name}", expected=f"nodes 0 to {nodes - 1}", got=wrong[0], cure=cure)
        check_words(self.roles, nodes)
        rounds = range(1, 1 + math.lcm(len(self._hubs), len(self.roles) or 1))
        found = [self._roles(nodes, round) for round in rounds]
        check_trainers("aggregator", self.roles, found)
        if lost := [(round, self._hub(round)) for round in rounds if found[round - 1][self._hub(round)] == "i"]:
            cure = "Let it train (t) or be a proxy (p), or choose another: --protocol.hub."
            got = f"node {lost[0][1]}, which is idle in round {lost[0][0]}"
            raise ConfigError("protocol.hub", expected="a node that takes part", got=got, cure=cure)
        if self.deputies == 0 and (gone := [hub for hub in self._hubs if hub in passing]):
            cure = "Choose a hub that neither joins nor leaves, or give it some: --protocol.deputies 3."
            raise ConfigError("protocol.hub", expected="a node that is always there", got=gone[0], cure=cure)

    def out_of_step(self) -> "Aggregator":
        """Without deputies: whether the hub is gone is nothing to agree on for those in different rounds."""
        if len(self._hubs) > 1 or self.roles:
            cure = "Choose one, --protocol.hub 0, without --protocol.roles, or --engine.mode sync."
            raise ConfigError("peers in different rounds have no hub by round", cure=cure)
        return replace(self, deputies=0)

    def waits(self, node: int, graph: Graph) -> bool:
        """Where it knows a hub and no deputy."""
        return len(graph.neighbours(node)) == 1

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
        roles = self._roles(self._graph(place).nodes, place.round)
        if roles[place.node] == "i":
            return
        if place.round == 1 and merge_first:
            yield from self._exchange(place, "start", roles)
        if roles[place.node] == "t":
            yield Train()
        yield from self._exchange(place, "model", roles)

    def _graph(self, place: Place) -> Graph:
        assert place.graph is not None, "who is the hub is known where the nodes are numbered"
        return place.graph

    def _exchange(self, place: Place, tag: str, roles: Roles) -> Round:
        """Turn to the hub, then to its deputies until something comes back; be the hub when one's own turn has come.

        Who has got its model tells those after, so that nobody who is there waits for it.
        """
        hub = self._hub(place.round)
        near = tuple(node for node in _near(self._graph(place), hub) if roles[node] != "i")
        if place.node == hub:
            awake = [node for node in place.neighbours.tolist() if roles[node] != "i"]
            yield from self._lead(place, np.array(awake, np.int64), tag, roles)
            return
        deputies, served = near[: self.deputies] if place.node in near else (), False
        if hub in place.audience:
            served = yield from self._hand_in(place, hub, tag, roles)
        for rank, node in enumerate(deputies, 1):
            if node == place.node:
                yield from self._stand_in(place, near[rank:], f"{tag} {rank}", served, roles)
                return
            if node in place.partners:
                served = yield from self._ask_deputy(place, node, f"{tag} {rank}", served, roles)

    def _stand_in(self, place: Place, behind: tuple[int, ...], tag: str, served: bool, roles: Roles) -> Round:
        """Tell those who turn to this deputy if they hear from none before it whether it is the hub; if so, be it."""
        to = np.intersect1d(behind, place.partners).astype(np.int64)
        if len(to):
            yield Send(to, f"{tag} hub", numbers=() if served else (place.node,))
            if not served:
                yield from self._lead(place, to, tag, roles)

    def _ask_deputy(self, place: Place, node: int, tag: str, served: bool, roles: Roles) -> Any:
        """Hand one's model to a deputy, if it leads and one is not served yet; gives whether one is served then."""
        one = np.array([node])
        if served:
            yield Send(one, tag, numbers=())
        leads = yield Receive(one, f"{tag} hub")  # by the served, too: it is sent to all
        if leads and not served:
            return (yield from self._hand_in(place, node, tag, roles))
        if not served:
            yield Send(one, tag, numbers=())
        return served

    def _hand_in(self, place: Place, node: int, tag: str, roles: Roles) -> Any:
        """Send one's model unless one is a proxy, and take what comes back; gives whether something did."""
        one = np.array([node])
        yield Send(one, tag, model=True) if roles[place.node] == "t" else Send(one, tag, numbers=())
        back = (yield Receive(one, f"{tag} back")) if node in place.neighbours else None
        if back:
            yield Adopt(back[node])
        return bool(back)

    def _lead(self, place: Place, senders: Nodes, tag: str, roles: Roles) -> Round:
        """Teach what is sent, and hand it back; proxies get what the hub has, the unheard word that nothing comes."""
        heard = yield Receive(senders, tag)
        if heard and "aggregator" not in place.roles:
            place.roles.append("aggregator")
        lesson = "lesson" if roles[place.node] == "t" else "apart"
        taught = dict((yield Teach(heard, lesson))) if heard else {}
        if place.node in taught:
            taught |= dict.fromkeys((n for n in senders.tolist() if roles[n] == "p"), taught[place.node])
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

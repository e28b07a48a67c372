"""The role of aggregator wanders through the network, and whoever has it teaches the models around."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coterie.contract import Rule
from coterie.errors import ConfigError
from coterie.lessons import Lesson
from coterie.lessons.mutual import Mutual
from coterie.network.graph import Graph
from coterie.protocols import NOBODY, Nodes, Place, Receive, Round, Send
from coterie.protocols._gathering import Gathering, Route, on_the_way, tree
from coterie.randomness import generator


class Role(NamedTuple):
    """The role of aggregator, as a node knows of it: of two, the one that stands higher is the right one."""

    generation: int
    """How often it was lost and taken up again."""
    origin: int
    """Who took it up: of several who did at once, the lowest."""
    turn: int
    """How many rounds it has led."""
    holder: int
    """Who has it in this turn."""

    @property
    def standing(self) -> tuple[int, ...]:
        return self.generation, -self.origin, self.turn, -self.holder

    def sane(self, round: int) -> bool:
        """Whether it can be so in a round: a role is taken up, and leads, at most once in each."""
        return 0 <= self.generation <= round + 1 and 0 <= self.turn <= round + 1


class News(NamedTuple):
    """What a node tells its neighbours at the beginning of every round."""

    role: Role
    holds: bool
    """Whether it has the role itself."""
    called: bool
    """Whether the one who is told is to send its model."""
    identity: int

    def numbers(self) -> tuple[int, ...]:
        return (*self.role, int(self.holds), int(self.called), self.identity)

    @classmethod
    def read(cls, numbers: tuple[int, ...]) -> "News":
        *role, holds, called, identity = numbers
        return cls(Role(*role), bool(holds), bool(called), identity)


@dataclass(frozen=True)
class Wandering(Gathering):
    """An aggregator teaches its own model and those of some neighbours, whatever their architectures, and hands its
    role on to one of them.

        round:  w_i ← train(w_i) for i in S ∪ {a};  {w_i} ← lesson of a ({w_i});  a ← one of its neighbours, drawn

    S are `senders` neighbours of a, else a `share` of all nodes, as far as there are so many; with `hops` above 1 they
    may be as far away, and those between pass models on. Without `walks` a stays. The lowest node is the first; the
    number of turns is handed on with the role. Everyone tells the neighbours in every round which role it knows of. If
    that has not moved for `patience` rounds, whoever notices offers to take it up, and the lowest who does has it. A
    role that was taken up later stands above those before it, and who hears of a higher one gives its own up.

    Reference: Khalil et al., DFML: Decentralized Federated Mutual Learning, 2024, Algorithm 1
    """

    lesson: Lesson = Mutual()
    senders: int | None = None
    share: float = 0.5
    hops: int = 1
    walks: bool = True
    patience: int = 4

    def __post_init__(self) -> None:
        if self.hops < 1 or self.patience < 2 or (self.senders is not None and self.senders < 1):
            raise ValueError("hops and senders are at least 1, and patience is at least 2")
        if not 0 < self.share <= 1:
            raise ValueError(f"share is above 0 and at most 1, not {self.share}")

    @property
    def local(self) -> bool:
        return self.hops == 1

    @property
    def tags(self) -> tuple[str, ...] | None:
        return ("news", "model", "back", "role", "taken") if self.hops == 1 else None

    def tells(self) -> dict[str, int]:
        """News, calls that are passed on, the role, and that it was taken."""
        return {"news": 7, "call": 2, "role": 3, "taken": 1}

    def fits(self, nodes: int, passing: Collection[int] = ()) -> None:
        """Refuse more senders than there are others."""
        if self.senders is not None and self.senders >= nodes > 1:
            cure = "Ask for fewer: --protocol.senders."
            raise ConfigError("protocol.senders", expected=f"at most {nodes - 1}", got=self.senders, cure=cure)

    def suits(self, graph: Graph) -> None:
        """Refuse more senders than any node can reach."""
        if self.senders is None:
            return
        most = max(len(tree(graph, node, self.hops)) for node in range(graph.nodes))
        if self.senders > most:
            expected = f"at most {most}, whom a node can reach here"
            cure = f"Ask for fewer, or let them be further away: --protocol.hops {self.hops + 1}."
            raise ConfigError("protocol.senders", expected=expected, got=self.senders, cure=cure)

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        state = _State(place)
        led, role = state.holds, state.role
        team = self._team(place, role.turn) if led and self.hops == 1 else NOBODY
        for called in (True, False):
            to = place.audience[np.isin(place.audience, team) == called]
            if len(to):
                yield Send(to, "news", numbers=News(role, led, called, place.identity).numbers())
        heard = yield Receive(place.neighbours, "news")
        told = {n: News.read(heard.numbers(n)) for n in heard}
        news = {n: said for n, said in told.items() if said.role.sane(place.round)}
        state.learn(news, self.patience)
        if led:
            route = Route(None, False, {n: (n,) for n in team.tolist()}) if self.hops == 1 else None
        hub, turn = (place.node, role.turn) if led else state.leader(news, self.hops)
        if self.hops > 1:
            hub, turn = yield from self._spread(place, hub, turn)
            route = self._way(place, hub, turn) if hub >= 0 else None
        elif not led:
            route = Route(hub, True) if hub >= 0 else None
            spurned = np.array([n for n in news if news[n].called and n != hub], np.int64)
            if len(spurned):
                yield Send(spurned, "model", numbers=())
        if route is not None:
            route = route.among({*news})
            yield from self.lead(place, route, turn) if led else self.follow(route, turn)
        if self.walks:
            yield from self._hand_on(place, state, led, news)
        elif state.holds:
            state.role = state.role._replace(turn=state.role.turn + 1)
        state.keep()

    def _count(self, place: Place, reach: int) -> int:
        """How many senders a meeting has, of so many who could be."""
        known = place.graph.nodes if place.graph is not None else reach + 1
        return min(reach, self.senders or max(1, int(self.share * known)))

    def _team(self, place: Place, turn: int) -> Nodes:
        """The senders of a meeting with one's neighbours."""
        partners = place.partners
        draw = generator(place.seed, "senders", place.identity, turn)
        return np.sort(draw.choice(partners, self._count(place, len(partners)), replace=False))

    def _spread(self, place: Place, hub: int, turn: int) -> Any:
        """Pass the call on as far as it is to go; gives whose call was heard, −1 if none, and its turn."""
        for _ in range(self.hops - 1):
            yield Send(place.audience, "call", numbers=(hub, turn) if hub >= 0 else ())
            heard = yield Receive(place.neighbours, "call")
            if hub < 0 and heard:
                hub, turn = min(heard.numbers(n) for n in heard)
        return hub, turn

    def _way(self, place: Place, hub: int, turn: int) -> Route | None:
        """One's part in the meeting around a node that may be far: everyone who knows the network draws the same."""
        assert place.graph is not None, "who is further away than a neighbour is known where the network is"
        parents = tree(place.graph, hub, self.hops)
        draw = generator(place.seed, "senders", hub, turn)
        chosen = draw.choice(sorted(parents), self._count(place, len(parents)), replace=False).tolist()
        return on_the_way(parents, hub, place.node, dict.fromkeys(chosen))

    def _hand_on(self, place: Place, state: "_State", led: bool, news: dict[int, News]) -> Round:
        """Hand the role on to someone who was heard in this round, and take it up if it is handed to this node."""
        if led:
            able = np.array(sorted({*place.partners.tolist()} & {*news}), np.int64)
            to = NOBODY
            if state.holds and len(able):
                to = generator(place.seed, "next", place.identity, state.role.turn).choice(able, 1)
                yield Send(to, "role", numbers=(*state.role[:2], state.role.turn + 1))
            rest = np.setdiff1d(place.audience, to)
            if len(rest):
                yield Send(rest, "role", numbers=())
            if len(to):
                next_ = int(to[0])
                state.hand_on(news[next_].identity, bool((yield Receive(to, "taken"))))
            return
        leading = np.array([n for n in news if news[n].holds], np.int64)
        if not len(leading):
            return
        heard = yield Receive(leading, "role")
        for n in heard:
            generation, origin, turn = heard.numbers(n)
            taken = state.take(Role(generation, origin, turn, place.identity))
            yield Send(np.array([n]), "taken", numbers=(1,) if taken else ())


class _State:
    """What a node knows of the role; kept in the counters of its place from round to round."""

    def __init__(self, place: Place) -> None:
        self.me, self.kept = place.identity, place.counters
        if not self.kept:
            self._begin(place)
        self.role = Role(*(self.kept[name] for name in Role._fields))
        self.holds, self.silent = bool(self.kept["holds"]), self.kept["silent"]

    def _begin(self, place: Place) -> None:
        """Where nodes are numbered, all know who is the first; else all offer to be, and the lowest will."""
        if place.graph is not None:
            first = Role(0, 0, 0, 0)
            self.kept |= first._asdict() | {"holds": int(place.round == 1 and self.me == 0), "silent": 0}
        else:
            self.kept |= Role(1, self.me, 0, self.me)._asdict() | {"holds": 0, "silent": 0}

    def keep(self) -> None:
        """Write down what is known at the end of a round."""
        self.kept |= self.role._asdict() | {"holds": int(self.holds), "silent": self.silent}

    def learn(self, news: dict[int, News], patience: int) -> None:
        """Take the highest role that one hears of for the right one; offer to take it up if it does not move."""
        best = max([self.role, *(n.role for n in news.values())], key=lambda role: role.standing)
        if best.standing > self.role.standing:
            self.role, self.holds, self.silent = best, False, 0
        elif self.holds:
            self.silent = 0
        elif self.role.holder == self.role.origin == self.me and news:  # offered in this round, and nobody knows better
            self.holds, self.silent = True, 0
        elif news:  # who hears nobody cannot tell
            self.silent += 1
            if self.silent >= patience:
                self.role = Role(self.role.generation + 1, self.me, self.role.turn, self.me)
                self.silent = 0

    def leader(self, news: dict[int, News], hops: int) -> tuple[int, int]:
        """The neighbour whose call to follow and its turn: of the highest role that is known, or nobody's (−1)."""
        calls = [n for n, said in news.items() if said.holds and (said.called or hops > 1) and said.role == self.role]
        return (calls[0], self.role.turn) if calls else (-1, 0)

    def hand_on(self, to: int, taken: bool) -> None:
        """Let the role go; if nobody says that it was taken, take it up anew, above the one that may be under way."""
        turn = self.role.turn + 1
        if taken:
            self.role, self.holds = self.role._replace(turn=turn, holder=to), False
        else:
            self.role = Role(self.role.generation + 1, self.me, turn, self.me)

    def take(self, role: Role) -> bool:
        """Take the role if none is known that stands higher."""
        if role.standing <= self.role.standing:
            return False
        self.role, self.holds, self.silent = role, True, 0
        return True

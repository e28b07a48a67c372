"""The role of aggregator wanders through the network, and whoever has it teaches the models around."""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coterie.contract import Rule
from coterie.errors import ConfigError
from coterie.lessons import Lesson
from coterie.lessons.mutual import Mutual
from coterie.network.graph import Graph
from coterie.network.paths import distances
from coterie.protocols import NOBODY, Nodes, Place, Receive, Round, Send
from coterie.protocols._gathering import Gathering, Route, on_the_way, tree
from coterie.randomness import generator

LONG = 60
"""For at least so many rounds nobody wonders that it is at no meeting."""


class Role(NamedTuple):
    """The role of aggregator, as a node knows of it: of two, the one that stands higher is the right one."""

    since: int
    """The round in which it was last taken up: 0 if never, −1 at a node that knows nothing of it."""
    origin: int
    """Who took it up: of several who did in one round, the lowest is right."""
    turn: int
    """How many rounds it has led."""
    holder: int
    """Who has it in this turn."""

    @property
    def standing(self) -> tuple[int, ...]:
        return self.since, -self.origin, self.turn, -self.holder

    def sane(self, round: int) -> bool:
        """Whether one can hear of it in a round: it was taken up before, by one who can be, and leads once in each."""
        return -1 <= self.since < round and 0 <= self.turn < round and min(self.origin, self.holder) >= 0


class News(NamedTuple):
    """What a node tells its neighbours at the beginning of every round."""

    role: Role
    holds: bool
    """Whether it has the role itself."""
    called: bool
    """Whether the one who is told is to send its model."""

    def numbers(self) -> tuple[int, ...]:
        return (*self.role, int(self.holds), int(self.called))

    @classmethod
    def read(cls, numbers: tuple[int, ...]) -> "News":
        *role, holds, called = numbers
        return cls(Role(*role), bool(holds), bool(called))


@dataclass(frozen=True)
class Wandering(Gathering):
    """An aggregator teaches its own model and those of some neighbours, whatever their architectures, and hands its
    role on to one of them.

        round:  w_i ← train(w_i) for i in S ∪ {a};  {w_i} ← lesson of a ({w_i});  a ← one of its neighbours, drawn

    S are `senders` neighbours of a, else a `share` of all nodes, as far as there are so many; with `hops` above 1 they
    may be as far away, and those between pass models on. Without `walks` a stays. The lowest node is the first; the
    number of turns is handed on with the role. Everyone tells the neighbours in every round which role it knows of. If
    that has not moved for `patience` rounds, whoever notices offers to take it up, and the lowest who does has it. A
    role that was taken up later stands above those before it, and who hears of a higher one gives its own up. Who has
    been at no meeting for so long that a walk has most likely come by everyone, `patience` times the square of the
    number of nodes, says so, takes the role up, and for a while believes only those who call it to a meeting that is
    one: so nobody stops all learning by saying that the role is elsewhere.

    Reference: Khalil et al., DFML: Decentralized Federated Mutual Learning, 2024, Algorithm 1
    """

    lesson: Lesson = Mutual()
    senders: int | None = None
    share: float = 0.5
    hops: int = 1
    walks: bool = True
    patience: int = 4

    def __post_init__(self) -> None:
        if self.hops < 1 or self.patience < 3 or (self.senders is not None and self.senders < 1):
            raise ValueError("hops and senders are at least 1, and patience is at least 3")
        if not 0 < self.share <= 1:
            raise ValueError(f"share is above 0 and at most 1, not {self.share}")

    @property
    def local(self) -> bool:
        return self.hops == 1

    @property
    def tags(self) -> tuple[str, ...] | None:
        return ("news", "model", "back", "role", "taken") if self.hops == 1 else None

    def tells(self, nodes: int) -> dict[str, int]:
        """News, calls that are passed on, the role, and what its receiver knows then."""
        calls = {f"call {hop}": 4 for hop in range(1, self.hops)}
        return {"news": 6, **calls, "role": 3, "taken": 4}

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
            yield Send(to, "news", numbers=News(role, led, called).numbers())
        heard = yield Receive(place.neighbours, "news")
        told = {n: News.read(heard.numbers(n)) for n in heard}
        news = {n: said for n, said in told.items() if said.role.sane(place.round)}
        if self.walks and self.hops == 1:
            state.hunger(self._long(place), place.remarks)
        state.learn(news, self.patience)
        known = state.role
        if not self.walks:
            state.stay(led)
        else:  # before the meeting: whatever becomes of that, the role goes on
            yield from self._hand_on(place, state, news) if led else self._take_over(place, state, news)
        state.keep()
        if self.hops > 1:
            route, turn = yield from self._far(place, known, role if led else None, news)
        elif led:
            route, turn = Route(None, False, {n: (n,) for n in team.tolist()}), role.turn
            calling = [n for n in place.partners.tolist() if n in news and news[n].called]
            yield Send(np.array(calling, np.int64), "model", numbers=())  # where two have a role neither comes
        else:
            route, turn = yield from self._near(place, known, news)
        met = False
        if route is not None:
            unheard = {*route.below} - {*news}  # who comes back in this round may follow the call, and waits for an end
            yield from self._hand_out(route.among(unheard), {})
            route = route.among({*news})
            met = yield from self.lead(place, route, turn) if led else self.follow(route, turn)
        state.eat(met, None if route is None else route.parent)

    def _long(self, place: Place) -> int:
        """After how many rounds everyone has most likely been at a meeting."""
        nodes = len(place.partners) + 1 if place.graph is None else place.graph.nodes
        return max(LONG, self.patience * nodes**2)

    def _count(self, place: Place, reach: int) -> int:
        """How many senders a meeting has, of so many who could be."""
        known = place.graph.nodes if place.graph is not None else reach + 1
        return min(reach, self.senders or max(1, int(self.share * known)))

    def _team(self, place: Place, turn: int) -> Nodes:
        """The senders of a meeting with one's neighbours."""
        partners = place.partners
        draw = generator(place.seed, "senders", place.identity, turn)
        return np.sort(draw.choice(partners, self._count(place, len(partners)), replace=False))

    def _near(self, place: Place, known: Role, news: dict[int, News]) -> Any:
        """Follow the neighbour who has the highest role that is known, if it calls; other callers need not wait."""
        calling = [n for n in place.partners.tolist() if n in news and news[n].called]
        hub = next((n for n in calling if news[n].holds and news[n].role == known), None)
        yield Send(np.array([n for n in calling if n != hub], np.int64), "model", numbers=())
        return (None if hub is None else Route(hub, True)), known.turn

    def _far(self, place: Place, known: Role, call: Role | None, news: dict[int, News]) -> Any:
        """Hear the call of the aggregator, or pass one's own on; everyone who hears it draws the same senders."""
        assert place.graph is not None, "who is further away than a neighbour is known where the network is"
        calls = {n: said.role for n, said in news.items() if said.holds}
        for hop in range(1, self.hops):
            call = call or self._choose(place, known, calls)
            yield Send(place.audience, f"call {hop}", numbers=call or ())
            heard = yield Receive(place.neighbours, f"call {hop}")
            calls |= {n: Role(*heard.numbers(n)) for n in heard}
        call = call or self._choose(place, known, calls)
        if call is None:
            return None, 0
        parents = tree(place.graph, call.holder, self.hops)
        draw = generator(place.seed, "senders", call.holder, call.turn)
        chosen = draw.choice(sorted(parents), self._count(place, len(parents)), replace=False).tolist()
        return on_the_way(parents, call.holder, place.node, dict.fromkeys(chosen)), call.turn

    def _choose(self, place: Place, known: Role, calls: Mapping[int, Role]) -> Role | None:
        """The highest of these calls, of those only that come by the way on which models would go."""
        graph = place.graph
        assert graph is not None

        def fit(by: int, role: Role) -> bool:
            right = role.sane(place.round) and role.standing >= known.standing and 0 <= role.holder < graph.nodes
            return right and tree(graph, role.holder, self.hops).get(place.node) == by

        return max((r for n, r in calls.items() if fit(n, r)), key=lambda role: role.standing, default=None)

    def _hand_on(self, place: Place, state: "_State", news: dict[int, News]) -> Round:
        """Hand the role on to someone who was heard in this round and has none."""
        able = np.array([n for n in place.partners.tolist() if n in news and not news[n].holds], np.int64)
        to = NOBODY
        if state.holds and len(able):
            to = generator(place.seed, "next", place.identity, state.role.turn).choice(able, 1)
        yield Send(np.setdiff1d(place.partners, to), "role", numbers=())
        if not len(to):
            return
        yield Send(to, "role", numbers=(*state.role[:2], state.role.turn + 1))
        answer = yield Receive(to, "taken")
        state.hand_on(Role(*answer.numbers(int(to[0]))) if answer else None)

    def _take_over(self, place: Place, state: "_State", news: dict[int, News]) -> Round:
        """Take the role if it is handed to this node and none is known that stands higher; say which it is now."""
        leading = np.array([n for n in place.partners.tolist() if n in news and news[n].holds], np.int64)
        if not len(leading):
            return
        heard = yield Receive(leading, "role")
        for n in heard:
            since, origin, turn = heard.numbers(n)
            state.take(Role(since, origin, turn, place.identity))
            yield Send(np.array([n]), "taken", numbers=state.role)


class _State:
    """What a node knows of the role; kept in the counters of its place from round to round."""

    def __init__(self, place: Place) -> None:
        self.me, self.round, self.kept = place.identity, place.round, place.counters
        if not self.kept:
            self._begin(place)
        self.role, self.silent = Role(*(self.kept[name] for name in Role._fields)), self.kept["silent"]
        self.hungry, self.wary = self.kept.get("hungry", 0), self.kept.get("wary", 0)
        """Rounds since the last meeting that this node was at, and until when it believes only those who call it."""
        self.holds = self.kept["leads"] == self.round
        """Whether it has the role. Who has missed a round, and may have handed it on in that, has it no more."""

    def _begin(self, place: Place) -> None:
        """Where nodes are numbered, all know who is the first; else all offer to be, and the lowest will.

        One who joins them later knows of nobody.
        """
        first, since = (self.me if place.graph is None else 0), (0 if place.round == 1 else -1)
        self.kept |= Role(since, first, 0, first)._asdict() | {"leads": 0, "silent": 0}
        if place.graph is not None and since == 0:
            self.kept |= {"leads": int(self.me == first), "silent": -_delays(place.graph)[self.me]}

    def keep(self) -> None:
        """Write down what is known for the next round."""
        leads = self.round + 1 if self.holds else 0
        self.kept |= self.role._asdict() | {"leads": leads, "silent": self.silent}

    def hunger(self, long: int, remarks: list[str]) -> None:
        """Begin to doubt what is told of the role, if for so long nothing has come of it.

        The next time after twice as long, where meetings may just be rare, and for four times as long.
        """
        times = self.kept.get("doubts", 0)
        if self.hungry >= (long := long << times):
            said = "take the role up, and for a while believe only those who call"
            remarks.append(f"no meeting for {long} rounds, whatever others tell of the aggregator: {said}")
            self.wary, self.hungry = self.round + (4 * long << times), 0
            self.kept |= {"wary": self.wary, "doubts": times + 1}
            self._take_up(self.role.turn)

    def eat(self, met: bool, hub: int | None) -> None:
        """Note whether there was a meeting for this node; a hub that called to none is remembered."""
        self.kept["hungry"] = 0 if met else self.hungry + 1
        if hub is not None and not met and self.round < self.wary:
            self.kept[f"vain {hub}"] = self.wary

    def _believed(self, news: dict[int, News]) -> list[Role]:
        if self.round >= self.wary:
            return [said.role for said in news.values()]
        calls = {n: said.role for n, said in news.items() if said.holds and said.called}
        return [role for n, role in calls.items() if self.kept.get(f"vain {n}", 0) <= self.round]

    def learn(self, news: dict[int, News], patience: int) -> None:
        """Take the highest role that one hears of for the right one; offer to take it up if it does not move."""
        best = max([self.role, *self._believed(news)], key=lambda role: role.standing)
        if best.standing > self.role.standing:
            self.role, self.holds, self.silent = best, False, 0
        elif self.holds:
            self.silent = 0
        elif self.role.since == self.round - 1 and self.role.origin == self.role.holder == self.me:
            self.holds, self.silent = True, 0  # offered in the last round, and nobody knows better
        elif news:  # who hears nobody cannot tell
            self.silent += 1
            if self.silent >= patience:
                self._take_up(self.role.turn)

    def _take_up(self, turn: int) -> None:
        """Make the role anew: above all that others may have."""
        self.role, self.silent = Role(self.round, self.me, turn, self.me), 0

    def stay(self, led: bool) -> None:
        """Go on as the aggregator, if one has led and is it still."""
        if led and self.holds:
            self.role = self.role._replace(turn=self.role.turn + 1)

    def hand_on(self, known: Role | None) -> None:
        """Let the role go if it was taken, or a higher one is known; else make it anew, above what may have been taken.

        `known` is the role that its receiver says it knows then, if it says so.
        """
        if known is not None and known.sane(self.round + 1) and known.standing > self.role.standing:
            self.role, self.holds = known, False
        else:
            self._take_up(self.role.turn + 1)

    def take(self, role: Role) -> None:
        """Take the role, if it stands above the one that is known."""
        if role.sane(self.round + 1) and role.standing > self.role.standing:
            self.role, self.holds, self.silent = role, True, 0


@functools.lru_cache(maxsize=8)
def _delays(graph: Graph) -> list[int]:
    """For each node after how many rounds it first hears that the role has left the lowest; 0 if it never will."""
    hops = distances(graph.matrix().T.tocsr(), 0)
    return [int(h) if np.isfinite(h) else 0 for h in hops]

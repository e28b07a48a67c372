"""The model walks from node to node."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from coterie.contract import Rule
from coterie.errors import ConfigError
from coterie.network.graph import Graph
from coterie.protocols import Place, Protocol, Round
from coterie.protocols._paths import broken, found, tour
from coterie.protocols._roles import check_roles, check_trainers, check_words, letters
from coterie.protocols._walking import MODELS, TELLS, WalkState, come_home, go_home, hand_on, remark, take, turn, wander


@dataclass(frozen=True)
class Relay(Protocol):
    """The model walks along a path of nodes, each training on it in turn; on a ring it comes back to the first.

        continuous:  w_k ← train(w_{k−1})
        aggregate, k > 2:  w_k ← train((s_{k−1} w_{k−1} + s_{k−2} w_{k−2}) / (s_{k−1} + s_{k−2}))

    The path is the order of the nodes from `start` on, or `path`, or else one that is looked for. Nodes in `idle` take
    no part, and those in `proxy` pass models on without training. `roles` say it by round instead, a word for each,
    and then the first again, with a letter for each node (or each of `path` or `names`): t trains, p passes models on,
    i is idle. Who hands a model on keeps it until the next one has handed it on as well, and else tries the one after,
    up to `reach` of them: so it needs links to more than the next for a walk to get past a node that is gone. Where it
    gets no further it stays, and goes on from there in the next round. On a ring, if the first has missed the model for
    `patience` rounds, and as many as there are nodes on the path, it begins again with its own. A model with fewer
    turns behind it than one's own is refused, and one with more than can be. A network without such a path will do with
    `through`: the walk then comes back through nodes that have trained, who pass models on; or with `skips`: nodes to
    whom there is no link are left out. Peers on machines of their own have `names` instead of numbers: the path is
    theirs, and each needs the cards of the next on both sides, and of more to get past who is gone.

    Reference: Jiang et al., Performance Analysis of Decentralized Federated Learning Deployments
    """

    aggregate: bool = False
    ring: bool = True
    start: int = 0
    path: tuple[int, ...] = ()
    proxy: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()
    roles: tuple[str, ...] = ()
    through: bool = False
    skips: bool = False
    reach: int = 3
    patience: int = 10
    names: tuple[str, ...] = ()

    in_step, judged, counts_epochs = True, "last", True

    def __post_init__(self) -> None:
        if min(self.reach, self.patience) < 1:
            raise ValueError(f"reach and patience are at least 1, not {self.reach} and {self.patience}")
        if len({*self.names}) < len(self.names):
            raise ValueError(f"names has a peer twice: {', '.join(self.names)}")
        if self.names and (self.path or self.idle):
            raise ValueError("names are the path and leave out who is idle: give neither path nor idle beside them")
        if len({*self.path}) < len(self.path):
            raise ValueError(f"path names a node twice: {', '.join(map(str, self.path))}")
        check_roles(self.roles, self.proxy, self.idle)
        if both := {*self.idle} & {*self.path, *self.proxy}:
            raise ValueError(f"node {min(both)} is idle and yet on the path or a proxy: take it out of one of them")
        if self.through and (self.path or self.names or self.skips):
            raise ValueError("through looks for the walk itself: give neither path nor names nor skips beside it")

    @property
    def local(self) -> bool:
        """With names: those next to one on the path are all that one needs to know."""
        return bool(self.names)

    def among(self, me: str, numbers: Mapping[str, int]) -> "Relay":
        """The path in this peer's own numbers; who is not known here has one that nobody else has."""
        if me not in self.names:
            cure = "Name all peers in their order, this one too: --protocol.names alice,bob,carol."
            raise ConfigError(
                "protocol.names", expected=f"the name of this peer, {me}, among them", got="none", cure=cure
            )
        at, known = self.names.index(me), {me: 0, **numbers}
        sides = [self.names[i % len(self.names)] for i in (at - 1, at + 1) if self.ring or 0 <= i < len(self.names)]
        if missing := [name for name in sides if name not in known]:
            cure = f"Add its card: `coterie peer add {missing[0]}.peer`."
            raise ConfigError(f"{me} hands on to {missing[0]} or takes from it, and does not know it", cure=cure)
        path = tuple(known.get(name, -1 - i) for i, name in enumerate(self.names))
        return replace(self, path=path, proxy=tuple(path[i] for i in self.proxy), names=())

    @property
    def tags(self) -> tuple[str, ...] | None:
        """All of them, if they do not depend on the network."""
        models = (f"{what} {d}" for what in MODELS for d in range(1, self.reach + 1))
        return None if self.through else (*self.tells(0), *models)

    def tells(self, nodes: int) -> dict[str, int]:
        """Tokens, and what is known to whoever has got one."""
        most = max(self.reach, 2 * nodes) if self.through else self.reach
        return {f"{what} {d}": count for what, count in TELLS.items() for d in range(1, most + 1)}

    def _roles(self, nodes: int, round: int) -> dict[int, str]:
        """Everyone's letter in a round: t, p or i."""
        everyone = self.path or range(len(self.names) or nodes)
        return letters(self.roles, self.proxy, self.idle, everyone, round)

    @property
    def _rounds(self) -> range:
        """The rounds after which roles begin again."""
        return range(1, 1 + max(1, len(self.roles)))

    def turns(self, nodes: int, rounds: int) -> int:
        """Everyone who trains does so once, on a ring once a round."""
        trainers = [[*self._roles(nodes, round).values()].count("t") for round in self._rounds]
        return sum(trainers[lap % len(trainers)] for lap in range(rounds if self.ring else 1))

    def trainers(self, graph: Graph, round: int) -> list[tuple[int, ...]]:
        """One after the other along the path, on a line in the first round only."""
        walk, roles = self._path(graph, round) if self.ring or round == 1 else (), self._roles(graph.nodes, round)
        return [(node,) for node in dict.fromkeys(walk) if roles[node] == "t"]

    def in_turn(self, nodes: int) -> int:
        """All on the path."""
        return max(len(self._order(nodes, round)) for round in self._rounds) * (1 + self.through)

    def fits(self, nodes: int, passing: Collection[int] = ()) -> None:
        """Refuse nodes that are not there, and roles that leave nobody to begin or to train."""
        for name, named in (("start", (self.start,)), ("path", self.path), ("proxy", self.proxy), ("idle", self.idle)):
            if wrong := [n for n in named if not 0 <= n < nodes]:
                cure = "Nodes are counted from 0."
                raise ConfigError(f"protocol.{name}", expected=f"nodes 0 to {nodes - 1}", got=wrong[0], cure=cure)
        count = len(self.path or self.names) or nodes
        check_words(self.roles, count)
        check_trainers("relay", self.roles, [self._roles(nodes, round) for round in self._rounds])
        firsts = [self._order(nodes, round)[0] for round in self._rounds]
        if len({*firsts}) > 1:
            expected, got = "the same first in every round", f"nodes {firsts[0]} and {(*{*firsts} - {firsts[0]},)[0]}"
            cure = "Make the first a proxy (p) where it is not to train, or begin elsewhere: --protocol.start."
            raise ConfigError("protocol.roles", expected=expected, got=got, cure=cure)
        if (first := firsts[0]) in passing:
            cure = "Begin with one that neither joins nor leaves: --protocol.start."
            raise ConfigError("the first of a relay", expected="a node that is always there", got=first, cure=cure)

    def _look_after(self, place: Place, state: WalkState, turns: int, count: int) -> None:
        """Let the first begin again if it has missed the model for so long that whoever had it has lost or kept it.

        Any other has fewer turns behind it, and gives way to this one where they meet.
        """
        missed = 0 if state.holds else place.counters.get("missed", 0) + 1
        if missed > (most := max(self.patience, count)):
            state.take_up(turns)
            missed = 0
            place.remarks.append(f"the model has not come back for {most} rounds: the walk begins again here")
        place.counters["missed"] = missed

    def suits(self, graph: Graph) -> None:
        """Refuse a network along which the model cannot walk, and names where nodes have numbers."""
        if self.names:
            expected, cure = "peers on machines of their own", "Give the path by numbers: --protocol.path 3,1,0,2."
            raise ConfigError("protocol.names", expected=expected, got=f"{graph.nodes} nodes of one run", cure=cure)
        if self.skips:
            return
        for round in self._rounds:
            self._look(graph, self._order(graph.nodes, round))

    def _look(self, graph: Graph, order: tuple[int, ...]) -> None:
        if self.path and (gap := broken(graph, order, self.ring)):
            expected = f"a link between nodes {gap[0]} and {gap[1]}, both ways"
            cure = "Take another path, --protocol.path, or another --topology, or leave nodes out: --protocol.skips."
            raise ConfigError("protocol.path", expected=expected, got="none", cure=cure)
        if self.through and tour(graph, order, self.ring) is None:
            expected, cure = "nodes that are connected", "Try another --topology, or --topology.connect true."
            raise ConfigError("no walk through all nodes was found", expected=expected, got="others", cure=cure)
        if not self.path and not self.through and found(graph, order, self.ring) is None:
            kind, other = ("ring", "ring") if self.ring else ("path", "line")
            cure = f"Try --topology {other} or complete, or pass through nodes again: --protocol.through true."
            raise ConfigError(f"no {kind} through all nodes was found", expected=f"a {kind}", got="none", cure=cure)

    def _order(self, nodes: int, round: int) -> tuple[int, ...]:
        roles = self._roles(nodes, round)
        order = self.path or tuple((self.start + i) % len(roles) for i in range(len(roles)))
        return tuple(n for n in order if roles[n] != "i")

    def _path(self, graph: Graph, round: int) -> tuple[int, ...]:
        order = self._order(graph.nodes, round)
        if self.path:
            return order
        return found(graph, order, self.ring) or (tour(graph, order, self.ring) if self.through else None) or order

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        assert self.path or place.graph is not None
        nodes = len(self.path) if place.graph is None else place.graph.nodes
        path = self._order(nodes, place.round) if place.graph is None else self._path(place.graph, place.round)
        if place.node not in path:
            if place.counters.get("holds"):
                place.remarks.append(
                    "it has the model and is idle in this round: the walk goes on from here when it is not"
                )
            return
        at, count, trains = path.index(place.node), len(path), self._roles(nodes, place.round)[place.node] == "t"
        state = WalkState(place, at == 0, self.aggregate)
        laps = (place.round - 1) * self.in_turn(nodes)
        state.most, state.furthest = laps + at, laps + count
        if self.ring and at == 0:
            self._look_after(place, state, laps, count)
        yield from wander(place, state, path, trains) if len({*path}) < count else self._lap(place, state, path, trains)
        if said := remark(place, state, path, self.ring):
            place.remarks.append(said)
        state.keep()

    def _lap(self, place: Place, state: WalkState, path: tuple[int, ...], trains: bool) -> Round:
        """A round on a path that passes everyone once."""
        at, count, near = path.index(place.node), len(path), {*place.partners.tolist()}
        steps = range(1, min(self.reach, count - 1) + 1)
        giver = yield from take(state, {d: path[at - d] for d in steps if d <= at and path[at - d] in near})
        if state.holds and not state.done:
            yield from turn(place, state, trains)
        later = {d: path[at + d] for d in steps if at + d < count and path[at + d] in near}
        homeward = self.ring and at > 0 and count - at in steps and path[0] in near
        # Who gave the last its model keeps it until it is home; the first itself cannot wait for both.
        waits = giver if homeward and not later and giver and giver[0][0] != path[0] else None
        yield from hand_on(state, later, None if waits else giver)
        if homeward:
            yield from go_home(state, count - at, path[0], waits)
        if self.ring and at == 0:
            yield from come_home(state, {d: path[-d] for d in steps if path[-d] in near})

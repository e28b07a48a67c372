"""Protocols without engines: nodes that do what a protocol says, with words instead of models, round after round."""

import copy
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from coterie.contract import Rule
from coterie.network.graph import Graph
from coterie.protocols import (
    Adopt,
    Answer,
    Exercise,
    Heard,
    Merge,
    Observe,
    Place,
    Protocol,
    Receive,
    Send,
    Teach,
    Train,
)

Counters = dict[str, int]


class Told(Heard):
    """Packets by sender: here the operation that sent them."""

    def __init__(self, sent: dict[int, Send]) -> None:
        self.sent = sent

    def __len__(self) -> int:
        return len(self.sent)

    def __iter__(self) -> Iterator[int]:
        return iter(self.sent)

    def __getitem__(self, sender: int) -> Send:
        return self.sent[sender]

    def numbers(self, sender: int) -> tuple[int, ...]:
        return tuple(self.sent[sender].numbers or ())


Loses = Callable[[int, int, str], bool]
"""(from, to, tag) -> whether a message is lost, and the receiver waits for it in vain."""


def nothing(source: int, target: int, tag: str) -> bool:
    return False


def honest(node: int, op: Send) -> Send:
    return op


@dataclass
class World:
    """Nodes that follow the protocol over a network, one round after the other."""

    graph: Graph
    protocol: Protocol
    rule: Rule = field(default_factory=Rule)
    merge_first: bool = False
    names: list[int] | None = None
    """What nodes are called, where they know their neighbours only."""
    round: int = 0
    past: list[list[Counters]] = field(default_factory=list)
    """What nodes kept at the end of every round, the first entry before the first."""
    led: list[dict[int, int]] = field(default_factory=list)
    """Who gave a lesson in each round, and in which turn."""
    lies: Callable[[int, Send], Send] = honest
    """What a node really sends."""
    vain: set[tuple[int, int, str]] = field(default_factory=set)
    """(who, for whom, tag): who waited in vain in the last round, without so much as word that there is nothing."""
    trained: set[int] = field(default_factory=set)
    """Who trained in the last round."""
    done: dict[int, int] = field(default_factory=dict)
    """How many operations each did in the last round."""
    remarks: dict[int, list[str]] = field(default_factory=dict)
    """What nodes had to tell a person of the last round."""

    def __post_init__(self) -> None:
        self.past.append([{} for _ in range(self.graph.nodes)])

    def place(self, node: int, counters: Counters) -> Place:
        near, far = self.graph.neighbours(node), self.graph.audience(node)
        name, known = (node, self.graph) if self.names is None else (self.names[node], None)
        return Place(node, near, far, self.round, 0, counters, name, known)

    def step(
        self,
        loses: Loses = nothing,
        crashes: dict[int, tuple[int, int]] | None = None,
        restarts: dict[int, tuple[int, bool]] | None = None,
    ) -> None:
        """One round. Those who crash do so before an operation, and are then as they were so many rounds ago.

        Those who restart begin the round again, with what has come and will come: at once, or `late`, when the others
        have done all that they can without them.
        """
        crashes, restarts = crashes or {}, restarts or {}
        self.round += 1
        now = copy.deepcopy(self.past[-1])
        self.led.append({})
        self.vain = set()
        run = _Round(self, loses, {node: at for node, (at, _) in (crashes | restarts).items()})

        def begin(node: int) -> Generator[Any, Any, None]:
            now[node] = copy.deepcopy(self.past[-1][node])
            place = self.place(node, now[node])
            self.remarks[node] = place.remarks
            return self.protocol.round(place, self.rule, self.merge_first)

        run.again = {node: (late, lambda node=node: begin(node)) for node, (_, late) in restarts.items()}
        run.carry_out({node: begin(node) for node in range(self.graph.nodes)})
        self.trained, self.done = run.trained, run.done
        for node, (_, back) in crashes.items():
            now[node] = copy.deepcopy(self.past[max(0, len(self.past) - 1 - back)][node])
        self.past.append(now)

    @property
    def holders(self) -> list[int]:
        """Who will lead in the next round."""
        return [n for n, kept in enumerate(self.past[-1]) if kept.get("leads") == self.round + 1]

    @property
    def lineages(self) -> set[tuple[int, int]]:
        """Who took the role up and when, as all nodes believe."""
        return {(kept["since"], kept["origin"]) for kept in self.past[-1]}


class _Round:
    """The messages of one round. Where nobody can go on, a deadline passes for those who have received least often."""

    def __init__(self, world: World, loses: Loses, crashes: dict[int, int]) -> None:
        self.world, self.loses, self.crashes = world, loses, crashes
        self.mail: dict[tuple[int, str], dict[int, Send]] = defaultdict(dict)
        self.received: dict[int, int] = defaultdict(int)
        self.trained: set[int] = set()
        self.again: dict[int, tuple[bool, Callable[[], Generator[Any, Any, None]]]] = {}
        """Those who will begin again once they have crashed, whether late, and how."""

    def carry_out(self, generators: dict[int, Generator[Any, Any, None]]) -> None:
        waiting: dict[int, Receive] = {}
        ready: dict[int, Any] = dict.fromkeys(generators)
        self.alive, self.done = set(generators), dict.fromkeys(generators, 0)
        while self.alive or self._crashed():
            for node, value in ready.items():
                if (op := self._advance(node, generators[node], value)) is not None:
                    waiting[node] = op
            ready = {n: self._come(n, op) for n, op in waiting.items() if self._complete(n, op)}
            for node in [n for n in self._crashed() if not self.again[n][0] or not ready]:
                generators[node] = self.again.pop(node)[1]()
                del self.crashes[node]
                self.trained.discard(node)
                self.alive.add(node)
                ready[node] = None
            if not ready and waiting:
                first = min(self.received[n] for n in waiting)
                ready = {n: self._come(n, op) for n, op in waiting.items() if self.received[n] == first}
            waiting = {n: op for n, op in waiting.items() if n not in ready}

    def _crashed(self) -> list[int]:
        return [n for n in self.again if n not in self.alive and self.done[n] == self.crashes[n]]

    def _advance(self, node: int, generator: Generator[Any, Any, None], value: Any) -> Receive | None:
        """Let a node do what it has to until it waits for something; None if its round is over."""
        while True:
            if self.crashes.get(node) == self.done[node]:
                self.alive.discard(node)
                return None
            self.done[node] += 1
            try:
                op = generator.send(value)
            except StopIteration:
                self.alive.discard(node)
                return None
            if isinstance(op, Receive):
                assert {*op.senders.tolist()} <= {*self.world.graph.neighbours(node).tolist()}
                return op
            value = self._do(node, op)

    def _do(self, node: int, op: Any) -> Any:
        match op:
            case Send():
                assert {*op.to.tolist()} <= {*self.world.graph.audience(node).tolist()}
                for to in op.to.tolist():
                    if not self.loses(node, to, op.tag):
                        self.mail[to, op.tag].setdefault(node, self.world.lies(node, op))
            case Train() | Exercise(trains=True):
                assert node not in self.trained
                self.trained.add(node)
            case Adopt():
                assert op.packet is not None
            case Merge():
                assert len(op.heard)
            case Observe():
                assert self.world.rule.observes
        match op:
            case Teach():
                assert len(op.heard)
                assert 0 <= op.turn < self.world.round
                self.world.led[-1][node] = op.turn
                return {n: f"taught {n}" for n in [*op.heard, node]}
            case Exercise():
                return {n: f"{op.name} to {n}" for n in op.to.tolist()}
            case Answer():
                return {n: f"answer to {n}" for n in op.heard}
        return None

    def _complete(self, node: int, op: Receive) -> bool:
        come = self.mail[node, op.tag]
        return all(s in come or s not in self.alive for s in op.senders.tolist())

    def _come(self, node: int, op: Receive) -> Told:
        self.received[node] += 1
        come = self.mail[node, op.tag]
        self.world.vain |= {(node, s, op.tag) for s in op.senders.tolist() if s not in come}
        found = {s: come[s] for s in op.senders.tolist() if s in come and come[s].numbers != ()}
        return Told(found)

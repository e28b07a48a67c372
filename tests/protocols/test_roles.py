"""The role of aggregator alone: messages that are lost, nodes that break off and come back as they were some time ago,
networks that fall apart and find together. Once that is over there is one role, everyone knows it, and it goes on."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from coterie.lessons.average import Average
from coterie.network.graph import Graph, draw
from coterie.parts import find
from coterie.protocols import Send
from coterie.protocols.wandering import Wandering
from stepping import Loses, World, honest

# Worlds.


def er(nodes: int) -> Graph:
    return draw(find("topologies", "er").make(p=0.4).draw, nodes, nodes, connect=True)


GRAPHS: dict[str, Graph] = {
    "pair": Graph.from_edges(2, [(0, 1)]),
    "ring": Graph.from_edges(7, [(i, (i + 1) % 7) for i in range(7)]),
    "line": Graph.from_edges(6, [(i, i + 1) for i in range(5)]),
    "star": Graph.from_edges(6, [(0, i) for i in range(1, 6)]),
    "complete": Graph.from_edges(5, [(i, j) for i in range(5) for j in range(i)]),
    "er": er(9),
}


def protocol(**settings: Any) -> Wandering:
    return Wandering(lesson=Average(), **settings)


def settled(world: World, rounds: int = 6) -> None:
    """Hold a world without faults to one role, known to all, which goes on by a turn in every round."""
    followed = world.protocol
    assert isinstance(followed, Wandering)
    for _ in range(rounds):
        (holder,) = world.holders
        before = world.past[-1][holder]
        assert len(world.lineages) == 1
        world.step()
        assert world.led[-1] == {holder: before["turn"]}
        (after,) = world.holders
        assert after in world.graph.neighbours(holder) if followed.walks else after == holder
        assert world.past[-1][after]["turn"] == before["turn"] + 1


def recovery(world: World) -> int:
    """After how many rounds without faults a world has to be in order."""
    assert isinstance(world.protocol, Wandering)
    return world.protocol.patience + 2 * int(world.graph.diameter()) + 3


KINDS = {
    "walks": {},
    "stays": {"walks": False},
    "two hops": {"hops": 2},
    "three hops, stays": {"hops": 3, "walks": False},
    "little patience": {"patience": 3},
    "one sender": {"senders": 1},
}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", KINDS)
class TestWithoutFaults:
    def test_begins_with_the_lowest_and_is_never_lost(self, graph: str, kind: str) -> None:
        world = World(GRAPHS[graph], protocol(**KINDS[kind]))
        world.step()
        assert world.led[0] == {0: 0}
        settled(world, 40)
        assert world.lineages == {(0, 0)}

    def test_nobody_waits_in_vain(self, graph: str, kind: str) -> None:
        world = World(GRAPHS[graph], protocol(**KINDS[kind]))
        for _ in range(12):
            world.step()
            assert not world.vain

    def test_who_comes_back_in_the_middle_of_a_round_waits_for_nothing_that_never_comes(
        self, graph: str, kind: str
    ) -> None:
        """Nobody has heard its news, and it hears everybody's: it may be called, and nobody counts on it."""
        world = World(GRAPHS[graph], protocol(**KINDS[kind]))
        world.step()
        for late in [*range(world.graph.nodes)] * 2:
            if late in world.holders:  # it would be the one to call
                continue
            world.step(lambda a, b, tag, late=late: a == late and tag == "news")
            assert not {v for v in world.vain if v[0] == late}, (late, world.vain)


def test_a_long_way_is_no_loss() -> None:
    """Who is far from the first aggregator does not take the role up before it can have heard of it."""
    ring = Graph.from_edges(40, [(i, (i + 1) % 40) for i in range(40)])
    world = World(ring, protocol(patience=3))
    for _ in range(80):
        world.step()
        assert len(world.holders) == 1
    assert world.lineages == {(0, 0)}
    assert world.past[-1][world.holders[0]]["turn"] == 80


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", [k for k in KINDS if "hops" not in k])
def test_who_know_their_neighbours_only_find_one(graph: str, kind: str) -> None:
    """Names are no numbers, and no one is the first; the lowest name is, if patience lasts until all have heard it."""
    names = [int(n) for n in np.random.default_rng(1).permutation(1000)[: GRAPHS[graph].nodes]]
    made = protocol(**KINDS[kind])
    world = World(GRAPHS[graph], made, names=names)
    for _ in range(int(GRAPHS[graph].diameter()) + 2):
        world.step()
    if made.patience >= GRAPHS[graph].diameter():
        assert world.lineages == {(0, min(names))}
    settled(world, 20)


# Faults.


@dataclass
class Fault:
    """What goes wrong in a round."""

    loss: float
    """The share of messages that are lost, drawn by `seed`."""
    seed: int
    apart: set[int]
    """Nodes that hear nothing of the others, nor the others of them."""
    crashes: dict[int, tuple[int, int]]

    def loses(self) -> Loses:
        rng = np.random.default_rng(self.seed)
        return lambda a, b, tag: (a in self.apart) != (b in self.apart) or rng.random() < self.loss


def faults(nodes: int) -> st.SearchStrategy[list[Fault]]:
    node = st.integers(0, nodes - 1)
    crash = st.tuples(st.integers(0, 14), st.integers(0, 6))
    fault = st.builds(
        Fault,
        st.sampled_from([0.0, 0.0, 0.2, 0.6, 1.0]),
        st.integers(0, 2**16),
        st.sets(node, max_size=nodes // 2),
        st.dictionaries(node, crash, max_size=max(1, nodes // 2)),
    )
    return st.lists(fault, max_size=14)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", GRAPHS)
@hypothesis_settings(max_examples=25)
@given(data=st.data())
def test_one_role_once_faults_are_over(graph: str, kind: str, data: st.DataObject) -> None:
    world = World(GRAPHS[graph], protocol(**KINDS[kind]))
    for fault in data.draw(faults(world.graph.nodes)):
        world.step(fault.loses(), fault.crashes)
    for _ in range(recovery(world)):
        world.step()
    settled(world)


@pytest.mark.parametrize("graph", ["ring", "star", "er"])
@hypothesis_settings(max_examples=25)
@given(data=st.data())
def test_one_role_among_those_who_know_their_neighbours_only(graph: str, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.integers(0, 2**62), min_size=10, max_size=10, unique=True))
    world = World(GRAPHS[graph], protocol(), names=names)
    for fault in data.draw(faults(world.graph.nodes)):
        world.step(fault.loses(), fault.crashes)
    for _ in range(recovery(world)):
        world.step()
    settled(world)


@pytest.mark.parametrize("kind", ["walks", "two hops", "three hops, stays"])
@pytest.mark.parametrize("graph", ["ring", "complete", "er"])
@hypothesis_settings(max_examples=15)
@given(data=st.data())
def test_no_number_that_a_neighbour_tells_is_believed_blindly(graph: str, kind: str, data: st.DataObject) -> None:
    """Of any size and sign; once the liar is honest, all is well."""
    world = World(GRAPHS[graph], protocol(**KINDS[kind]))
    liar = data.draw(st.integers(0, world.graph.nodes - 1))
    any_number = st.one_of(st.integers(-2, world.graph.nodes + 3), st.integers(-(2**63), 2**63 - 1))

    def lie(node: int, op: Send) -> Send:
        if node != liar or not op.numbers:
            return op
        return replace(op, numbers=tuple(data.draw(any_number) for _ in op.numbers))

    world.lies = lie
    for _ in range(data.draw(st.integers(1, 5))):
        world.step()
    world.lies = honest
    for _ in range(recovery(world)):
        world.step()
    settled(world)


# The aggregator ends, before any of its operations.


@pytest.mark.parametrize("comes", ["never", "as it was", "as it was then", "to begin again", "late to begin again"])
@pytest.mark.parametrize("kind", ["walks", "stays", "two hops"])
@pytest.mark.parametrize("graph", ["ring", "complete"])
def test_whenever_an_aggregator_ends_there_is_soon_one(graph: str, kind: str, comes: str) -> None:
    """Never more than two at once, one again as soon as everyone can know, and turns go on from about where they were.

    It is gone for good, or comes back as it was at the end of the last round or one before, or begins its round again.
    """
    followed, undisturbed = protocol(**KINDS[kind]), World(GRAPHS[graph], protocol(**KINDS[kind]))
    for _ in range(4):
        undisturbed.step()
    (victim,) = undisturbed.holders
    undisturbed.step()
    for moment in range(undisturbed.done[victim] + 1):
        world, gone = World(GRAPHS[graph], followed), dict[int, tuple[int, int]]()
        for _ in range(4):
            world.step()
        if "begin" in comes:
            world.step(restarts={victim: (moment, "late" in comes)})
        else:
            world.step(crashes={victim: (moment, 2 if "then" in comes else 0)})
        if comes == "never":
            gone[victim] = 0, 0
        for _ in range(recovery(world) + 6):
            world.step(crashes=gone)
        assert all(len(led) <= 2 for led in world.led), (moment, world.led)
        assert all(len(led) == 1 for led in world.led[-7:]), (moment, world.led)
        turns = [max(led.values()) for led in world.led if led]
        old = recovery(world)  # so old may be what is known of the turn where the role is taken up
        assert all(after > before - old for before, after in itertools.pairwise(turns)), (moment, world.led)
        assert turns[-7:] == [*range(turns[-7], turns[-7] + 7)]
        assert turns[-7] >= 4


# Lies.

Lie = tuple[int, ...]


@pytest.mark.parametrize("names", [None, [70, 30, 90, 50]], ids=["numbered", "named"])
@pytest.mark.parametrize(
    "lie",
    [
        lambda r: (r - 1, -(2**63), 0, 12345, 0, 0),
        lambda r: (r - 1, 0, 0, 12345, 0, 0),
        lambda r: (0, 0, r - 1, 0, 0, 0),
        lambda r: (r - 1, 0, r - 1, 0, 1, 0),
        lambda r: (r - 1, 0, r - 1, 0, 1, 1),
    ],
    ids=["below all names", "new in every round", "moves on elsewhere", "holds and calls nobody", "calls in vain"],
)
def test_one_who_says_that_the_role_is_elsewhere_does_not_stop_all_meetings(
    lie: Callable[[int], Lie], names: list[int] | None
) -> None:
    """Node 3 of four; it also takes the role whenever it is handed to it, and does nothing."""
    complete = Graph.from_edges(4, [(i, j) for i in range(4) for j in range(i)])
    world, told = World(complete, protocol(), names=names), list[str]()

    def lies(node: int, op: Send) -> Send:
        if node != 3:
            return op
        return replace(op, numbers=lie(world.round) if op.tag == "news" else ())

    world.lies = lies
    for _ in range(300):
        world.step()
        told += [said for node in range(3) for said in world.remarks[node]]
    led = [round for round in world.led[100:] if round.keys() & {0, 1, 2}]
    assert len(led) > 50
    assert not told or "no meeting for 64 rounds" in told[0]

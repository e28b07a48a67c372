"""Walks that come by nodes more than once, where no path passes all of them once."""

import pytest

from coterie.errors import ConfigError
from coterie.network.graph import Graph
from coterie.protocols.relay import Relay
from stepping import World

STAR = Graph.from_edges(5, [(0, i) for i in range(1, 5)])
TREE = Graph.from_edges(7, [(0, 1), (1, 2), (2, 3), (1, 4), (0, 5), (5, 6)])
MOMENTS = range(40)


def world(graph: Graph, ring: bool, aggregate: bool = False) -> World:
    return World(graph, Relay(ring=ring, aggregate=aggregate, through=True))


def holders(found: World) -> list[int]:
    return [n for n, kept in enumerate(found.past[-1]) if kept.get("holds")]


def turn(found: World) -> int:
    return max(kept.get("turn", 0) for kept in found.past[-1])


@pytest.mark.parametrize("aggregate", [False, True])
@pytest.mark.parametrize("graph", [STAR, TREE])
class TestNothingFails:
    def test_a_line_passes_everyone_once(self, graph: Graph, aggregate: bool) -> None:
        found = world(graph, False, aggregate)
        order = found.protocol.trainers(graph, 1)
        for trained in (set(range(graph.nodes)), set()):
            found.step()
            assert (found.trained, found.vain) == (trained, set())
            assert holders(found) == [order[-1][0]]
            assert not any(found.remarks.values())

    def test_a_ring_comes_home_every_round(self, graph: Graph, aggregate: bool) -> None:
        found = world(graph, True, aggregate)
        for _ in range(3):
            found.step()
            assert (found.trained, found.vain, holders(found)) == (set(range(graph.nodes)), set(), [0])
            assert not any(found.remarks.values())


@pytest.mark.parametrize("aggregate", [False, True])
@pytest.mark.parametrize("victim", range(5))
def test_whoever_begins_its_round_again_makes_no_second_walk(victim: int, aggregate: bool) -> None:
    for late in (False, True):
        for moment in MOMENTS:
            found = world(STAR, True, aggregate)
            for number in range(1, 5):
                found.step(restarts={victim: (moment, late)} if number == 2 else None)
            assert holders(found) == [0], (late, moment)
            assert found.trained == {0, 1, 2, 3, 4}, (late, moment)


@pytest.mark.parametrize("victim", range(1, 5))
def test_a_leaf_that_is_gone_for_good_takes_nothing_with_it(victim: int) -> None:
    for moment in MOMENTS:
        found = world(STAR, True)
        for number in range(1, 5):
            found.step(crashes={victim: (moment if number == 2 else 0, 0)} if number >= 2 else None)
        assert [n for n in holders(found) if n != victim] == [0], moment
        assert found.trained == {0, 1, 2, 3, 4} - {victim}, moment


def test_a_line_goes_on_from_where_it_stays() -> None:
    found = World(STAR, Relay(ring=False, start=1, through=True))
    found.step(loses=lambda source, target, tag: 3 in (source, target) or 4 in (source, target))
    assert found.trained == {1, 0, 2}
    assert found.remarks[0] == [
        "nobody could take the model on: the walk stays here, and goes on from here in a later round"
    ]
    found.step()
    assert found.trained == {4}  # the one after has been passed by
    assert holders(found) == [4]


def test_a_hub_whom_nobody_hears_keeps_the_model_and_says_so() -> None:
    found = world(STAR, True)
    found.step(loses=lambda source, target, tag: True)
    assert found.trained == {0}
    assert any("the walk stays here" in said for said in found.remarks[0])
    found.step()
    assert found.trained == {1, 2, 3, 4}
    assert holders(found) == [0]


def test_where_there_is_a_path_it_is_taken() -> None:
    line = Graph.from_edges(3, [(0, 1), (1, 2)])
    found = world(line, False)
    found.step()
    assert turn(found) == 3


def test_what_cannot_be_walked_is_refused() -> None:
    apart = Graph.from_edges(4, [(0, 1), (2, 3)])
    with pytest.raises(ConfigError, match="nodes that are connected"):
        Relay(through=True).suits(apart)
    with pytest.raises(ConfigError, match=r"no path through all nodes was found.*--protocol\.through true"):
        Relay(ring=False).suits(STAR)
    Relay(ring=False, through=True).suits(STAR)
    with pytest.raises(ValueError, match="give neither path nor names nor skips"):
        Relay(through=True, skips=True)

"""A walk that is interrupted is told of, once and by those who know; one that is not leaves no word."""

import pytest

from coterie.network.graph import Graph
from coterie.protocols.relay import Relay
from stepping import World

LINE = Graph.from_edges(5, [(i, i + 1) for i in range(4)])
RING = Graph.from_edges(5, [(i, (i + 1) % 5) for i in range(5)])
COMPLETE = Graph.from_edges(5, [(i, j) for i in range(5) for j in range(i)])


def told(world: World) -> dict[int, str]:
    """By node the beginning of what is said."""
    return {node: said.split(":")[0] for node, (said, *_) in ((n, r) for n, r in world.remarks.items() if r)}


STAYS, AWAY = "nobody could take the model on", "the model has not come to the end of its walk in this round"


@pytest.mark.parametrize("aggregate", [False, True])
@pytest.mark.parametrize("ring", [False, True])
def test_nothing_is_said_while_nothing_fails(ring: bool, aggregate: bool) -> None:
    world = World(RING, Relay(ring=ring, aggregate=aggregate))
    for _ in range(3):
        world.step()
        assert told(world) == {}


@pytest.mark.parametrize("ring", [False, True])
def test_who_cannot_hand_on_says_so_once_and_the_end_that_nothing_came(ring: bool) -> None:
    world = World(RING if ring else LINE, Relay(ring=ring))
    for expected in ({2: STAYS, 0 if ring else 4: AWAY}, {}):
        world.step(loses=lambda source, target, tag: {source, target} == {2, 3})
        assert told(world) == expected
    world.step()
    assert told(world) == {}  # it has gone on
    assert world.past[-1][0 if ring else 4]["holds"]


def test_a_first_that_nobody_takes_from_says_so() -> None:
    world = World(RING, Relay())
    world.step(loses=lambda source, target, tag: 0 in (source, target))
    assert told(world) == {0: STAYS}


def test_a_last_that_cannot_bring_the_model_home_says_so() -> None:
    world = World(RING, Relay())
    world.step(loses=lambda source, target, tag: {source, target} == {0, 4})
    assert told(world) == {4: STAYS, 0: AWAY}


def test_who_is_passed_by_others_interrupts_nothing() -> None:
    world = World(COMPLETE, Relay())
    world.step(crashes={2: (0, 0)})
    assert told(world) == {}


def test_a_model_that_is_lost_for_good_is_missed_once() -> None:
    world = World(LINE, Relay(ring=False))
    for expected in ({4: AWAY}, {}):
        world.step(crashes={0: (0, 0)})
        assert told(world) == expected

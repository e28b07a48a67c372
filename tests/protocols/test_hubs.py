"""A hub that dies at any moment: in the same round another takes its place, as far as there are links."""

from typing import Any

import pytest

from coterie.errors import ConfigError
from coterie.network.graph import Graph
from coterie.protocols import Send
from coterie.protocols.aggregator import Aggregator
from coterie.protocols.neighbourhood import Neighbourhood
from coterie.protocols.relay import Relay
from stepping import World

NODES = 5
COMPLETE = Graph.from_edges(NODES, [(i, j) for i in range(NODES) for j in range(i)])
STAR = Graph.from_edges(NODES, [(0, i) for i in range(1, NODES)])


@pytest.mark.parametrize("merge_first", [False, True])
@pytest.mark.parametrize(
    "graph", [COMPLETE, STAR, Graph.from_edges(NODES, [(0, 2), (0, 3), (1, 2), (2, 3), (3, 4), (1, 3)])]
)
def test_where_all_are_there_nobody_waits_in_vain_and_the_hub_leads(graph: Graph, merge_first: bool) -> None:
    found = World(graph, Aggregator(), merge_first=merge_first)
    for _ in range(2):
        found.step()
        assert found.vain == set()
        assert [*found.led[-1]] == [0]


@pytest.mark.parametrize("gone", [(), (0,), (0, 1), (0, 1, 2)])
def test_it_names_all_that_is_said(gone: tuple[int, ...]) -> None:
    """So that a peer takes no message that somebody has made up."""
    found, tags = World(COMPLETE, Aggregator(), merge_first=True), set[str]()

    def heard(node: int, op: Send) -> Send:
        tags.add(op.tag)
        return op

    found.lies = heard
    found.step(crashes=dict.fromkeys(gone, (0, 0)))
    named = found.protocol.tags
    assert named is not None
    assert tags <= {*named}
    assert "made up" not in named


@pytest.mark.parametrize("moment", range(3))
def test_a_hub_that_dies_before_it_hands_out_is_replaced_in_the_same_round(moment: int) -> None:
    found = World(COMPLETE, Aggregator(hub=1))
    found.step(crashes={1: (moment, 0)})
    assert [node for node in found.led[-1] if node != 1] == [2]
    found.step()
    assert [*found.led[-1]] == [1]  # it is back


def test_the_next_deputy_leads_if_the_first_is_gone_too() -> None:
    found = World(COMPLETE, Aggregator(hub=3))
    found.step(crashes={3: (0, 0), 4: (0, 0)})
    assert [*found.led[-1]] == [0]


def test_there_are_as_many_deputies_as_are_asked_for() -> None:
    for deputies in (0, 1):
        found = World(COMPLETE, Aggregator(deputies=deputies))
        found.step(crashes=dict.fromkeys(range(deputies + 1), (0, 0)))
        assert found.led[-1] == {}
    with pytest.raises(ValueError, match="deputies is at least 0"):
        Aggregator(deputies=-1)


def test_on_a_star_leaves_go_on_alone_until_the_hub_is_back() -> None:
    found = World(STAR, Aggregator())
    found.step(crashes={0: (0, 0)})
    assert found.led[-1] == {}
    assert found.trained == {1, 2, 3, 4}
    found.step()
    assert [*found.led[-1]] == [0]


@pytest.mark.parametrize("moment", range(12))
@pytest.mark.parametrize("victim", range(3))
@pytest.mark.parametrize("late", [False, True])
def test_who_begins_its_round_again_disturbs_nobody_for_long(victim: int, moment: int, late: bool) -> None:
    found = World(COMPLETE, Aggregator())
    found.step(restarts={victim: (moment, late)})
    assert found.led[-1]
    found.step()
    assert [*found.led[-1]] == [0]
    assert found.vain == set()


def test_a_deputy_leads_those_alone_to_whom_nothing_came_back() -> None:
    found, sent = World(COMPLETE, Aggregator()), list[tuple[int, str]]()

    def lies(node: int, op: Send) -> Send:
        if op.model:
            sent.append((node, op.tag))
        return op

    found.lies = lies
    found.step(loses=lambda source, target, tag: source == 0 and target == 3)
    assert [*found.led[-1]] == [0]
    assert found.vain == {(3, 0, "model back")}
    assert (3, "model 1") not in sent  # no deputy leads, and it is told so
    found.step(loses=lambda source, target, tag: source == 0 and target in (1, 3))
    assert {*found.led[-1]} == {0, 1}
    assert (3, "model 1") in sent
    assert (2, "model 1") not in sent


def test_hubs_take_turns_round_by_round() -> None:
    found = World(COMPLETE, Aggregator(hub=(2, 0, 4)))
    for _ in range(4):
        found.step()
        assert found.vain == set()
    assert [[*led] for led in found.led] == [[2], [0], [4], [2]]
    found.step(crashes={0: (0, 0)})
    assert [*found.led[-1]] == [1]  # its deputy


def test_there_is_a_hub_in_every_round() -> None:
    with pytest.raises(ValueError, match="hub names nobody"):
        Aggregator(hub=())
    with pytest.raises(ConfigError, match="got 5"):
        Aggregator(hub=(0, 5)).fits(5)
    with pytest.raises(ConfigError, match="no hub by round"):
        Aggregator(hub=(0, 1)).out_of_step()


@pytest.mark.parametrize("graph", [COMPLETE, STAR])
@pytest.mark.parametrize(
    ("given", "trained"),
    [
        ({"proxy": (0,)}, [{1, 2, 3, 4}] * 2),
        ({"proxy": (0, 3), "merge_first": True}, [{1, 2, 4}] * 2),
        ({"idle": (2,)}, [{0, 1, 3, 4}] * 2),
        ({"roles": ("ptttt", "titpt")}, [{1, 2, 3, 4}, {0, 2, 4}]),
    ],
)
def test_everyone_does_what_is_its_role(graph: Graph, given: dict[str, Any], trained: list[set[int]]) -> None:
    settings = dict(given)
    merge_first = bool(settings.pop("merge_first", False))
    found = World(graph, Aggregator(**settings), merge_first=merge_first)
    for expected in trained:
        found.step()
        assert found.trained == expected
        assert found.vain == set()
        assert [*found.led[-1]] == [0]
        ((only,),) = [found.protocol.trainers(graph, found.round)]
        assert {*only} == expected


def test_a_proxy_in_place_of_the_hub_leads_the_others() -> None:
    found = World(COMPLETE, Aggregator(proxy=(1,)))
    found.step(crashes={0: (0, 0)})
    assert [*found.led[-1]] == [1]
    assert found.trained == {2, 3, 4}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"idle": (0,)}, "a node that takes part, got node 0"),
        ({"hub": (0, 1), "roles": ("ttttt", "titti")}, "got node 1, which is idle in round 2"),
        ({"roles": ("ptpp",)}, "words of 5 letters"),
        ({"proxy": (0, 1, 2, 3, 4)}, "protocol aggregator: no node trains"),
        ({"roles": ("ttttt", "ppppp")}, "no node trains in round 2"),
        ({"proxy": (7,)}, "nodes 0 to 4, got 7"),
    ],
)
def test_roles_that_do_not_fit_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Aggregator(**given).fits(NODES)


def test_who_knows_no_deputy_waits_for_a_hub_that_is_lost() -> None:
    assert [Aggregator().waits(node, STAR) for node in range(NODES)] == [False, True, True, True, True]
    assert not any(Aggregator().waits(node, COMPLETE) for node in range(NODES))
    assert all(Relay().waits(node, COMPLETE) for node in range(NODES))
    assert not any(Neighbourhood().waits(node, STAR) for node in range(NODES))

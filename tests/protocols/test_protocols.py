"""Protocols alone: what each node asks for, in which order, with nobody to carry it out."""

from collections.abc import Collection, Iterator
from typing import Any

import pytest

from coterie.contract import Rule
from coterie.network.graph import Graph, draw
from coterie.parts import find, names
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
from stepping import Loses, World


class Kept(Heard):
    """Packets by sender: here a word each."""

    def __init__(self, senders: list[int]) -> None:
        self.senders = senders

    def __len__(self) -> int:
        return len(self.senders)

    def __iter__(self) -> Iterator[int]:
        return iter(self.senders)

    def __getitem__(self, sender: int) -> str:
        return f"from {sender}"


class Asking(Rule):
    answers = True
    observes = True


def place(graph: Graph, node: int, round: int = 1) -> Place:
    return Place(node, graph.neighbours(node), graph.audience(node), round, 0, {}, node, graph)


def script(
    protocol: str,
    at: Place,
    rule: Rule | None = None,
    merge_first: bool = False,
    deaf: bool | Collection[int] = False,
    **settings: Any,
) -> list[Any]:
    """All that one node asks for in a round in which it hears everybody it waits for, or (deaf) nobody, or not some."""
    generator = find("protocols", protocol).make(**settings).round(at, rule or Rule(), merge_first)
    asked, result = [], None
    while True:
        try:
            op = generator.send(result)
        except StopIteration:
            return asked
        asked.append(op)
        match op:
            case Receive():
                silent = op.senders if deaf is True else deaf or ()
                result = Kept([n for n in op.senders.tolist() if n not in silent])
            case Answer():
                result = {n: f"answer to {n}" for n in op.heard}
            case Exercise():
                result = {n: f"{op.name} to {n}" for n in op.to.tolist()}
            case Teach():
                result = {n: f"taught {n}" for n in [*op.heard, at.node]}
            case _:
                result = None


def kinds(asked: list[Any]) -> list[type]:
    return [type(op) for op in asked]


LINE, RING = Graph.from_edges(3, [(0, 1), (1, 2)]), Graph.from_edges(4, [(0, 1), (1, 2), (2, 3), (3, 0)])
GRAPHS = [LINE, RING, draw(find("topologies", "er").make(p=0.5, directed=True).draw, 7, 1, connect=True)]


class TestNeighbourhood:
    def test_round(self) -> None:
        asked = script("neighbourhood", place(LINE, 1))
        assert kinds(asked) == [Train, Send, Receive, Merge]
        assert asked[1].to.tolist() == asked[2].senders.tolist() == [0, 2]

    def test_start_with_a_merge(self) -> None:
        """Once, before the first training, under a tag of its own."""
        asked = script("neighbourhood", place(LINE, 1), merge_first=True)
        assert kinds(asked) == [Send, Receive, Merge, Train, Send, Receive, Merge]
        assert asked[0].tag == asked[1].tag != asked[4].tag == asked[5].tag
        assert kinds(script("neighbourhood", place(LINE, 1, round=2), merge_first=True)) == [
            Train,
            Send,
            Receive,
            Merge,
        ]

    def test_empty_inbox_is_not_merged(self) -> None:
        assert kinds(script("neighbourhood", place(LINE, 1), deaf=True)) == [Train, Send, Receive]

    def test_answers_go_to_each_neighbour_alone(self) -> None:
        asked = script("neighbourhood", place(LINE, 1), Asking())
        assert kinds(asked) == [Train, Observe, Send, Receive, Answer, Send, Send, Receive, Merge]
        assert [(op.to.tolist(), op.packet) for op in asked[5:7]] == [([0], "answer to 0"), ([2], "answer to 2")]
        assert len({asked[2].tag, asked[5].tag}) == 2
        assert asked[-1].answers is not None

    def test_no_answer_where_there_is_no_way_back(self) -> None:
        oneway = Graph.from_edges(2, [(0, 1)], directed=True)
        sends = [op for op in script("neighbourhood", place(oneway, 1), Asking()) if isinstance(op, Send)]
        assert not any(len(op.to) for op in sends)


class TestAggregator:
    star = Graph.from_edges(4, [(0, 1), (0, 2), (0, 3)])

    def test_leaf_and_hub(self) -> None:
        leaf, hub = script("aggregator", place(self.star, 2)), script("aggregator", place(self.star, 0))
        assert kinds(leaf) == [Train, Send, Receive, Adopt]
        assert kinds(hub) == [Train, Receive, Teach, Send, Send, Send, Adopt]
        assert leaf[1].tag == hub[1].tag != leaf[2].tag == hub[3].tag
        assert leaf[1].model
        assert leaf[3].packet == "from 0"
        assert {op.packet: op.to.tolist() for op in hub if isinstance(op, Send)} == {
            f"taught {n}": [n] for n in (1, 2, 3)
        }

    def test_out_of_reach(self) -> None:
        assert kinds(script("aggregator", place(LINE, 2))) == [Train]

    def test_start_with_a_lesson(self) -> None:
        asked = script("aggregator", place(self.star, 1), merge_first=True)
        assert kinds(asked) == [Send, Receive, Adopt, Train, Send, Receive, Adopt]

    def test_nobody_heard_nobody_taught(self) -> None:
        asked = script("aggregator", place(self.star, 0), deaf=True)
        assert kinds(asked) == [Train, Receive, Send]
        assert asked[-1].numbers == ()
        assert kinds(script("aggregator", place(self.star, 1), deaf=True)) == [Train, Send, Receive]

    def test_any_hub(self) -> None:
        complete = Graph.from_edges(3, [(0, 1), (0, 2), (1, 2)])
        assert Teach in kinds(script("aggregator", place(complete, 2), hub=2))
        assert Teach not in kinds(script("aggregator", place(complete, 0), hub=2))


class TestMeetings:
    """In a star of four everybody meets, around the hub or in a pair with a leaf."""

    star = Graph.from_edges(4, [(0, 1), (0, 2), (0, 3)])

    def led_by_the_centre(self) -> int:
        """A round in which the groups drawn are one, around node 0."""
        return next(r for r in range(1, 99) if Teach in kinds(script("meetings", place(self.star, 0, r))))

    def test_whose_model_does_not_come_is_left_out_and_told_so(self) -> None:
        at = place(self.star, 0, self.led_by_the_centre())
        asked = script("meetings", at, deaf=[2])
        assert kinds(asked) == [Train, Receive, Teach, Send, Send, Send, Adopt]
        assert [*asked[2].heard] == [1, 3]
        told = {op.to.item(): op.packet for op in asked if isinstance(op, Send)}
        assert told == {1: "taught 1", 2: None, 3: "taught 3"}
        assert Teach not in kinds(script("meetings", at, deaf=True))

    def test_to_whom_no_model_comes_back_keeps_its_own(self) -> None:
        at = place(self.star, 1, self.led_by_the_centre())
        assert kinds(script("meetings", at)) == [Train, Send, Receive, Adopt]
        assert kinds(script("meetings", at, deaf=True)) == [Train, Send, Receive]


class TestDESA:
    def test_round(self) -> None:
        """Anchors, then logits, one packet for each partner; then training on what came."""
        asked = script("desa", place(LINE, 1))
        assert kinds(asked) == [Exercise, Send, Send, Receive, Exercise, Send, Send, Receive, Exercise]
        assert [op.name for op in asked if isinstance(op, Exercise)] == ["offer", "tell", "learn"]
        assert [(op.to.tolist(), op.packet) for op in asked[5:7]] == [([0], "tell to 0"), ([2], "tell to 2")]
        assert asked[1].tag == asked[3].tag != asked[5].tag == asked[7].tag
        assert asked[-1].trains

    def test_only_links_that_go_both_ways(self) -> None:
        oneway = Graph.from_edges(3, [(0, 1), (1, 2), (2, 1)], directed=True)
        assert [op.to.tolist() for op in script("desa", place(oneway, 1)) if isinstance(op, Send)] == [[2], [2]]
        assert kinds(script("desa", place(oneway, 0))) == [Exercise, Receive, Exercise, Receive, Exercise]


@pytest.mark.parametrize("name", names("protocols"))
@pytest.mark.parametrize("merge_first", [False, True])
@pytest.mark.parametrize("rule", [Rule(), Asking()], ids=["plain", "asking"])
class TestEveryProtocol:
    """`World` holds everyone to its links, to at most one training a round, and to merge and teach what came."""

    def made(self, name: str) -> Protocol:
        protocol: Protocol = find("protocols", name).make()
        return protocol

    @pytest.mark.parametrize("loses", [lambda *_: False, lambda *_: True, lambda a, b, _: a > b])
    def test_keeps_to_its_links(self, name: str, merge_first: bool, rule: Rule, loses: Loses) -> None:
        for graph in GRAPHS:
            world = World(graph, self.made(name), rule, merge_first)
            for number in range(3):
                world.step(loses)
                assert world.trained or (name == "relay" and number)  # a walk that gets no further waits

    def test_nobody_waits_for_what_is_never_sent(self, name: str, merge_first: bool, rule: Rule) -> None:
        """Where links go both ways and all are up, every packet waited for is sent, under the same tag."""
        for graph in GRAPHS[:2]:
            world = World(graph, self.made(name), rule, merge_first)
            for _ in range(3):
                world.step()
                assert not world.vain

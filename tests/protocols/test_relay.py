"""Relays whose nodes crash at any moment: never two of them, and never none."""

from dataclasses import replace

import pytest

from coterie.errors import ConfigError
from coterie.network.graph import Graph
from coterie.protocols.relay import Relay
from stepping import World, honest

MOMENTS = range(48)
"""Before each of so many operations of a round; a round of four nodes has fewer."""
NODES = 4


def world(ring: bool, aggregate: bool) -> World:
    complete = Graph.from_edges(NODES, [(i, j) for i in range(NODES) for j in range(i)])
    return World(complete, Relay(ring=ring, aggregate=aggregate, reach=NODES))


def holders(found: World, without: int | None = None) -> list[int]:
    return [n for n, kept in enumerate(found.past[-1]) if kept.get("holds") and n != without]


def turn(found: World) -> int:
    return max(kept.get("turn", 0) for kept in found.past[-1])


@pytest.mark.parametrize("aggregate", [False, True])
@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("victim", range(NODES))
@pytest.mark.parametrize("crash", [1, 2])
class TestWhoBeginsAgain:
    """From its checkpoint, with what the others have kept for it: as peers that are killed and started again."""

    def test_at_once_there_is_one_relay_and_a_turn_is_lost_at_most(
        self, crash: int, victim: int, ring: bool, aggregate: bool
    ) -> None:
        calm = world(ring, aggregate)
        for _ in range(4):
            calm.step()
        for moment in MOMENTS:
            found = world(ring, aggregate)
            for number in range(1, 5):
                found.step(restarts={victim: (moment, False)} if number == crash else None)
            assert len(holders(found)) == 1, moment
            assert turn(found) >= turn(calm) - 1, moment  # others may have gone past it

    def test_late_there_is_one_relay_from_the_next_round_on(
        self, crash: int, victim: int, ring: bool, aggregate: bool
    ) -> None:
        for moment in MOMENTS:
            found, turns = world(ring, aggregate), list[int]()
            for number in range(1, 5):
                found.step(restarts={victim: (moment, True)} if number == crash else None)
                assert holders(found), moment
                assert number <= crash or len(holders(found)) == 1, moment
                turns.append(turn(found))
            assert turns == sorted(turns)
            assert not ring or turns[-1] > turns[crash - 1], moment  # and it goes on


@pytest.mark.parametrize("aggregate", [False, True])
@pytest.mark.parametrize(("ring", "victims"), [(True, (1, 2, 3)), (False, (1, 2))])
@pytest.mark.parametrize("crash", [1, 2])
def test_who_is_gone_for_good_takes_nothing_with_it(
    crash: int, ring: bool, victims: tuple[int, ...], aggregate: bool
) -> None:
    """But for the first, who begins and is brought the model, and the last of a line, who has it in the end."""
    for victim in victims:
        for moment in MOMENTS:
            found = world(ring, aggregate)
            for number in range(1, 5):
                found.step(crashes={victim: (moment if number == crash else 0, 0)} if number >= crash else None)
                assert len(holders(found, without=victim)) == 1, (victim, moment, number)
            assert not ring or turn(found) > 3 * (NODES - 1), (victim, moment)


def test_a_model_with_fewer_turns_is_refused() -> None:
    """A first that has forgotten two rounds offers an old model: nobody takes it, and it gives way."""
    found = world(ring=True, aggregate=False)
    for _ in range(3):
        found.step()
    found.past[-1][0] |= {"turn": 1}  # as it was in the first round
    before = [dict(kept) for kept in found.past[-1]]
    found.step()
    assert [kept["turn"] for kept in found.past[-1][1:]] == [kept["turn"] for kept in before[1:]]
    assert holders(found) == []


@pytest.mark.parametrize("numbers", [(2**63 - 1, 0, 0), (4, 0, 0), (1, 1, 0), (1, 0, 3), (-(2**63), 0, 0)])
def test_a_token_that_cannot_be_is_not_believed(numbers: tuple[int, ...]) -> None:
    """Of more turns than the path has had by then, of epochs that nobody trains, or of what is no number of models."""
    found = world(ring=True, aggregate=False)
    found.lies = lambda node, op: replace(op, numbers=numbers) if node == 0 and op.tag.startswith("token") else op
    found.step()
    assert found.trained == {0}
    assert (turn(found), holders(found)) == (1, [0])


def test_a_liar_about_turns_makes_nobody_refuse_those_who_are_honest() -> None:
    """The highest count that is believed of it leaves room for all who come after it."""
    found = world(ring=True, aggregate=False)
    found.step()
    found.lies = lambda node, op: replace(op, numbers=(NODES + 2, 0, 1)) if node == 1 and op.tag == "token 1" else op
    found.step()
    assert found.trained == set(range(NODES))
    assert holders(found) == [0]


@pytest.mark.parametrize("said", [2**62, 2**63 - 1])
def test_nobody_lets_a_model_go_for_a_walk_that_cannot_have_come_so_far(said: int) -> None:
    found = world(ring=True, aggregate=False)
    found.lies = lambda node, op: replace(op, numbers=(said,)) if node == 2 and op.tag.startswith("past") else op
    found.step(loses=lambda source, target, tag: tag.startswith(("token", "home")) and source == 1)
    assert holders(found) == [1]


class TestAModelThatIsKept:
    """Node 1 says that it has handed the model on, and has not."""

    @staticmethod
    def kept() -> World:
        found = world(ring=True, aggregate=False)
        found.protocol = Relay(reach=NODES, patience=3)
        found.step()
        silent = ("token", "home ")
        found.lies = lambda node, op: replace(op, numbers=()) if node == 1 and op.tag.startswith(silent) else op
        found.step()
        found.past[-1][1] |= {"holds": 0}
        found.lies = honest
        assert holders(found) == []
        return found

    def test_the_first_begins_again_and_says_so(self) -> None:
        found, told = self.kept(), list[int]()
        for number in range(3, 9):
            found.step()
            told += [number for said in found.remarks[0] if "begins again" in said]
            assert found.trained == (set(range(NODES)) if told else set())
        assert told == [7]  # four rounds without it: as many as there are nodes, which is more than its patience
        assert holders(found) == [0]

    def test_there_is_one_relay_if_the_other_turns_up_again(self) -> None:
        for back in range(3, 10):
            found = self.kept()
            for number in range(3, 12):
                if number == back:
                    found.past[-1][1] |= {"holds": 1, "done": 1}
                found.step()
            assert holders(found) == [0]
            assert found.trained == set(range(NODES))


class TestRolesByRound:
    """Words of t, p and i that take turns."""

    def test_everyone_does_in_a_round_what_is_its_role_then(self) -> None:
        complete = world(ring=True, aggregate=False).graph
        found = World(complete, Relay(roles=("tttt", "ptit", "tpti")))
        for trained, turns in (({0, 1, 2, 3}, 4), ({1, 3}, 7), ({0, 2}, 10), ({0, 1, 2, 3}, 14)):
            found.step()
            assert (found.trained, turn(found), holders(found)) == (trained, turns, [0])
            assert found.vain == set()

    def test_who_has_the_model_and_is_idle_keeps_it_and_says_so(self) -> None:
        found = World(world(ring=True, aggregate=False).graph, Relay(reach=1, roles=("tttt", "ttit", "tttt")))
        found.step(loses=lambda source, target, tag: {source, target} == {2, 3})
        found.step()
        assert found.trained == set()
        assert holders(found) == [2]
        assert "idle" in found.remarks[2][0]
        found.step()
        assert found.trained == {3}
        assert holders(found) == [0]

    def test_a_budget_is_shared_out_among_those_who_train_in_some_round(self) -> None:
        assert Relay(roles=("tttt", "ptit")).turns(4, 5) == 4 + 2 + 4 + 2 + 4
        assert Relay(roles=("ptit", "tttt"), ring=False).turns(4, 5) == 2

    @pytest.mark.parametrize(
        ("roles", "said"),
        [
            (("tttt", "tt"), "protocol.roles: expected words of 4 letters, got tt"),
            (("tttt", "pipi"), "no node trains in round 2"),
            (("tttt", "ittt"), "expected the same first in every round, got nodes 0 and 1"),
        ],
    )
    def test_roles_that_do_not_fit_are_refused(self, roles: tuple[str, ...], said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            Relay(roles=roles).fits(4)

    def test_other_letters_are_none(self) -> None:
        with pytest.raises(ValueError, match="not 'tax'"):
            Relay(roles=("ttt", "tax"))
        with pytest.raises(ValueError, match="give neither proxy nor idle"):
            Relay(roles=("ttt",), proxy=(1,))

"""What has come to a node and what is refused: no event loop, no clock, no disk."""

import pytest
import torch

from coterie.contract import Message, Rule
from coterie.errors import Refused
from coterie.mail.mailbox import Box, Mailbox, NewestMail
from coterie.node.sums import Packet, Summed


def packet(sender: int, value: float = 1.0, round: int = 1, field: str = "w", kind: str = "mlp") -> Packet:
    return Packet(sender, kind, Message({field: torch.full((3,), value)}, torch.tensor([10.0]), round))


def sums() -> Summed:
    return Summed(Rule(), "mlp", dict.fromkeys(range(4), 1.0))


def refusal(mail: Mailbox | NewestMail, sender: int, round: int, tag: str = "model") -> str:
    try:
        mail.judge(sender, round, tag)
    except Refused as refused:
        return refused.reason
    return ""


def put(mail: Mailbox, sender: int, round: int, tag: str = "model") -> None:
    mail.judge(sender, round, tag)
    mail.box(round, tag).add(sender, packet(sender, round=round))


class TestMailbox:
    @pytest.fixture
    def mail(self) -> Mailbox:
        made = Mailbox({1, 2, 3}, 20)
        made.begin(3)
        return made

    def test_each_message_is_taken_once(self, mail: Mailbox) -> None:
        put(mail, 1, 3)
        assert refusal(mail, 1, 3) == "duplicate"
        assert refusal(mail, 2, 3) == ""
        assert refusal(mail, 1, 3, "start") == ""  # another message of the same round

    def test_nobody_makes_up_more_messages_than_there_can_be(self) -> None:
        mail = Mailbox({1, 2}, 20, most=5)
        for number in range(40):
            if not refusal(mail, 1, 1, f"made up {number}"):
                put(mail, 1, 1, f"made up {number}")
        assert len(mail.boxes) == 5
        assert refusal(mail, 1, 1, "another") == "tag"
        assert refusal(mail, 1, 2, "another") == ""
        assert refusal(mail, 2, 1, "another") == ""

    def test_past_and_future_rounds_are_refused(self, mail: Mailbox) -> None:
        assert [refusal(mail, 1, round) for round in (0, 1, 2, 3)] == ["past", "past", "past", ""]
        assert refusal(mail, 1, 4) == ""  # it may have ended my round already
        assert refusal(mail, 1, 5) == "future"  # but no other without me
        assert refusal(mail, 1, 21) == "future"

    def test_before_the_first_round_the_first_two_are_taken(self) -> None:
        assert [refusal(Mailbox({1}, 20), 1, round) for round in (0, 1, 2, 3)] == ["past", "", "", "future"]

    def test_there_is_nothing_after_the_last_round(self) -> None:
        mail = Mailbox({1}, 3)
        mail.begin(3)
        assert [refusal(mail, 1, round) for round in (3, 4)] == ["", "future"]

    def test_strangers_are_refused(self, mail: Mailbox) -> None:
        assert refusal(mail, 7, 3) == "stranger"

    def test_what_comes_after_the_merge_is_past(self, mail: Mailbox) -> None:
        put(mail, 1, 3)
        assert list(mail.box(3, "model").hand_out([1, 2])) == [1]
        assert refusal(mail, 2, 3) == "past"
        assert refusal(mail, 1, 3) == "duplicate"
        assert refusal(mail, 2, 4) == ""

    def test_a_merge_that_heard_nobody_is_over_too(self, mail: Mailbox) -> None:
        assert not mail.box(3, "model").hand_out([1, 2])
        assert refusal(mail, 2, 3) == "past"

    def test_nothing_to_say_is_an_answer(self, mail: Mailbox) -> None:
        box = mail.box(3, "model")
        box.add(1, None)
        assert refusal(mail, 1, 3) == "duplicate"
        assert box.missing([1, 2]) == [2]
        assert (box.models, box.bytes) == (0, {1: 0})

    def test_what_came_early_is_kept_and_what_is_old_is_dropped(self, mail: Mailbox) -> None:
        put(mail, 1, 3)
        put(mail, 2, 4)
        mail.begin(4)
        assert list(mail.boxes) == [(4, "model")]
        assert list(mail.box(4, "model").hand_out([1, 2])) == [2]


class TestBox:
    def test_messages_are_kept_in_the_order_of_their_senders(self) -> None:
        box = Box()
        for sender in (3, 1, 2):
            box.add(sender, packet(sender))
        assert box.models == 3
        assert list(box.hand_out([2, 3])) == [2, 3]

    def test_messages_are_added_up_and_not_kept(self) -> None:
        box = Box(sums())
        box.add(1, packet(1, 1.0))
        box.add(2, packet(2, 5.0))
        assert (box.models, box.packets, box.bytes) == (2, {}, {1: 12, 2: 12})
        heard = box.hand_out([1, 2])
        assert isinstance(heard, Summed)
        torch.testing.assert_close(heard.sums.merged("w", None, normalised=True), torch.full((3,), 3.0))

    def test_models_of_another_kind_have_come_but_cannot_be_merged(self) -> None:
        box = Box(sums())
        box.add(1, packet(1, kind="cnn"))
        assert box.models == 0
        assert box.missing([1, 2]) == [2]

    def test_what_cannot_be_added_is_refused_and_leaves_no_trace(self) -> None:
        box = Box(sums())
        with pytest.raises(Refused, match="fields"):
            box.add(1, packet(1, field="other"))
        assert (box.models, box.missing([1])) == (0, [1])
        box.add(1, packet(1))
        assert (box.models, box.missing([1])) == (1, [])


class TestNewestMail:
    def test_only_what_is_newer_is_taken(self) -> None:
        mail = NewestMail(20)
        mail.note("model", packet(1, round=3))
        assert [refusal(mail, 1, round) for round in (2, 3, 4, 20, 21)] == ["duplicate", "duplicate", "", "", "future"]
        assert refusal(mail, 1, 3, "start") == refusal(mail, 2, 3) == ""
        assert refusal(mail, 2, 0) == "past"

    def test_the_newest_of_each_is_handed_out_once_without_its_fields(self) -> None:
        mail = NewestMail(20)
        for sender, round in ((2, 1), (1, 2), (2, 4)):
            mail.note("model", packet(sender, round=round))
        taken = mail.take([1, 2, 3])
        assert [(p.sender, p.architecture, p.message.round, p.message.fields) for p in taken] == [
            (1, "mlp", 2, {}),
            (2, "mlp", 4, {}),
        ]
        assert mail.take([1, 2, 3]) == []
        assert refusal(mail, 2, 4) == "duplicate"  # also after it was merged

    def test_nothing_to_say_leaves_the_last_word_standing(self) -> None:
        mail = NewestMail(20)
        mail.note("model", packet(1, round=2))
        mail.note("model", Packet(1, "mlp", Message({}, torch.zeros(1), 3)))
        assert refusal(mail, 1, 3) == "duplicate"
        assert [p.message.round for p in mail.take([1])] == [2]

    def test_nobody_makes_up_more_kinds_of_messages_than_there_can_be(self) -> None:
        mail = NewestMail(20, most=2)
        for tag in ("one", "two"):
            mail.judge(1, 1, tag)
            mail.note(tag, packet(1))
        assert refusal(mail, 1, 2, "three") == "tag"
        assert refusal(mail, 1, 2, "two") == ""
        assert refusal(mail, 2, 1, "three") == ""

"""What one neighbour hands to a lesson neither spoils the others' models nor stays with those who met it."""

from typing import Any

import pytest
import torch

from coterie.node.sums import Packet
from driving import light
from hostile import Said, Victim

DEEP = {"name": "cnn", "channels": [4, 8, 8], "kernel": 3}
NEWS = {"numbers": (0, 0, 0, 0, 0, 0)}


def met(lesson: str, times: float, model: Any) -> tuple[Victim, dict[int, Packet | None]]:
    """A node that gives a lesson to three, of whom the last hands in a model so many times as large; what they get."""
    protocol = {"name": "wandering", "lesson": lesson, "share": 1.0}
    victim = Victim(rounds=30, protocol=protocol, rule="isolation", model=model)
    back: dict[int, Packet | None] = {}

    def send(sender: int, to: list[int], tag: str, packet: Packet | None) -> None:
        if tag == "back":
            back.update(dict.fromkeys(to, packet))

    def says(sender: int, tag: str, round: int) -> Said | None:
        if victim.expected.numbers(tag):
            return NEWS if tag == "news" else None
        return {"fields": {"w": victim.node.params * (times if sender == 3 else 1.0)}}

    victim.send = send  # type: ignore[method-assign]
    victim.live(1, says)
    assert not victim.refused
    return victim, back


def test_a_model_that_explodes_in_a_lesson_is_kept_from_others() -> None:
    victim, back = met("mutual", 900.0, DEEP)
    assert [node for node, packet in back.items() if packet is not None] == [1, 2]
    assert not victim.blamed
    for packet in back.values():
        assert packet is None or packet.message["w"].abs().max() < 10


@pytest.mark.parametrize("lesson", ["average", "united"])
def test_a_lesson_that_ruins_ones_own_model_is_undone(lesson: str) -> None:
    victim, back = met(lesson, 900.0, DEEP)
    assert set(back.values()) == {None}
    assert [senders for senders, _ in victim.blamed] == [[1, 2, 3]]
    assert victim.node.params.abs().max() < 10


@pytest.mark.parametrize("lesson", ["average", "united"])
def test_nobody_weighs_more_than_its_share_in_a_lesson(lesson: str) -> None:
    """Alone with the aggregator, and with more data than anybody, as it says."""
    protocol = {"name": "wandering", "lesson": lesson, "share": 1.0}
    victim = Victim(rounds=30, known=False, protocol=protocol, rule="isolation", lr=1e-9)
    own = victim.node.params.clone()

    def says(sender: int, tag: str, round: int) -> Said | None:
        if victim.expected.numbers(tag):
            return NEWS if tag == "news" else None
        return {"fields": {"w": own + 1.0}, "size": 9.99e11} if sender == 3 else None

    victim.live(1, says)
    assert (victim.node.params - own).mean() == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("size", [300.0, 9000.0])
def test_a_small_model_that_travels_is_held_to_ones_own(size: float) -> None:
    """Else it would be averaged, and handed to everyone, for good."""
    victim = Victim(rounds=30, protocol=light("fml"), rule="isolation")

    def says(sender: int, tag: str, round: int) -> Said | None:
        if victim.expected.numbers(tag):
            return NEWS if tag == "news" else None
        meme = torch.zeros(victim.fields(tag)["meme"])
        return {"fields": {"meme": meme + (size if sender == 3 else 0.1)}}

    victim.live(2, says)
    assert victim.refused == {"too-large": 1}
    assert victim.node.notes["meme"].abs().max() < 1

"""A peer's mail room: it takes in, waits and hands out by the rules of `coterie.mail`, with a real clock and disk."""

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from coterie.contract import Message
from coterie.errors import Refused
from coterie.job import Ledger
from coterie.mail.pace import MISSES, Neighbour, Pace, Timing
from coterie.node.node import peers
from coterie.node.sums import Packet
from coterie.peers.mailroom import Mailroom, NewestMailroom
from driving import job
from peering import run


class Office:
    """The mail room of node 0 among three neighbours, who are all in round 1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.missed: list[int] = []

    def make(self, keep: bool = False, rule: str = "decavg", **timing: Any) -> Mailroom:
        node = peers(job(nodes=4, topology="complete", rule=rule), np.array([0]), Ledger(4))[0]
        pace = Pace([1, 2, 3], Timing(**timing), 20)
        asynchronous = pace.timing.mode == "async"
        room = (
            NewestMailroom(node, pace, keep, False, self.folder / "spool")
            if asynchronous
            else Mailroom(node, pace, keep)
        )
        room.missed = self.missed.append
        for neighbour in pace.neighbours.values():
            neighbour.alive, neighbour.round = True, 1
        room.begin(1, [1, 2, 3])
        return room


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def words(room: Mailroom, value: float = 1.0) -> dict[str, Tensor]:
    return {"w": torch.full_like(room.node.params, value)}


async def put(
    room: Mailroom,
    sender: int,
    round: int = 1,
    tag: str = "model",
    fields: dict[str, Tensor] | None = None,
    small: bool = False,
) -> None:
    """A neighbour's message, with the model's fields unless told others."""
    architecture = room.node.trainer.architecture.signature

    def opened() -> Packet:
        return Packet(sender, architecture, Message(words(room) if fields is None else fields, torch.ones(1), round))

    await room.put(sender, round, tag, opened, small)


async def refusal(room: Mailroom, sender: int, round: int = 1) -> str:
    with pytest.raises(Refused) as caught:
        await put(room, sender, round)
    return caught.value.reason


def test_each_message_once_and_in_its_time(office: Office) -> None:
    async def scene() -> None:
        room = office.make()
        room.begin(3, [1, 2, 3])
        await put(room, 1, 3)
        assert await refusal(room, 1, 3) == "duplicate"
        assert await refusal(room, 1, 2) == "past"
        await put(room, 1, 4)  # it may have ended my round already
        assert await refusal(room, 1, 4) == "duplicate"
        assert await refusal(room, 1, 5) == "future"  # but no other without me
        assert await refusal(room, 2, 21) == "future"
        assert await refusal(room, 2, 0) == "past"
        assert await refusal(room, 7, 3) == "stranger"
        await put(room, 1, 3, "start")  # another message of the same round
        assert list(await room.receive([1], "model")) == [1]
        assert await refusal(room, 2, 3) == "past"  # merged without it
        room.begin(4, [1, 2, 3])
        assert list(await room.receive([1], "model")) == [1]  # what came early has been kept

    run(scene())


def test_who_comes_back_takes_nothing_from_before_its_checkpoint(office: Office) -> None:
    async def scene() -> None:
        room = office.make()
        room.resume(8)
        assert await refusal(room, 1, 8) == "past"
        assert await refusal(room, 1, 11) == "future"
        await put(room, 1, 9)

    run(scene())


@pytest.mark.parametrize("small", [False, True])
def test_what_cannot_be_added_is_refused_and_counts_for_nothing(office: Office, small: bool) -> None:
    async def scene() -> None:
        room = office.make()
        with pytest.raises(Refused, match="fields"):
            await put(room, 1, fields={"other": torch.ones(3)}, small=small)
        await put(room, 1, small=small)
        assert list(await room.receive([1], "model")) == [1]

    run(scene())


@pytest.mark.parametrize("small", [False, True])
def test_what_is_refused_for_its_numbers_takes_no_room(office: Office, small: bool) -> None:
    """Names can be made up without end where a protocol does not say which there are."""

    def refuse(packet: Packet, tag: str) -> Packet:
        raise Refused("too-large")

    async def scene() -> None:
        room = office.make()
        room.screen = refuse
        for number in range(20):
            with pytest.raises(Refused, match="too-large"):
                await put(room, 1, tag=f"made up {number}", small=small)
        assert not room.mailbox.boxes

    run(scene())


def test_a_round_that_waited_in_vain_says_nothing_of_how_long_rounds_take(office: Office) -> None:
    async def scene() -> None:
        room = office.make(deadline=0.05)
        for number in range(1, 6):
            room.begin(number, [1, 2, 3])
            room.pace.neighbours[1].misses = 0
            await room.receive([1], "model")
            room.end()
        assert room.pace.deadline == 0.05
        assert office.missed == [1] * 5

    run(scene())


def test_who_misses_some_deadlines_is_excused_until_heard_again(office: Office) -> None:
    async def scene() -> None:
        room = office.make(deadline=0.05)
        for number in range(1, MISSES + 1):
            room.begin(number, [1, 2, 3])
            await put(room, 1, number)
            assert list(await room.receive([1, 2], "model")) == [1]
            assert office.missed == [2] * number
        room.pace.timing = Timing(deadline=1e6)
        room.begin(4, [1, 2, 3])
        await put(room, 1, 4)
        assert list(await room.receive([1, 2], "model")) == [1]  # nobody waits for it now
        await put(room, 2, 5)
        assert room.pace.awaits(2)

    run(scene())


def test_a_message_gives_all_chances_back(office: Office) -> None:
    async def scene() -> None:
        room = office.make()
        neighbour = room.pace.neighbours[2]
        neighbour.misses, neighbour.pause, neighbour.chance = MISSES, 16, 20
        await put(room, 2)
        assert (neighbour.misses, neighbour.pause, neighbour.chance) == (0, 1, 0)

    run(scene())


def test_rubbish_is_neither_waited_for_nor_believed(office: Office) -> None:
    async def scene() -> None:
        room = office.make(deadline=1e6)
        room.pace.neighbours[2].sound = False
        for sender in (1, 2, 3):
            room.pace.neighbours[sender].reach(20 if sender == 2 else 1, False, 0.0)
        await put(room, 1)
        assert list(await room.receive([1, 2], "model")) == [1]
        assert room.pace.front() == 1

    run(scene())


@pytest.mark.parametrize("why", ["gone", "finished", "silenced", "skipped"])
def test_nobody_waits_for_who_cannot_come(office: Office, why: str) -> None:
    async def scene() -> None:
        room = office.make(deadline=1e6)
        room.begin(2, [1, 2] if why == "silenced" else [1, 2, 3])
        if why == "skipped":  # it caught up with others, and says so
            room.pace.neighbours[3] = Neighbour(alive=True, round=3, first=3)
        elif why != "silenced":
            room.pace.neighbours[3] = Neighbour(alive=why == "finished", round=1, finished=why == "finished")
        await put(room, 1, 2)
        await put(room, 2, 2, fields={})  # nothing to say is an answer, too
        assert list(await room.receive([1, 2, 3], "model")) == [1]
        assert office.missed == []

    run(scene())


def test_who_dies_while_waited_for_is_not_waited_for(office: Office) -> None:
    async def scene() -> None:
        room = office.make(deadline=1e6)
        waiting = asyncio.create_task(room.receive([1], "model"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        room.pace.neighbours[1].alive = False
        room.changed.set()
        assert list(await waiting) == []

    run(scene())


def test_a_quorum_is_waited_for_beyond_the_deadline(office: Office) -> None:
    async def scene() -> None:
        room = office.make(deadline=0.05, quorum=2)
        lacking: list[tuple[int, int]] = []
        room.lacking = lambda *numbers: lacking.append(numbers)
        await put(room, 1)
        waiting = asyncio.create_task(room.receive([1, 2, 3], "model"))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await put(room, 3)
        assert sorted(await waiting) == [1, 3]
        assert {*lacking} == {(1, 2)}  # said, lest it looks as if it hung

    run(scene())


def test_peers_do_not_run_away_from_neighbours_that_are_behind(office: Office) -> None:
    async def scene() -> None:
        room = office.make(deadline=1e6)
        near = room.pace.neighbours
        await room.let_catch_up(2)
        waiting = asyncio.create_task(room.let_catch_up(3))
        near[1].round = near[2].round = 2
        await asyncio.sleep(0.05)
        assert not waiting.done()
        near[3].finished = True
        room.changed.set()
        await waiting
        room.pace.timing = Timing(deadline=0.05)
        await room.let_catch_up(4)
        assert sorted(office.missed) == [1, 2]
        room.pace.timing = Timing("async", deadline=1e6)
        await room.let_catch_up(19)

    run(scene())


def test_asynchronous_mail_is_the_newest_and_discounted(office: Office) -> None:
    async def scene() -> None:
        room = office.make(mode="async", discount=0.5)
        assert isinstance(room, NewestMailroom)
        room.begin(5, [1, 2, 3])
        await put(room, 1, 2, fields=words(room, 1.0))
        await put(room, 1, 3, fields=words(room, 3.0))
        assert await refusal(room, 1, 3) == "duplicate"
        assert await refusal(room, 1, 1) == "duplicate"
        await put(room, 2, 5, fields=words(room, 8.0))
        assert len(list(room.spool.iterdir())) == 2
        heard = await room.receive([1, 2, 3], "model")
        assert sorted(heard) == [1, 2]
        assert room.staleness == [2, 0]
        mean = heard.sums.merged("w", None, normalised=True)  # type: ignore[attr-defined]
        torch.testing.assert_close(mean, torch.full_like(mean, (0.25 * 3 + 8) / 1.25))
        assert list(room.spool.iterdir()) == []
        assert list(await room.receive([1, 2, 3], "model")) == []  # each is merged once

    run(scene())


def test_asynchronous_mail_for_which_there_is_no_room_is_refused_and_may_come_again(office: Office) -> None:
    async def scene() -> None:
        room = office.make(mode="async")
        assert isinstance(room, NewestMailroom)
        room.spool.rmdir()
        assert await refusal(room, 1) == "disk"
        room.spool.mkdir()
        await put(room, 1)
        assert list(await room.receive([1], "model")) == [1]

    run(scene())


def test_asynchronous_mail_that_is_lost_on_the_disk_has_not_come(office: Office) -> None:
    async def scene() -> None:
        room = office.make(mode="async")
        assert isinstance(room, NewestMailroom)
        for sender in (1, 2, 3):
            await put(room, sender)
        (room.spool / "1.safetensors").unlink()
        (room.spool / "2.safetensors").write_bytes(b"rubbish")
        assert list(await room.receive([1, 2, 3], "model")) == [3]
        await put(room, 1, 2)
        await put(room, 2, 2)
        assert sorted(await room.receive([1, 2, 3], "model")) == [1, 2]

    run(scene())


@pytest.mark.parametrize(("rule", "keep", "held"), [("decavg", False, 0), ("median", False, 3), ("cfa", True, 3)])
def test_models_are_held_only_for_who_needs_them(office: Office, rule: str, keep: bool, held: int) -> None:
    async def scene() -> None:
        room, alive = office.make(keep, rule), []
        for sender in (1, 2, 3):
            fields = words(room)
            alive.append(weakref.ref(fields["w"]))
            await put(room, sender, fields=fields)
            del fields
        gc.collect()
        assert sum(ref() is not None for ref in alive) == held
        assert sorted(await room.receive([1, 2, 3], "model")) == [1, 2, 3]

    run(scene())

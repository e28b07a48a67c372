"""A peer's mail room: what it takes, what it refuses, and how long it waits."""

import asyncio
import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from coterie.errors import Refused
from coterie.job import Ledger
from coterie.mail import desk as desks
from coterie.mail.desk import Desk, Envelope, Timing
from coterie.node.node import peers
from driving import job
from peering import run


class Desks:
    """A desk of node 0 among three neighbours, with time in the test's hands."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.folder, self.patch = folder, monkeypatch

    def freeze(self) -> None:
        self.patch.setattr(desks, "time", SimpleNamespace(monotonic=lambda: self.now))

    def make(self, keep: bool = False, rule: str = "decavg", **timing: Any) -> Desk:
        made = job(nodes=4, topology="complete", rule=rule)
        node = peers(made, np.array([0]), Ledger(4))[0]
        desk = Desk(node, [1, 2, 3], Timing(**timing), 20, self.folder / "spool", keep)
        self.missed: list[int] = []
        desk.missed = self.missed.append
        for neighbour in desk.neighbours.values():
            neighbour.alive, neighbour.round = True, 1
        desk.begin(1, [1, 2, 3])
        return desk


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desks:
    return Desks(tmp_path, monkeypatch)


def letter(desk: Desk, sender: int, round: int = 1, tag: str = "model") -> Envelope:
    return Envelope(sender, round, tag, desk.node.trainer.architecture.signature, 10.0)


def words(desk: Desk, value: float = 1.0) -> dict[str, Tensor]:
    return {"w": torch.full_like(desk.node.params, value)}


async def refusal(desk: Desk, envelope: Envelope) -> str:
    with pytest.raises(Refused) as caught:
        await desk.put(envelope, lambda: words(desk))
    return caught.value.reason


class TestDesk:
    def test_each_message_once_and_in_its_time(self, office: Desks) -> None:
        async def scene() -> None:
            desk = office.make()
            desk.begin(3, [1, 2, 3])
            await desk.put(letter(desk, 1, 3), lambda: words(desk))
            assert await refusal(desk, letter(desk, 1, 3)) == "duplicate"
            assert await refusal(desk, letter(desk, 1, 2)) == "past"
            await desk.put(letter(desk, 1, 4), lambda: words(desk))  # it may have ended my round already
            assert await refusal(desk, letter(desk, 1, 4)) == "duplicate"
            assert await refusal(desk, letter(desk, 1, 5)) == "future"  # but no other without me
            assert await refusal(desk, letter(desk, 2, 21)) == "future"
            assert await refusal(desk, letter(desk, 2, 0)) == "past"
            assert await refusal(desk, letter(desk, 7, 3)) == "stranger"
            await desk.put(letter(desk, 1, 3, "start"), lambda: words(desk))  # another message of the same round
            assert list(await desk.receive([1], "model")) == [1]
            assert await refusal(desk, letter(desk, 2, 3)) == "past"  # merged without it
            desk.begin(4, [1, 2, 3])
            assert list(await desk.receive([1], "model")) == [1]  # what came early has been kept

        run(scene())

    def test_what_cannot_be_added_is_refused_and_counts_for_nothing(self, office: Desks) -> None:
        async def scene() -> None:
            desk = office.make()
            with pytest.raises(Refused, match="fields"):
                await desk.put(letter(desk, 1), lambda: {"other": torch.ones(3)})
            await desk.put(letter(desk, 1), lambda: words(desk))
            assert list(await desk.receive([1], "model")) == [1]

        run(scene())

    def test_the_deadline_follows_the_rounds(self, office: Desks) -> None:
        office.freeze()
        desk = office.make(deadline=30, stretch=4)
        for number, seconds in enumerate([2.0, 3.0, 50.0], 1):
            assert desk.deadline == 30
            desk.begin(number, [])
            office.now += seconds
            desk.end()
        assert desk.deadline == 4 * 3.0  # the median: one slow round does not count
        for number in range(4, 12):
            desk.begin(number, [])
            office.now += 0.001
            desk.end()
        assert desk.deadline == desks.SHORTEST_DEADLINE

    def test_a_round_that_waited_in_vain_says_nothing_of_how_long_rounds_take(self, office: Desks) -> None:
        async def scene() -> None:
            desk = office.make(deadline=0.05)
            for number in range(1, 6):
                desk.begin(number, [1, 2, 3])
                desk.neighbours[1].misses = 0
                await desk.receive([1], "model")
                desk.end()
            assert desk.deadline == 0.05
            assert office.missed == [1] * 5

        run(scene())

    def test_who_misses_some_deadlines_is_excused_until_heard_again(self, office: Desks) -> None:
        async def scene() -> None:
            desk = office.make(deadline=0.05)
            for number in (1, 2, 3):
                desk.begin(number, [1, 2, 3])
                await desk.put(letter(desk, 1, number), lambda: words(desk))
                assert list(await desk.receive([1, 2], "model")) == [1]
                assert office.missed == [2] * number
            desk.timing = Timing(deadline=1e6)
            desk.begin(4, [1, 2, 3])
            await desk.put(letter(desk, 1, 4), lambda: words(desk))
            assert list(await desk.receive([1, 2], "model")) == [1]  # nobody waits for it now
            await desk.put(letter(desk, 2, 5), lambda: words(desk))
            assert desk._awaited(2)

        run(scene())

    def test_who_keeps_pace_is_waited_for_again(self, office: Desks) -> None:
        desk = office.make()
        for number, awaited in ((5, False), (4, True)):
            desk.neighbours[2].reach(3, False)
            desk.neighbours[2].misses = desks.MISSES
            desk.begin(number, [1, 2, 3])
            assert desk._awaited(2) == awaited

    def test_who_only_says_that_it_keeps_pace_has_fewer_and_fewer_chances(self, office: Desks) -> None:
        desk = office.make()
        neighbour = desk.neighbours[2]
        neighbour.misses, awaited = desks.MISSES, []
        for number in range(2, 20):
            neighbour.reach(number, False)
            desk.begin(number, [1, 2, 3])
            if desk._awaited(2):
                awaited.append(number)
                desk._miss(2)
        assert awaited == [2, 3, 5, 9, 17]

    def test_a_message_gives_all_chances_back(self, office: Desks) -> None:
        async def scene() -> None:
            desk = office.make()
            neighbour = desk.neighbours[2]
            neighbour.misses, neighbour.pause, neighbour.chance = desks.MISSES, 16, 20
            await desk.put(letter(desk, 2), lambda: words(desk))
            assert desk._awaited(2)
            neighbour.misses = desks.MISSES
            neighbour.reach(2, False)
            desk.begin(2, [1, 2, 3])
            assert desk._awaited(2)

        run(scene())

    def test_if_all_are_slow_none_is_left_behind(self, office: Desks) -> None:
        """Who runs on alone at its own pace learns from nobody."""
        desk = office.make()
        for neighbour in desk.neighbours.values():
            neighbour.misses = desks.MISSES
        assert all(map(desk._awaited, (1, 2, 3)))
        desk.neighbours[3].misses = 0
        assert [s for s in (1, 2, 3) if desk._awaited(s)] == [3]
        desk.neighbours[3].alive = False
        assert [s for s in (1, 2, 3) if desk._awaited(s)] == [1, 2]
        desk.neighbours[3].alive, desk.neighbours[3].first = True, 10**9  # who never comes is no company
        assert [s for s in (1, 2, 3) if desk._awaited(s)] == [1, 2]
        assert desk._behind(5, sits=True, patient=True) == []  # there is no end to that

    def test_rounds_in_which_nobody_came_in_time_make_it_patient(self, office: Desks) -> None:
        async def scene() -> None:
            desk = office.make(deadline=40)
            for number in range(1, 5):
                desk.begin(number, [])
                office.now += 1.0
                desk.end()
            office.patch.setattr(desks, "SHORTEST_DEADLINE", 0.0)
            assert desk.deadline == 4.0
            for number, deadline in ((5, 8.0), (6, 16.0), (7, 32.0), (8, 40.0)):
                desk.begin(number, [1, 2, 3])
                desk._given_up = {1, 2, 3}
                assert not await desk.receive([1, 2, 3], "model")
                desk.end()
                assert desk.deadline == deadline
            desk.begin(9, [1, 2, 3])
            await desk.put(letter(desk, 1, 9), lambda: words(desk))
            desk._given_up = {2, 3}
            assert len(await desk.receive([1, 2, 3], "model")) == 1
            desk.end()
            assert desk.deadline == 4.0

        office.freeze()
        run(scene())

    def test_the_first_of_an_unbroken_row_of_rounds(self, office: Desks) -> None:
        desk = office.make()
        for number, first in ((2, 0), (3, 0), (5, 5), (6, 5)):
            desk.begin(number, [])
            assert desk.first == first
        desk.resume(8)
        assert desk.first == 9
        for number, first in ((9, 9), (10, 9), (12, 12)):
            desk.begin(number, [])
            assert desk.first == first

    def test_who_is_held_up_by_others_has_longer(self, office: Desks) -> None:
        office.freeze()
        desk = office.make(deadline=10)
        desk.begin(4, [1, 2, 3])
        for sender, round in ((1, 4), (2, 3)):
            desk.neighbours[sender].reach(round, False)
        assert desk._limit(1, office.now, 10) == office.now + 10
        assert desk._limit(2, office.now, 10) == office.now + 20

    def test_rubbish_is_neither_waited_for_nor_believed(self, office: Desks) -> None:
        async def scene() -> None:
            desk = office.make(deadline=1e6)
            desk.neighbours[2].sound = False
            for sender in (1, 2, 3):
                desk.neighbours[sender].reach(20 if sender == 2 else 1, False)
            await desk.put(letter(desk, 1), lambda: words(desk))
            assert list(await desk.receive([1, 2], "model")) == [1]
            assert desk.front() == 1

        run(scene())

    @pytest.mark.parametrize("why", ["gone", "finished", "silenced", "skipped"])
    def test_nobody_waits_for_who_cannot_come(self, office: Desks, why: str) -> None:
        async def scene() -> None:
            desk = office.make(deadline=1e6)
            desk.begin(2, [1, 2] if why == "silenced" else [1, 2, 3])
            if why == "skipped":  # it caught up with others, and says so
                desk.neighbours[3].reach(3, False)
                desk.neighbours[3].first = 3
            elif why != "silenced":
                desk.neighbours[3] = desks.Neighbour(alive=why == "finished", round=1, finished=why == "finished")
            await desk.put(letter(desk, 1, 2), lambda: words(desk))
            await desk.put(letter(desk, 2, 2), dict)  # nothing to say is an answer, too
            assert list(await desk.receive([1, 2, 3], "model")) == [1]
            assert office.missed == []

        run(scene())

    def test_who_dies_while_waited_for_is_not_waited_for(self, office: Desks) -> None:
        async def scene() -> None:
            desk = office.make(deadline=1e6)
            waiting = asyncio.create_task(desk.receive([1], "model"))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            desk.neighbours[1].alive = False
            desk.changed.set()
            assert list(await waiting) == []

        run(scene())

    def test_a_quorum_is_waited_for_beyond_the_deadline(self, office: Desks) -> None:
        async def scene() -> None:
            desk = office.make(deadline=0.05, quorum=2)
            lacking: list[tuple[int, int]] = []
            desk.lacking = lambda *numbers: lacking.append(numbers)
            await desk.put(letter(desk, 1), lambda: words(desk))
            waiting = asyncio.create_task(desk.receive([1, 2, 3], "model"))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            await desk.put(letter(desk, 3), lambda: words(desk))
            assert sorted(await waiting) == [1, 3]
            assert lacking == [(1, 2)]  # said once, lest it looks as if it hung

        run(scene())

    def test_peers_do_not_run_away_from_neighbours_that_are_behind(self, office: Desks) -> None:
        async def scene() -> None:
            desk = office.make(deadline=1e6)
            await desk.abreast(2)
            waiting = asyncio.create_task(desk.abreast(3))
            desk.neighbours[1].round = desk.neighbours[2].round = 2
            await asyncio.sleep(0.05)
            assert not waiting.done()
            desk.neighbours[3].finished = True
            desk.changed.set()
            await waiting
            desk.timing = Timing(deadline=0.05)
            await desk.abreast(4)
            assert sorted(office.missed) == [1, 2]
            desk.timing = Timing("async", deadline=1e6)
            await desk.abreast(19)

        run(scene())

    def test_the_front_is_where_most_neighbours_are(self, office: Desks) -> None:
        desk = office.make()
        for node, round in ((1, 9), (2, 9), (3, 4)):
            desk.neighbours[node].round = round
        assert desk.front() == 9
        desk.neighbours[1].alive = False
        assert desk.front() == 4
        desk.neighbours[3].finished = True  # it stays for a while: there is a last exchange to take part in
        assert desk.front() == 4
        desk.neighbours[2].alive = desk.neighbours[3].alive = False
        assert desk.front() == 0

    def test_asynchronous_mail_is_the_newest_and_discounted(self, office: Desks) -> None:
        async def scene() -> None:
            desk = office.make(mode="async", discount=0.5)
            desk.begin(5, [1, 2, 3])
            await desk.put(letter(desk, 1, 2), lambda: words(desk, 1.0))
            await desk.put(letter(desk, 1, 3), lambda: words(desk, 3.0))
            assert await refusal(desk, letter(desk, 1, 3)) == "duplicate"
            assert await refusal(desk, letter(desk, 1, 1)) == "duplicate"
            await desk.put(letter(desk, 2, 5), lambda: words(desk, 8.0))
            assert len(list(desk.spool.iterdir())) == 2
            heard = await desk.receive([1, 2, 3], "model")
            assert sorted(heard) == [1, 2]
            assert desk.staleness == [2, 0]
            mean = heard.sums.merged("w", None, normalised=True)  # type: ignore[attr-defined]
            torch.testing.assert_close(mean, torch.full_like(mean, (0.25 * 3 + 8) / 1.25))
            assert list(desk.spool.iterdir()) == []
            assert list(await desk.receive([1, 2, 3], "model")) == []  # each is merged once

        run(scene())

    @pytest.mark.parametrize(("rule", "keep", "held"), [("decavg", False, 0), ("median", False, 3), ("cfa", True, 3)])
    def test_models_are_held_only_for_who_needs_them(self, office: Desks, rule: str, keep: bool, held: int) -> None:
        async def scene() -> None:
            desk, alive = office.make(keep, rule), []
            for sender in (1, 2, 3):
                fields = words(desk)
                alive.append(weakref.ref(fields["w"]))
                await desk.put(letter(desk, sender), fields.copy)
                del fields
            gc.collect()
            assert sum(ref() is not None for ref in alive) == held
            assert sorted(await desk.receive([1, 2, 3], "model")) == [1, 2, 3]

        run(scene())

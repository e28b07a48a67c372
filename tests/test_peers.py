"""Peers in trouble: restarts, absences, deadlines, full disks, strangers and broken streams; and what leaves a peer."""

import asyncio
import errno
import gc
import os
import signal
import socket
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import grpc
import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from coterie import records
from coterie.engines import Ledger
from coterie.engines._node import peers
from coterie.engines.peer import Fleet
from coterie.engines.peer import Peer as Engine
from coterie.errors import PeerError, RunError
from coterie.experiment import Experiment
from coterie.graph import Graph
from coterie.net import desk as desks
from coterie.net import links as wires
from coterie.net import wire
from coterie.net.agreement import SHARED
from coterie.net.certificates import certify, key_text, new_key
from coterie.net.desk import Desk, Envelope, Timing
from coterie.net.identity import channel
from coterie.net.links import SERVICE, Links
from coterie.net.peer import CHECKPOINT, Assignment, Running, load_checkpoint
from coterie.net.wire import Receiver, Refused
from coterie.net.wire_pb2 import Header, Hello, Receipt, Welcome
from coterie.world import build, load_samples
from driving import world
from peering import assignments, together

TINY: dict[str, Any] = {
    "model": {"name": "mlp", "sizes": [8]},
    "nodes": 3,
    "topology": "complete",
    "rounds": 3,
    "batches": 2,
    "batch_size": 8,
    "total": 120,
    "test_share": 0.2,
}
MODEL = 64 * 8 + 8 + 8 * 10 + 10


def given(folder: Path, changes: dict[str, Any] | None = None, **settings: Any) -> list[Assignment]:
    """Three peers, each the others' neighbour."""
    return assignments(Experiment(**{**TINY, **settings}), folder, **{"timing": Timing(deadline=60), **(changes or {})})


def run(scene: Coroutine[Any, Any, Any], seconds: float = 120) -> Any:
    return asyncio.run(asyncio.wait_for(scene, seconds))


async def until(what: Callable[[], Any]) -> None:
    while not what():
        await asyncio.sleep(0.01)


async def cancelled(tasks: list["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def kept(assignment: Assignment) -> tuple[dict[str, str], dict[str, Tensor], pl.DataFrame]:
    return load_checkpoint(assignment.folder / CHECKPOINT)


UNTIMED = [name for name in records.SCHEMA if not name.endswith("_seconds")]


def equal(ones: list[Assignment], others: list[Assignment]) -> None:
    """Hold two runs to the same bits."""
    for a, b in zip(ones, others, strict=True):
        (about, state, rows), (about_too, state_too, rows_too) = kept(a), kept(b)
        assert about["round"] == about_too["round"]
        assert state.keys() == state_too.keys()
        for name in state:
            if not name.endswith("_seconds"):
                torch.testing.assert_close(state[name], state_too[name], rtol=0, atol=0, equal_nan=True)
        assert rows.select(UNTIMED).equals(rows_too.select(UNTIMED))


# ---- The desk alone, without sockets


class Desks:
    """A desk of node 0 among three neighbours, with time in the test's hands."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.folder, self.patch = folder, monkeypatch

    def freeze(self) -> None:
        self.patch.setattr(desks, "time", SimpleNamespace(monotonic=lambda: self.now))

    def make(self, keep: bool = False, rule: str = "decavg", **timing: Any) -> Desk:
        made = world(nodes=4, topology="complete", rule=rule)
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

    @pytest.mark.parametrize("why", ["gone", "finished", "silenced"])
    def test_nobody_waits_for_who_cannot_come(self, office: Desks, why: str) -> None:
        async def scene() -> None:
            desk = office.make(deadline=1e6)
            desk.begin(2, [1, 2] if why == "silenced" else [1, 2, 3])
            if why != "silenced":
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
            await desk.put(letter(desk, 1), lambda: words(desk))
            waiting = asyncio.create_task(desk.receive([1, 2, 3], "model"))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            await desk.put(letter(desk, 3), lambda: words(desk))
            assert sorted(await waiting) == [1, 3]

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


# ---- Going on after a stop


@pytest.mark.parametrize("rule", ["decavg", "dechw"])
@pytest.mark.parametrize("where", ["between rounds", "in a round"])
def test_all_stop_and_all_go_on_as_if_nothing_had_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, rule: str
) -> None:
    settings = {"rule": rule, "rounds": 4, "keep_optimiser": True}
    straight, broken = given(tmp_path / "straight", **settings), given(tmp_path / "broken", **settings)
    run(together(straight))

    async def stop() -> None:
        reached: list[Running] = []
        original = Running._round if where == "between rounds" else Running.receive

        async def halting(self: Running, *args: Any) -> Any:
            if self.status.round == (2 if where == "between rounds" else 3):
                reached.append(self)
                await asyncio.Event().wait()
            return await original(self, *args)

        with monkeypatch.context() as patch:
            patch.setattr(Running, original.__name__, halting)
            running = [Running(a) for a in broken]
            tasks = [asyncio.create_task(r.go()) for r in running]
            await until(lambda: len(reached) == 3)
            await cancelled(tasks)

    run(stop())
    assert [kept(a)[0]["round"] for a in broken] == ["2"] * 3
    rows = run(together(broken))
    equal(straight, broken)
    assert rows["round"].max() == 4


def test_a_peer_that_dies_is_passed_by_and_catches_up(tmp_path: Path) -> None:
    """The others go on without it; it comes back with its checkpoint and joins them in the round they are in."""
    crew = given(tmp_path, rounds=40, evaluate=40)

    async def scene() -> None:
        running = [Running(a) for a in crew]
        tasks = [asyncio.create_task(r.go()) for r in running]
        await until(lambda: running[2].status.checkpoints >= 3)
        await cancelled(tasks[2:])
        died = int(kept(crew[2])[0]["round"])
        await until(lambda: running[0].status.round > died + 4 and running[1].status.round > died + 4)
        again = Running(crew[2])
        await asyncio.gather(*tasks[:2], again.go())
        return died, again

    died, again = run(scene())
    assert died >= 3
    assert [kept(a)[0]["round"] for a in crew] == ["40"] * 3
    batches = kept(crew[2])[2]["batches"].to_list()[-1]
    assert 2 * died < batches <= 2 * 40
    assert all(kept(a)[2]["batches"].to_list()[-1] == 2 * 40 for a in crew[:2])
    assert again.status.errors == type(again.status.errors)()


def test_a_neighbour_that_never_comes_is_not_waited_for_forever(tmp_path: Path) -> None:
    crew = given(tmp_path, {"wait": 0.5})
    rows = run(together(crew[:2]))
    assert rows.filter(pl.col("round") == 3)["received_bytes"].to_list() == [3 * 4 * MODEL] * 2
    assert rows.filter(pl.col("round") == 3)["sent_bytes"].to_list() == [3 * 4 * MODEL] * 2  # to nobody, none


def test_a_peer_that_stands_still_is_excused_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pulses go on, as when only its training hangs: others wait a few times, then no more, until it is heard."""
    crew = given(tmp_path, {"timing": Timing(deadline=0.5, stretch=1e6)}, rounds=30, evaluate=30)
    train = Running._work

    async def scene() -> list[Running]:
        running = [Running(a) for a in crew]
        free = asyncio.Event()

        async def hang(what: Callable[[], Any]) -> Any:
            if running[2].status.round == 2:
                await free.wait()
            return await train(running[2], what)

        running[2].node.work = hang  # type: ignore[method-assign]
        tasks = [asyncio.create_task(r.go()) for r in running]
        await until(lambda: all(r.desk.neighbours[2].misses >= desks.MISSES for r in running[:2]))
        free.set()
        await asyncio.gather(*tasks)
        return running

    running = run(scene())
    for peer in running[:2]:
        assert peer.status.neighbours["node-2"].missed >= 1
        assert peer.status.neighbours["node-2"].received >= 1
    assert [kept(a)[0]["round"] for a in crew] == ["30"] * 3


# ---- Disks


def full_disk(monkeypatch: pytest.MonkeyPatch, rounds: set[str]) -> None:
    """Checkpoints of these rounds find no room."""
    write, fill = records.write, Running._save
    now: dict[str, str] = {}

    def save(self: Running, number: int) -> None:
        now[str(self._file)] = str(number)
        fill(self, number)

    def refuse(path: Path, content: bytes) -> None:
        if now.get(str(path)) in rounds:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    monkeypatch.setattr(Running, "_save", save)
    monkeypatch.setattr(records, "write", refuse)


def test_a_full_disk_does_not_stop_a_peer_and_leaves_its_checkpoint_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew, seen = given(tmp_path, rounds=4), []
    full_disk(monkeypatch, {"2", "3"})

    async def look(running: list[Running]) -> None:
        await until(lambda: running[0].status.checkpoint_errors)
        seen.append(kept(crew[0])[0]["round"])
        seen.append(running[0].status)

    run(together(crew, look))
    assert seen[0] in ("1", "4")  # it was whole then, and it may be the last by now
    assert seen[1].checkpoint_errors == 2
    assert "the disk is full" in seen[1].errors[0]["text"]
    assert kept(crew[0])[0]["round"] == "4"


def test_a_full_disk_at_the_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crew = given(tmp_path)
    full_disk(monkeypatch, {"3"})
    with pytest.raises(RunError, match="the disk is full"):
        run(together(crew))
    assert kept(crew[0])[0]["round"] in ("1", "2")


def test_a_damaged_checkpoint_is_said_and_not_overwritten(tmp_path: Path) -> None:
    crew = given(tmp_path)
    run(together(crew))
    file = crew[0].folder / CHECKPOINT
    file.write_bytes(file.read_bytes()[:-7])
    before = file.read_bytes()
    with pytest.raises(RunError, match="damaged") as caught:
        run(Running(crew[0]).go())
    assert "Remove it" in str(caught.value)
    assert file.read_bytes() == before


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    crew = given(tmp_path)
    run(together(crew))
    (other,) = Experiment(**{**TINY, "lr": 0.7}).resolved.values()
    with pytest.raises(PeerError, match="another configuration"):
        run(Running(replace(crew[0], settings=other)).go())
    with pytest.raises(PeerError, match="another peer"):
        run(Running(replace(crew[1], folder=crew[0].folder)).go())


# ---- Strangers, and neighbours who do not agree


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    crew = given(tmp_path)
    host, _, port = crew[0].home.listen.rpartition(":")
    with socket.socket() as other:
        other.bind((host, int(port)))
        other.listen()
        with pytest.raises(PeerError, match=f"cannot listen on {crew[0].home.listen}"):
            run(Running(crew[0]).go())


def test_a_peer_does_not_begin_with_an_expired_certificate(tmp_path: Path) -> None:
    crew, key = given(tmp_path), new_key()
    (crew[0].home.path / "key.pem").write_text(key_text(key))
    long_ago = datetime.now(UTC) - timedelta(days=4000)
    (crew[0].home.path / "certificate.pem").write_text(certify(key, "node-0", long_ago))
    with pytest.raises(PeerError, match="has expired"):
        run(Running(crew[0]).go())


def errors(running: Running) -> str:
    return "\n".join(e["text"] for e in running.status.errors)


def test_neighbours_with_different_settings_refuse_each_other_and_say_which(tmp_path: Path) -> None:
    crew = given(tmp_path, {"wait": 1.5}, nodes=2)
    (other,) = Experiment(**{**TINY, "nodes": 2, "lr": 0.7, "total": 60}).resolved.values()
    crew[1] = replace(crew[1], settings=other)
    found: list[Running] = []

    async def look(running: list[Running]) -> None:
        found.extend(running)
        await until(lambda: all(r.status.errors for r in running))

    rows = run(together(crew, look))
    mine = str(crew[0].settings.optimiser["lr"])  # type: ignore[index, call-overload]
    assert f"node-1 and I do not agree: optimiser.lr: mine {mine}, theirs 0.7" in errors(found[0])
    assert f"node-0 and I do not agree: optimiser.lr: mine 0.7, theirs {mine}" in errors(found[1])
    assert rows["received_bytes"].max() == 0  # each went on alone


def test_models_of_other_shapes_are_found_out_at_once(tmp_path: Path) -> None:
    crew = given(tmp_path, {"wait": 1.5}, nodes=2)
    (other,) = Experiment(**{**TINY, "nodes": 2, "model": {"name": "mlp", "sizes": [9]}}).resolved.values()
    crew[1] = replace(crew[1], world=build(other, load_samples(other), 0))
    found: list[Running] = []

    async def look(running: list[Running]) -> None:
        found.extend(running)
        await until(lambda: all(r.status.errors for r in running))

    rows = run(together(crew, look))
    for peer in found:
        assert "model signature: mine [" in errors(peer)
    assert rows["received_bytes"].max() == 0


def test_adding_a_neighbour_on_one_side_lets_nobody_in(tmp_path: Path) -> None:
    crew = given(tmp_path, {"wait": 1.5})
    crew[0].home.remove("node-1")
    known = replace(crew[0].world, graph=Graph.from_edges(3, [(0, 2), (1, 2)]))
    crew[0] = replace(crew[0], world=known, numbers={"node-2": 2})
    found: list[Running] = []

    async def look(running: list[Running]) -> None:
        found.extend(running)

    rows = run(together(crew, look)).filter(pl.col("round") == 3).sort("node")
    assert rows["received_bytes"].to_list() == [3 * 4 * MODEL, 3 * 4 * MODEL, 6 * 4 * MODEL]
    assert found[1].status.neighbours["node-0"].received == found[1].status.neighbours["node-0"].sent == 0
    assert list(found[0].status.neighbours) == ["node-2"]


# ---- Streams


class Caller:
    """Node 1 by hand: it keeps to the protocol only as far as the test wants."""

    def __init__(self, running: Running, to: Assignment) -> None:
        self.self, self.to = running, to
        self.payload = wire.encode({"w": torch.ones(running.node.params.numel())})
        (self.code,) = running.agreement.codes

    @asynccontextmanager
    async def line(self) -> AsyncIterator[grpc.aio.Channel]:
        async with channel(self.self.a.home, self.to.home.card) as line:
            call = line.unary_stream(f"/{SERVICE}/Follow")(self.self.links._hello().SerializeToString())
            assert Welcome.FromString(await call.read()).accepted
            yield line
            call.cancel()

    def header(self, **changes: Any) -> bytes:
        made = wire.header(self.self.links.session, 1, "model", self.code, 5.0, self.payload)
        for name, value in changes.items():
            setattr(made, name, value)
        text: bytes = made.SerializeToString()
        return text

    async def whole(self, **changes: Any) -> AsyncIterator[bytes]:
        yield self.header(**changes)
        for chunk in wire.chunks(self.payload):
            yield chunk

    async def half(self, *, then: "asyncio.Event") -> AsyncIterator[bytes]:
        yield self.header()
        yield bytes(self.payload[: len(self.payload) // 2])
        await then.wait()

    async def bring(self, line: grpc.aio.Channel, parts: AsyncIterator[bytes]) -> Receipt:
        return Receipt.FromString(await line.stream_unary(f"/{SERVICE}/Deliver")(parts, timeout=60))


@asynccontextmanager
async def called(folder: Path, **settings: Any) -> AsyncIterator[tuple[Running, Caller]]:
    """Node 0, waiting for its neighbours, and a hand-made neighbour."""
    crew = given(folder, **settings)
    peer, other = Running(crew[0]), Running(crew[1])
    task = asyncio.create_task(peer.go())
    try:
        await until(lambda: peer.links._tasks or task.done())
        yield peer, Caller(other, crew[0])
    finally:
        await cancelled([task])


def taken(peer: Running) -> int:
    return sum(len(box.bytes) for box in peer.desk._boxes.values())


def test_a_stream_that_breaks_adds_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with called(tmp_path) as (peer, caller), caller.line() as line:
            link = peer.links.by_name["node-1"]
            call = line.stream_unary(f"/{SERVICE}/Deliver")(caller.half(then=asyncio.Event()))
            await until(lambda: link.streams == 1)
            await asyncio.sleep(0.1)
            call.cancel()
            await until(lambda: link.streams == 0)
            assert taken(peer) == link.status.received == 0
            ended = asyncio.Event()
            ended.set()
            assert (await caller.bring(line, caller.half(then=ended))).reason == "damaged"
            assert taken(peer) == 0
            assert (await caller.bring(line, caller.whole(checksum=1))).reason == "damaged"
            assert (await caller.bring(line, caller.whole(session="another"))).reason == "session"
            assert taken(peer) == 0
            assert (await caller.bring(line, caller.whole())).accepted  # nothing stands in the way of a good one
            assert taken(peer) == link.status.received == 1
            assert (await caller.bring(line, caller.whole())).reason == "duplicate"
            assert taken(peer) == 1
            (box,) = peer.desk._boxes.values()
            torch.testing.assert_close(box.heard.sums.merged("w", None, normalised=False), torch.full((MODEL,), 5.0))

    run(scene())


def test_too_many_streams_are_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with called(tmp_path) as (peer, caller), caller.line() as line:
            link, on = peer.links.by_name["node-1"], asyncio.Event()
            open_ones = [asyncio.create_task(caller.bring(line, caller.half(then=on))) for _ in range(wires.STREAMS)]
            await until(lambda: link.streams == wires.STREAMS)
            assert (await caller.bring(line, caller.whole())).reason == "too-many"
            assert link.status.refusals["too-many"] == 1
            on.set()
            await asyncio.gather(*open_ones)
            assert (await caller.bring(line, caller.whole())).accepted

    run(scene())


def test_a_stream_that_stands_still_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with called(tmp_path) as (peer, caller), caller.line() as line:
            monkeypatch.setattr(wires, "STALL", 0.2)
            assert (await caller.bring(line, caller.half(then=asyncio.Event()))).reason == "slow"
            monkeypatch.setattr(wires, "STALL", 60.0)
            assert taken(peer) == 0
            assert peer.links._slots._value == wires.STAGED
            assert (await caller.bring(line, caller.whole())).accepted

    run(scene())


def test_who_has_not_greeted_delivers_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with called(tmp_path) as (peer, caller), channel(caller.self.a.home, caller.to.home.card) as line:
            assert (await caller.bring(line, caller.whole())).reason == "session"
            assert taken(peer) == 0

    run(scene())


# ---- Memory


class Staging(Receiver):
    """Counts the bytes that lie in staging buffers."""

    all: ClassVar["weakref.WeakSet[Staging]"] = weakref.WeakSet()
    peak = 0

    def feed(self, part: bytes) -> None:
        Staging.all.add(self)
        super().feed(part)
        Staging.peak = max(Staging.peak, sum(len(s._staged) for s in Staging.all))

    def __hash__(self) -> int:
        return id(self)


@pytest.mark.parametrize(("rule", "held"), [("decavg", 0), ("median", 50)])
def test_fifty_neighbours_at_once_cost_a_few_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, held: int
) -> None:
    """All send a megabyte at the same time; the sums take them in a few at a time, and only a raw rule keeps them."""
    monkeypatch.setattr(wires, "Receiver", Staging)
    Staging.peak = 0
    big = {"name": "mlp", "sizes": [3500]}
    crew = given(
        tmp_path, {"wait": 600.0}, nodes=51, topology="star", model=big, rule=rule, total=51 * 12, partition="iid"
    )

    async def scene() -> None:
        hub, other = Running(crew[0]), Running(crew[1])
        task = asyncio.create_task(hub.go())
        await until(lambda: hub.links._tasks or task.done())
        template = Caller(other, crew[0])
        assert len(template.payload) > 1e6

        async def one(a: Assignment) -> None:
            caller = Caller.__new__(Caller)
            caller.__dict__.update(template.__dict__, self=SimpleNamespace(a=a, links=other.links))
            async with caller.line() as line:
                assert (await caller.bring(line, caller.whole())).accepted

        try:
            await asyncio.gather(*(one(a) for a in crew[1:]))
            (box,) = hub.desk._boxes.values()
            assert len(box.heard) == 50
            gc.collect()
            assert len(box.heard.messages) == held  # type: ignore[attr-defined]
            assert Staging.peak <= wires.STAGED * len(template.payload)
            await until(lambda: gc.collect() >= 0 and not [s for s in Staging.all if s._staged])  # calls are winding up
        finally:
            await cancelled([task])

    run(scene())


# ---- Data stay home


class Tap:
    """Everything that a peer hands to gRPC, by kind of call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hellos: list[bytes] = []
        self.pulses: list[bytes] = []
        self.receipts: list[bytes] = []
        self.deliveries: list[list[bytes]] = []
        dial, follow, deliver = wires.channel, Links._follow, Links._deliver

        async def followed(links: Links, request: bytes, context: Any) -> AsyncIterator[bytes]:
            async for pulse in follow(links, request, context):
                self.pulses.append(pulse)
                yield pulse

        async def delivered(links: Links, parts: Any, context: Any) -> bytes:
            receipt = await deliver(links, parts, context)
            self.receipts.append(receipt)
            return receipt

        @asynccontextmanager
        async def dialled(*args: Any) -> AsyncIterator[Any]:
            async with dial(*args) as line:
                yield SimpleNamespace(unary_stream=self._asking(line), stream_unary=self._bringing(line))

        monkeypatch.setattr(wires, "channel", dialled)
        monkeypatch.setattr(Links, "_follow", followed)
        monkeypatch.setattr(Links, "_deliver", delivered)

    def _asking(self, line: Any) -> Any:
        def ask(method: str) -> Any:
            call = line.unary_stream(method)
            return lambda request: self.hellos.append(request) or call(request)  # type: ignore[func-returns-value]

        return ask

    def _bringing(self, line: Any) -> Any:
        def bring(method: str) -> Any:
            call = line.stream_unary(method)

            async def copied(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
                self.deliveries.append([])
                mine = self.deliveries[-1]
                async for part in parts:
                    mine.append(part)
                    yield part

            return lambda parts, timeout: call(copied(parts), timeout=timeout)

        return bring

    @property
    def everything(self) -> Iterator[bytes]:
        yield from (*self.hellos, *self.pulses, *self.receipts)
        for parts in self.deliveries:
            yield b"".join(parts)


def fields(message: Any) -> set[str]:
    """The names of the fields that are set."""
    return {descriptor.name for descriptor, _ in message.ListFields()}


@pytest.mark.parametrize(("rule", "sizes"), [("decavg", {"w": MODEL}), ("dechw", {"w": MODEL, "h": MODEL})])
def test_data_stay_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, sizes: dict[str, int]) -> None:
    """All that leaves are the rule's fields, to the byte, and what headers and greetings are documented to say."""
    tap, crew = Tap(monkeypatch), given(tmp_path, rule=rule)
    samples = crew[0].world.samples
    pattern = np.float32(0.7312345)
    train = np.concatenate(crew[0].world.job.train)
    samples.train_x[torch.as_tensor(train)] = float(pattern)
    run(together(crew))
    assert tap.deliveries
    assert all(pattern.tobytes() not in said for said in tap.everything)
    expected = wire.encode({name: torch.zeros(n) for name, n in sizes.items()})
    head = bytes(expected[: len(expected) - 4 * sum(sizes.values())])
    allowed = {f.name for f in Header.DESCRIPTOR.fields}
    assert allowed == {"version", "session", "round", "tag", "architecture", "size", "bytes", "checksum", "nothing"}
    for header, *chunks in tap.deliveries:
        said = Header.FromString(header)
        assert said.SerializeToString() == header
        payload = b"".join(chunks)
        assert len(payload) == len(expected) == said.bytes
        assert payload.startswith(head)
        assert said.size in {len(own) for own in crew[0].world.job.train}
    for text in tap.hellos:
        hello = Hello.FromString(text)
        assert fields(hello) <= {"version", "session", "digest", "shared", "signatures", "round", "finished"}
        assert {key.partition(".")[0] for key in hello.shared} <= {*SHARED, "seed", "engine", "phase"}
        assert len(text) < 4096
    for text in tap.pulses:
        assert fields(Welcome.FromString(text)) <= {"accepted", "version", "session", "round", "finished"}
        assert len(text) < 64
    for text in tap.receipts:
        assert fields(Receipt.FromString(text)) <= {"accepted", "reason", "detail", "round", "session", "finished"}
        assert len(text) < 256


# ---- Real processes


def test_processes_that_are_killed_and_frozen_come_back(tmp_path: Path) -> None:
    """One peer is killed and started again, one is frozen until the others have given it up; all get to the end."""
    engine = {"name": "peer", "deadline": 5.0, "wait": 30.0}
    experiment = Experiment(**{**TINY, "rounds": 60, "batches": 100, "evaluate": 60, "nodes": 4}, engine=engine)
    config = tmp_path / "config.toml"
    config.write_text(records.frozen(experiment))
    ((method, settings),) = experiment.resolved.items()
    fleet, notes, frozen, events = Fleet(Engine(deadline=5.0, wait=30.0)), [], [], []

    def watch(names: Any, seen: Any) -> None:
        if not events and all(s and s["round"] >= 2 for s in seen):
            os.kill(seen[1]["pid"], signal.SIGKILL)
            os.kill(seen[2]["pid"], signal.SIGSTOP)
            frozen.append(seen[2]["pid"])
            events.append("struck")
        elif frozen and seen[0] and not seen[0]["neighbours"]["node-2"]["alive"]:
            events.append("given up")
            os.kill(frozen.pop(), signal.SIGCONT)

    try:
        rows = fleet.job(
            config,
            method,
            0,
            build(settings, load_samples(settings), 0),
            tmp_path / "peers",
            watch,
            lambda: False,
            notes.append,
        )
    finally:
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    assert events == ["struck", "given up"]
    assert any("node-1" in note and "signal 9" in note for note in notes)
    assert sorted(rows.filter(pl.col("round") == 60)["node"].to_list()) == [0, 1, 2, 3]
    assert rows.filter(pl.col("round") == 60)["test_accuracy"].min() > 0.3

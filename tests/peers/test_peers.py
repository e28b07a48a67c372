"""Peers in trouble: restarts, absences, strangers, and neighbours who do not agree."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from calling import listening
from coterie import records
from coterie.config.build import build, load_samples
from coterie.errors import PeerError
from coterie.mail.pace import MISSES, Timing
from coterie.net import calls, reception
from coterie.net.certificates import certify, key_text, new_key
from coterie.network.graph import Graph
from coterie.network.rounds import Network
from coterie.peers.mailroom import Mailroom
from coterie.peers.runtime import PeerRuntime, Stopped
from coterie.runs.experiment import Experiment
from peering import MODEL, TINY, cancelled, equal, given, kept, run, together, until

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
        reached: list[Mailroom] = []
        original = Mailroom.let_catch_up if where == "between rounds" else Mailroom.receive

        async def halting(self: Mailroom, *args: Any, **more: Any) -> Any:
            if self.pace.round == (2 if where == "between rounds" else 3):
                reached.append(self)
                await asyncio.Event().wait()
            return await original(self, *args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(Mailroom, original.__name__, halting)
            running = [PeerRuntime(a) for a in broken]
            tasks = [asyncio.create_task(r.go()) for r in running]
            await until(lambda: len(reached) == 3)
            await cancelled(tasks)

    run(stop())
    assert [kept(a)[0]["round"] for a in broken] == ["2"] * 3
    rows = run(together(broken))
    equal(straight, broken)
    assert rows["round"].max() == 4


@pytest.mark.usefixtures("heeding")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_peer_stops_when_it_is_asked_to(tmp_path: Path, number: int) -> None:
    crew = given(tmp_path)

    async def scene() -> None:
        peer = PeerRuntime(crew[0])
        task = asyncio.create_task(peer.go())
        await listening(peer, task)
        os.kill(os.getpid(), number)
        with pytest.raises(Stopped):
            await task

    run(scene())
    assert [e["how"] for e in records.events(crew[0].folder) if e.name == "end"] == ["interrupted"]


def test_a_peer_that_comes_back_knows_how_long_rounds_take(tmp_path: Path) -> None:
    """Else it waits longer than its neighbours do, and they go on without it."""
    crew = given(tmp_path, rounds=4)
    run(together(crew))
    back = PeerRuntime(crew[0])
    assert back.keeper.restore(back.journal) == 4
    took, worked = back.pace.times.history
    assert 3 <= len(took) <= len(worked) == 4
    assert back.pace.deadline < crew[0].timing.deadline


def test_a_peer_that_dies_is_passed_by_and_catches_up(tmp_path: Path) -> None:
    """The others go on without it; it comes back with its checkpoint and joins them in the round they are in."""
    crew = given(tmp_path, rounds=40, evaluate=40)

    async def scene() -> None:
        running = [PeerRuntime(a) for a in crew]
        tasks = [asyncio.create_task(r.go()) for r in running]
        await until(lambda: running[2].status.checkpoints >= 3)
        await cancelled(tasks[2:])
        died = int(kept(crew[2])[0]["round"])
        await until(lambda: running[0].status.round > died + 4 and running[1].status.round > died + 4)
        again = PeerRuntime(crew[2])
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

    async def scene() -> list[PeerRuntime]:
        running = [PeerRuntime(a) for a in crew]
        free, work = asyncio.Event(), running[2].node.work

        async def hang(what: Callable[[], Any]) -> Any:
            if running[2].status.round == 2:
                await free.wait()
            return await work(what)

        running[2].node.work = hang  # type: ignore[method-assign]
        tasks = [asyncio.create_task(r.go()) for r in running]
        await until(lambda: all(r.pace.neighbours[2].misses >= MISSES for r in running[:2]))
        free.set()
        await asyncio.gather(*tasks)
        return running

    running = run(scene())
    for peer in running[:2]:
        assert peer.status.neighbours["node-2"].missed >= 1
        assert peer.status.neighbours["node-2"].received >= 1
    assert [kept(a)[0]["round"] for a in crew] == ["30"] * 3


def test_who_was_held_up_does_not_take_the_others_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine: the event loop stands still for longer than a neighbour may be silent."""
    monkeypatch.setattr(calls, "SILENCE", 0.8)
    monkeypatch.setattr(calls, "BREATH", 0.2)
    monkeypatch.setattr(reception, "PULSE", 0.05)
    crew = given(tmp_path, rounds=20, evaluate=20)

    async def beside(running: list[PeerRuntime]) -> None:
        for round in (3, 6, 9):
            await until(lambda round=round: all(r.status.round >= round for r in running))
            time.sleep(1.5)

    rows = run(together(crew, beside))
    assert rows.filter(pl.col("round") == 20)["received_bytes"].to_list() == [20 * 2 * 4 * MODEL] * 3
    for a in crew:
        assert [dict(e.data) for e in records.events(a.folder) if e.name == "fault"] == []


# ---- Strangers, and neighbours who do not agree


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    crew = given(tmp_path)
    host, _, port = crew[0].home.listen.rpartition(":")
    with socket.socket() as other:
        other.bind((host, int(port)))
        other.listen()
        with pytest.raises(PeerError, match=f"cannot listen on {crew[0].home.listen}"):
            run(PeerRuntime(crew[0]).go())


def test_a_peer_does_not_begin_with_an_expired_certificate(tmp_path: Path) -> None:
    crew, key = given(tmp_path), new_key()
    (crew[0].home.path / "key.pem").write_text(key_text(key))
    long_ago = datetime.now(UTC) - timedelta(days=4000)
    (crew[0].home.path / "certificate.pem").write_text(certify(key, "node-0", long_ago))
    with pytest.raises(PeerError, match="has expired"):
        run(PeerRuntime(crew[0]).go())


def errors(running: PeerRuntime) -> str:
    return "\n".join(e["text"] for e in running.status.errors)


def test_neighbours_with_different_settings_refuse_each_other_and_say_which(tmp_path: Path) -> None:
    crew = given(tmp_path, {"wait": 1.5}, nodes=2)
    (other,) = Experiment(**{**TINY, "nodes": 2, "lr": 0.7, "total": 60}).resolved.values()
    crew[1] = replace(crew[1], settings=other)
    found: list[PeerRuntime] = []

    async def look(running: list[PeerRuntime]) -> None:
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
    crew[1] = replace(crew[1], job=build(other, load_samples(other), 0))
    found: list[PeerRuntime] = []

    async def look(running: list[PeerRuntime]) -> None:
        found.extend(running)
        await until(lambda: all(r.status.errors for r in running))

    rows = run(together(crew, look))
    for peer in found:
        assert "model signature: mine [" in errors(peer)
    assert rows["received_bytes"].max() == 0


def test_data_of_other_classes_are_named(tmp_path: Path) -> None:
    """Not only the models that are unlike for it: who holds a few of all classes has to say how many there are."""
    crew = given(tmp_path, {"wait": 1.5}, nodes=2)
    few = crew[1].job.samples
    crew[1] = replace(crew[1], job=replace(crew[1].job, samples=replace(few, classes=12)))
    found: list[PeerRuntime] = []

    async def look(running: list[PeerRuntime]) -> None:
        found.extend(running)
        await until(lambda: all(r.status.errors for r in running))

    run(together(crew, look))
    assert "classes of the data: mine 10, theirs 12" in errors(found[0])


def test_adding_a_neighbour_on_one_side_lets_nobody_in(tmp_path: Path) -> None:
    crew = given(tmp_path, {"wait": 1.5})
    crew[0].home.remove("node-1")
    known = replace(crew[0].job, network=Network.still(Graph.from_edges(3, [(0, 2), (1, 2)])))
    crew[0] = replace(crew[0], job=known, numbers={"node-2": 2})
    found: list[PeerRuntime] = []

    async def look(running: list[PeerRuntime]) -> None:
        found.extend(running)

    rows = run(together(crew, look)).filter(pl.col("round") == 3).sort("node")
    assert rows["received_bytes"].to_list() == [3 * 4 * MODEL, 3 * 4 * MODEL, 6 * 4 * MODEL]
    assert found[1].status.neighbours["node-0"].received == found[1].status.neighbours["node-0"].sent == 0
    assert list(found[0].status.neighbours) == ["node-2"]


# ---- Real processes


def test_processes_that_are_killed_and_frozen_come_back(tmp_path: Path) -> None:
    """One peer is killed and started again, one is frozen until the others have given it up; all get to the end."""
    engine = {"name": "peer", "deadline": 5.0, "wait": 30.0}
    experiment = Experiment(**{**TINY, "rounds": 60, "batches": 100, "evaluate": 60, "nodes": 4}, engine=engine)
    notes: list[str] = []
    frozen: list[int] = []
    events: list[str] = []

    def watch(event: records.Event) -> None:
        if event.name == "warning":
            notes.append(event["text"])
        if event.name != "peers":
            return
        seen = event["statuses"]
        if not events and all(s and s["round"] >= 2 for s in seen):
            os.kill(seen[1]["pid"], signal.SIGKILL)
            os.kill(seen[2]["pid"], signal.SIGSTOP)
            frozen.append(seen[2]["pid"])
            events.append("struck")
        elif frozen and seen[0] and not seen[0]["neighbours"]["node-2"]["alive"]:
            events.append("given up")
            os.kill(frozen.pop(), signal.SIGCONT)

    try:
        rows = experiment.run(tmp_path / "x", [SimpleNamespace(event=watch)]).records
    finally:
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    assert events == ["struck", "given up"]
    assert any("node-1" in note and "signal 9" in note for note in notes)
    assert sorted(rows.filter(pl.col("round") == 60)["node"].to_list()) == [0, 1, 2, 3]
    assert rows.filter(pl.col("round") == 60)["test_accuracy"].min() > 0.3

"""Peers' journals: each keeps its own, goes on with it from its checkpoint, and a run has them all together."""

import asyncio
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from coterie import records
from coterie.contract import Rule
from coterie.mail.pace import Timing
from coterie.net.status import NeighbourStatus, Status
from coterie.peers import deployment
from coterie.peers.journal import PeerJournal
from coterie.peers.runtime import PeerRuntime
from coterie.protocols import Place, Round
from coterie.protocols.neighbourhood import Neighbourhood
from coterie.runs.experiment import Experiment
from peering import MODEL, TINY, cancelled, given, run, together, until
from small import Noted


def told(folder: Path, *without: str) -> list[tuple[str, Any]]:
    return [(e.name, e.get("round")) for e in records.events(folder) if e.name not in without]


def test_a_peer_tells_every_event_once_and_in_order(tmp_path: Path) -> None:
    crew = given(tmp_path, rounds=2, evaluate=2)
    rows = run(together(crew))
    for node, a in enumerate(crew):
        found = records.events(a.folder)
        assert told(a.folder, "fault") == [
            ("begin", 0),
            ("evaluation", 0),
            ("round", 1),
            ("checkpoint", 1),
            ("evaluation", 2),
            ("exchange", 2),
            ("round", 2),
            ("checkpoint", 2),
            ("end", 2),
        ]
        assert {(e.job, e["peer"]) for e in found} == {(("decavg", 0), f"node-{node}")}
        assert all(e["node"] == ([node] if e.name == "evaluation" else node) for e in found)
        (exchange,) = (e for e in found if e.name == "exchange")
        assert exchange["neighbours"] == [f"node-{i}" for i in range(3) if i != node]
        assert exchange["received"] == [2, 2]
        assert min(exchange["received_bytes"]) >= 2 * 4 * MODEL  # and framing
        last = next(e for e in found if e.name == "evaluation" and e["round"] == 2)
        assert last["test_accuracy"] == rows.filter(node=node, round=2)["test_accuracy"].to_list()


def test_peers_that_stop_and_go_on_have_a_journal_as_if_nothing_had_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"rounds": 4, "evaluate": 4}
    straight, broken = given(tmp_path / "straight", **settings), given(tmp_path / "broken", **settings)
    run(together(straight))

    async def stop() -> None:
        reached: list[PeerRuntime] = []

        async def halting(self: PeerRuntime, *args: Any) -> Any:
            if self.status.round == 3:
                reached.append(self)
                await asyncio.Event().wait()
            return await receive(self, *args)

        receive = PeerRuntime.receive
        with monkeypatch.context() as patch:
            patch.setattr(PeerRuntime, "receive", halting)
            tasks = [asyncio.create_task(PeerRuntime(a).go()) for a in broken]
            await until(lambda: len(reached) == 3)
            await cancelled(tasks)

    run(stop())
    assert [records.events(a.folder)[-1]["how"] for a in broken] == ["interrupted"] * 3
    run(together(broken))
    for a, b in zip(straight, broken, strict=True):
        assert told(b.folder, "fault") == told(a.folder, "fault")
        (exchange,) = (e for e in records.events(b.folder) if e.name == "exchange")
        assert min(exchange["received"]) >= 4  # what came before the stop is counted


def test_neighbours_who_are_gone_or_late_or_talk_rubbish_are_faults(tmp_path: Path) -> None:
    """Each is told at once, and what comes on top of its kind when the round is done."""
    status = Status("me", method="decavg", seed=0)
    status.neighbours = {name: NeighbourStatus(name, alive=name != "c") for name in ("a", "b", "c")}
    journal = PeerJournal(tmp_path, 0, status, None)  # type: ignore[arg-type]
    journal.open(0)

    def faults(since: int = 0) -> list[dict[str, Any]]:
        common = {"method": "decavg", "seed": 0, "peer": "me", "node": 0}
        found = [dict(e.data) for e in records.events(tmp_path) if e.name == "fault"][since:]
        assert all(fault.items() >= common.items() for fault in found)
        return [{key: value for key, value in fault.items() if key not in common} for fault in found]

    def turn(name: str, alive: bool) -> None:
        status.neighbours[name].alive = alive
        journal.fault("back" if alive else "gone", name)

    journal.gathered()
    assert faults() == [{"round": 0, "gone": ["c"]}]
    status.round = 1
    turn("c", True)
    turn("a", False)
    journal.fault("missed", "b")
    assert faults(1) == [{"round": 1, "back": ["c"]}, {"round": 1, "gone": ["a"]}, {"round": 1, "missed": ["b"]}]
    journal.fault("missed", "b")
    journal.round(1, False)
    assert len(faults()) == 4
    status.round = 2
    for _ in range(100):
        journal.fault("refused", "b", "damaged")
        turn("a", True)
        turn("a", False)
    assert faults(4) == [
        {"round": 2, "refused": {"b": {"damaged": 1}}},
        {"round": 2, "back": ["a"]},
        {"round": 2, "gone": ["a"]},
    ]
    turn("a", True)
    journal.fault("refused", "b", "damaged")
    journal.round(2, False)
    assert faults(7) == [{"round": 2, "back": ["a"]}, {"round": 2, "refused": {"b": {"damaged": 100}}}]
    journal.tell("end", how="done", round=2)
    turn("b", False)
    journal.close()
    assert len(faults()) == 9


def test_a_fault_is_told_while_the_round_goes_on(tmp_path: Path) -> None:
    crew = given(tmp_path, {"timing": Timing(deadline=60, quorum=2)}, rounds=4)

    def known(node: int) -> list[tuple[str, int]]:
        found = [e for e in records.events(crew[node].folder) if e.name == "round" or "gone" in e.data]
        return [(e.name, e["round"]) for e in found]

    async def scene() -> None:
        running = [PeerRuntime(a) for a in crew]
        work, tasks = running[2].node.work, [asyncio.create_task(r.go()) for r in running]

        async def hang(what: Any) -> Any:
            return await (asyncio.Event().wait() if running[2].status.round == 2 else work(what))

        running[2].node.work = hang  # type: ignore[method-assign]
        await until(lambda: [r.status.state for r in running[:2]] == ["exchanging"] * 2 and known(0) == [("round", 1)])
        await cancelled(tasks[2:])
        for node in (0, 1):  # who lack a quorum now, and stay in their round
            await until(lambda node=node: known(node) == [("round", 1), ("fault", 2)])
        await asyncio.gather(*tasks[:2], PeerRuntime(crew[2]).go())

    run(scene())
    assert [e for e in known(0) if e[0] == "round"] == [("round", i) for i in range(1, 5)]


def test_a_peer_that_cannot_write_its_journal_trains_on(tmp_path: Path) -> None:
    crew = given(tmp_path)
    (crew[0].folder / "journal.jsonl").mkdir(parents=True)  # in the way
    rows = run(together(crew))
    assert rows["round"].max() == 3
    assert (crew[0].folder / "log.jsonl").read_text().count("the journal has gaps") == 1


def test_collected_peers_have_one_journal(tmp_path: Path) -> None:
    crew = given(tmp_path, {"timing": Timing(deadline=60)})
    run(together(crew))
    for a in crew:
        (a.folder / "config.toml").write_text(records.frozen(a.settings))
    deployment.collect([a.home.path for a in crew], tmp_path / "all")
    ends = [(e["node"], e["how"]) for e in records.events(tmp_path / "all") if e.name == "end"]
    assert sorted(ends) == [(0, "done"), (1, "done"), (2, "done")]
    measured = [e["node"] for e in records.events(tmp_path / "all") if e.name == "evaluation" and e["round"] == 3]
    assert sorted(measured) == [[0], [1], [2]]


def test_a_fleet_has_the_runners_events_and_those_of_its_peers(tmp_path: Path) -> None:
    noted = Noted()
    frame = Experiment(**TINY, engine={"name": "peer", "wait": 30.0}).run(tmp_path / "x", [noted]).records
    found = records.events(tmp_path / "x")
    own = [e for e in found if "peer" not in e.data]
    assert [(e.name, e.job) for e in own if e.name in ("begin", "end")] == [
        ("begin", None),
        ("begin", ("decavg", 0)),
        ("end", ("decavg", 0)),
        ("end", None),
    ]
    for node in range(3):
        mine = [e for e in found if e.get("peer") == f"node-{node}"]
        assert [e["round"] for e in mine if e.name == "round"] == [1, 2, 3]
        assert [e["how"] for e in mine if e.name == "end"] == ["done"]
    rows = pl.concat(pl.DataFrame(e.data) for e in found if e.name == "evaluation").select("round", "node", "test_loss")
    assert rows.sort("round", "node").equals(frame.select("round", "node", "test_loss").sort("round", "node"))
    assert not [e for e in found if e.name == "peers"]
    assert noted.named("peers")
    assert {e["node"] for e in noted.named("round")} == {0, 1, 2}  # observers see what the peers tell
    last = noted.named("evaluation")[-1]
    assert last["node"] == [0, 1, 2]
    assert [e.name for e in noted.events if "peer" not in e.data][-2:] == ["end", "end"]


def test_what_a_protocol_remarks_in_every_round_is_in_the_journal_and_seldom_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A neighbour may bring it about all day: that it takes no model on, or tells of a role that is not there."""
    played = Neighbourhood.round

    def remarked(self: Neighbourhood, place: Place, rule: Rule, merge_first: bool) -> Round:
        place.remarks.append("the walk stays here")
        yield from played(self, place, rule, merge_first)

    monkeypatch.setattr(Neighbourhood, "round", remarked)
    crew = given(tmp_path, rounds=20)
    run(together(crew))
    folder = crew[0].folder
    warned = [event for event in records.events(folder) if event.name == "warning"]
    assert [event["round"] for event in warned] == [*range(1, 21)]
    assert 1 <= (folder / "log.jsonl").read_text().count("the walk stays here") < 20

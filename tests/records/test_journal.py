"""The journal: a line for each event, at most one torn, and on resume none twice and none of a future that was not."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie import records
from coterie.errors import RunError
from coterie.mail.traffic import Traffic
from coterie.network.graph import Graph
from coterie.records import Channel, Event, Journal
from coterie.records.journal import FILE, Follower, merge
from small import files_no_longer_than

JOB = ("decavg", 0)


def event(name: str, job: tuple[str, int] | None = JOB, **data: Any) -> Event:
    return Event(name, ({} if job is None else {"method": job[0], "seed": job[1]}) | data)


def write(folder: Path, *events: Event) -> None:
    journal = Journal(folder)
    for each in events:
        journal.write(each)
    journal.close()


def told(folder: Path) -> list[tuple[str, Any]]:
    return [(e.name, e.get("round")) for e in records.events(folder)]


def test_events_are_lines_of_json_and_come_back_as_they_were(tmp_path: Path) -> None:
    first = event("begin", None, jobs=[["decavg", 0]])
    odd = event("evaluation", round=1, test_loss=[0.5, float("nan"), None], text="a\nb", far={"x": float("inf")})
    write(tmp_path, first, odd)
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    assert [line["event"] for line in lines] == ["begin", "evaluation"]
    back = records.events(tmp_path)
    assert back[0] == first
    assert back[1].time == odd.time
    assert back[1].data == {**odd.data, "test_loss": [0.5, None, None], "far": {"x": None}}
    assert back[1].job == JOB
    assert back[0].job is None


def test_a_folder_without_a_journal_has_no_events(tmp_path: Path) -> None:
    assert records.events(tmp_path) == []


def test_a_torn_last_line_is_ignored_wherever_it_is_torn(tmp_path: Path) -> None:
    write(tmp_path, event("round", round=1), event("round", round=2))
    whole = (tmp_path / FILE).read_bytes()
    start = whole.index(b"\n") + 1
    for end in {start, start + 1, len(whole) - 1, random.randrange(start, len(whole))}:
        (tmp_path / FILE).write_bytes(whole[:end])
        assert told(tmp_path) == [("round", 1)]
    write(tmp_path, event("round", round=3))
    assert told(tmp_path) == [("round", 1), ("round", 3)]


@pytest.mark.parametrize("place", ["first", "middle", "last", "end of line"])
def test_a_damaged_line_is_told_and_costs_no_other(tmp_path: Path, place: str) -> None:
    numbers = range(1, 6)
    write(tmp_path, *(event("round", round=number) for number in numbers), event("round", ("b", 1), round=1))
    content = bytearray((tmp_path / FILE).read_bytes())
    ends = [at for at, byte in enumerate(content) if byte == 10]
    content[{"first": 0, "middle": ends[1] + 1, "last": ends[3] + 1, "end of line": ends[1]}[place]] ^= 4
    (tmp_path / FILE).write_bytes(content)
    lost = {"first": 1, "middle": 3, "last": 5}.get(place)
    found = records.events(tmp_path)
    assert [e["round"] for e in found if e.name == "round"] == [*(n for n in numbers if n != lost), 1]
    assert [e.job for e in found] == [JOB] * 5 + [("b", 1)]
    assert sum(e.name == "warning" for e in found) == (lost is not None)
    journal = Journal(tmp_path, {JOB: 4})  # who goes on keeps as many as the checkpoint counts
    assert (journal.count(JOB), journal.damaged) == (4, int(lost in (1, 3)))
    journal.close()
    left = [n for n in numbers if n != lost and n < 5]
    assert [e["round"] for e in records.events(tmp_path) if e.name == "round"] == [*left, 1]
    again = Journal(tmp_path, {JOB: 4})
    assert again.damaged == 0  # it is told once
    again.close()


def test_a_job_that_goes_on_keeps_what_its_checkpoint_counts_and_other_jobs_all(tmp_path: Path) -> None:
    other = ("cfa", 1)
    write(
        tmp_path,
        event("begin", None),
        event("begin", round=0),
        event("checkpoint", round=4),
        event("round", round=5),
        event("end", how="diverged"),
        event("round", other, round=9),
        event("end", other, how="done"),
        event("end", None, how="diverged"),
    )
    journal = Journal(tmp_path, {JOB: 2})
    assert told(tmp_path) == [("begin", None), ("begin", 0), ("checkpoint", 4), ("round", 9), ("end", None)]
    assert journal.count(JOB) == 2
    assert journal.count(None) == 1
    assert not journal.ended
    journal.close()
    journal = Journal(tmp_path, {JOB: 0})
    assert [name for name, _ in told(tmp_path)] == ["begin", "round", "end"]
    journal.close()


def test_what_follows_the_good_end_of_a_job_is_dropped(tmp_path: Path) -> None:
    """Its records were complete when the disk was full, and only what came after could not be written."""
    write(tmp_path, event("end", how="done"), event("end", how="failed"), event("end", None, how="failed"))
    Journal(tmp_path).close()
    assert [e["how"] for e in records.events(tmp_path)] == ["done"]


def test_a_line_that_cannot_be_written_leaves_no_trace(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(event("round", round=1))
    room = (tmp_path / FILE).stat().st_size + 20
    with files_no_longer_than(room), pytest.raises(RunError, match="cannot write to"):
        journal.write(event("round", round=2))
    journal.write(event("round", round=3))
    journal.close()
    assert told(tmp_path) == [("round", 1), ("round", 3)]
    assert journal.count(JOB) == 2


def test_an_event_is_in_the_journal_before_and_told_after_what_makes_it_last(tmp_path: Path) -> None:
    seen: list[str] = []

    class Observer:
        def event(self, event: Event) -> None:
            seen.append(event.name)

    channel = Channel(Journal(tmp_path), [Observer()]).job(*JOB)
    with channel.sealed("checkpoint", round=3):
        assert told(tmp_path) == [("checkpoint", 3)]
        assert channel.count == 1
        assert seen == []
    assert seen == ["checkpoint"]
    with pytest.raises(OSError, match="no"), channel.sealed("end", how="done"):
        raise OSError("no")
    assert seen == ["checkpoint"]
    channel.close()


def test_a_follower_gives_what_comes_and_nothing_twice(tmp_path: Path) -> None:
    write(tmp_path, event("round", round=1))
    follower = Follower(tmp_path)
    assert follower.fresh() == []
    write(tmp_path, event("round", round=2), event("round", round=3))
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"event": "rou')
    assert [e["round"] for e in follower.fresh()] == [2, 3]
    Journal(tmp_path, {JOB: 1}).close()
    assert follower.fresh() == []
    write(tmp_path, event("round", round=2))
    assert [e["round"] for e in follower.fresh()] == [2]


def test_the_journals_of_peers_come_together_in_the_order_of_time(tmp_path: Path) -> None:
    for i, name in enumerate(("a", "b")):
        there = tmp_path / "jobs" / "decavg-0" / "peers" / name
        there.mkdir(parents=True)
        write(
            there, *(Event("round", {"method": "decavg", "seed": 0, "round": r, "node": 0}, r + i / 10) for r in (1, 2))
        )
    write(tmp_path, Event("begin", {}, 0.0), Event("end", {"how": "done"}, 9.0))
    assert [e.time for e in records.events(tmp_path)] == [0.0, 1.0, 1.1, 2.0, 2.1, 9.0]
    merge(tmp_path, {i: tmp_path / "jobs" / "decavg-0" / "peers" / n for i, n in enumerate("ab")})
    rounds = [(e["round"], e["node"]) for e in records.events(tmp_path) if e.name == "round" and e["node"]]
    assert rounds == [(1, 1), (2, 1)]


def test_a_clock_that_is_set_back_does_not_change_the_order_of_a_peers_events(tmp_path: Path) -> None:
    folders = {i: tmp_path / "jobs" / "decavg-0" / "peers" / name for i, name in enumerate("ab")}
    for there, times in zip(folders.values(), [(5.0, 1.0, 7.0), (2.0, 3.0, 4.0)], strict=True):
        there.mkdir(parents=True)
        each = {"method": "decavg", "seed": 0, "node": 0, "peer": there.name}
        write(there, *(Event("round", {**each, "round": r}, moment) for r, moment in enumerate(times)))
    merge(tmp_path / "jobs", folders)
    for found in (records.events(tmp_path), records.events(tmp_path / "jobs")):
        told = [(e["peer"], e["round"]) for e in found]
        assert [r for peer, r in told if peer == "a"] == [0, 1, 2]
        assert [r for peer, r in told if peer == "b"] == [0, 1, 2]
        assert told != sorted(told)  # yet by time as far as that goes


# What was exchanged.


def arcs(*pairs: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])


def test_links_that_carried_the_same_are_told_by_three_numbers() -> None:
    graph, traffic = Graph.from_edges(3, [(0, 1), (1, 2)]), Traffic(3)
    for _ in range(4):
        traffic.add(graph.sources, graph.targets, np.full(4, 10))
    assert traffic.take(graph) == {"links": 4, "messages": 4, "bytes": 40}
    assert traffic.take(graph) == {"links": 0, "messages": 0, "bytes": 0}


def test_links_that_carried_different_things_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, traffic = Graph.from_edges(3, [(0, 1), (1, 2)]), Traffic(3)

    def some() -> None:
        traffic.add(*arcs((1, 0), (0, 1)), np.array([10, 10]))
        traffic.add(*arcs((0, 1)), np.array([5]))

    some()
    kept, again = traffic.state(), Traffic(3)
    again.restore(kept)
    expected = {"links": 2, "messages": [1, 2], "bytes": [10, 15], "sources": [1, 0], "targets": [0, 1]}
    assert traffic.take(graph) == again.take(graph) == expected
    traffic.add(*arcs((0, 1)), np.array([5]))  # one link of four, so which it was is told
    assert traffic.take(graph) == {"links": 1, "messages": 1, "bytes": 5, "sources": [0], "targets": [1]}
    monkeypatch.setattr("coterie.mail.traffic.LISTED", 1)
    some()
    assert traffic.take(graph) == {"links": 2, "all_messages": 3, "all_bytes": 25}


def test_much_that_waits_is_added_up_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.mail.traffic.PARCELS", 3)
    graph, traffic = Graph.from_edges(2, [(0, 1)]), Traffic(2)
    for _ in range(10):
        traffic.add(*arcs((0, 1)), np.array([1]))
    assert traffic.take(graph)["messages"] == 10

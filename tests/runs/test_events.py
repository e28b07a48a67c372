"""What a run tells while it runs: every event once and in order, in its journal and to its observers."""

import contextlib
import multiprocessing
import os
import re
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from coterie import records
from coterie.app.cli import main
from coterie.engines import CheckpointClock
from coterie.errors import DivergedError, RunError
from coterie.records import Event
from coterie.runs import runner
from small import LOOP, At, Noted, assert_same, files_no_longer_than, happened, interrupt, interrupted, small


def told(folder: Path) -> list[tuple[str, Any]]:
    return [(e.name, e.get("round")) for e in records.events(folder)]


def test_every_event_is_there_once_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckpointClock, "due", lambda self: True)
    noted = Noted()
    frame = small(rounds=3, evaluate=2).run(tmp_path / "x", [noted]).records
    assert told(tmp_path / "x") == [
        ("begin", None),
        ("begin", 0),
        ("evaluation", 0),
        ("round", 1),
        ("checkpoint", 1),
        ("evaluation", 2),
        ("exchange", 2),
        ("round", 2),
        ("checkpoint", 2),
        ("evaluation", 3),
        ("exchange", 3),
        ("round", 3),
        ("end", 3),
        ("end", None),
    ]
    assert [e for e in noted.events if e.name not in ("phase", "need")] == records.events(tmp_path / "x")
    assert noted.closed == 1
    for event in noted.named("evaluation"):
        rows = frame.filter(pl.col("round") == event["round"])
        for name in ("node", "test_accuracy", "sent_bytes"):
            assert event[name] == rows[name].to_list()
        assert "staleness" not in event.data  # nothing was measured
    size = frame["sent_bytes"].max() // 3 // 2  # type: ignore[operator]  # two neighbours each
    exchanged = [{k: e[k] for k in ("links", "messages", "bytes")} for e in noted.named("exchange")]
    assert exchanged == [
        {"links": 12, "messages": 2, "bytes": 2 * size},
        {"links": 12, "messages": 1, "bytes": size},
    ]


@pytest.mark.parametrize("engine", [LOOP, {"name": "memory"}])
def test_faults_name_who_is_down_and_the_exchange_lists_what_went_through(
    tmp_path: Path, engine: dict[str, Any]
) -> None:
    experiment = small(links=0.6, presence=0.8, leaves={"5": 4}, engine=engine, evaluate=6)
    frame = experiment.run(tmp_path / "x").records
    faults = [e for e in records.events(tmp_path / "x") if e.name == "fault"]
    assert all(5 in e["nodes"] for e in faults if e["round"] >= 4)
    assert any(e["links"] for e in faults)
    assert all(len(e["down"]) == e["links"] for e in faults)
    assert not any(node in e["nodes"] for e in faults for link in e["down"] for node in link)
    (exchange,) = (e for e in records.events(tmp_path / "x") if e.name == "exchange")
    sizes = exchange["bytes"] if isinstance(exchange["bytes"], list) else [exchange["bytes"]] * exchange["links"]
    last = frame.filter(pl.col("round") == 6)
    for node, total in zip(last["node"], last["sent_bytes"], strict=True):
        assert total == sum(b for b, source in zip(sizes, exchange["sources"], strict=True) if source == node)


def test_engines_tell_the_same(tmp_path: Path) -> None:
    experiment = {"links": 0.7, "evaluate": 2}
    small(**experiment).run(tmp_path / "local")
    small(**experiment, engine="memory").run(tmp_path / "memory")
    one, other = ([e for e in happened(tmp_path / n) if e[0] in ("exchange", "fault")] for n in ("local", "memory"))
    assert one == other


def test_an_interrupted_run_says_so_until_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = small(links=0.7, evaluate=4, seeds="0-1")
    interrupted(experiment, tmp_path / "x")
    ends = [e for e in records.events(tmp_path / "x") if e.name == "end"]
    assert [(e.job, e["how"]) for e in ends] == [(("decavg", 0), "interrupted"), (None, "interrupted")]
    noted = Noted()
    runner.resume(tmp_path / "x", [noted])
    begun = noted.named("begin")
    assert begun[0]["left"] == [["decavg", 0], ["decavg", 1]]
    assert [e["round"] for e in begun[1:]] == [3, 0]
    experiment.run(tmp_path / "straight")
    assert [e for e in happened(tmp_path / "x") if e[0] != "checkpoint"] == happened(tmp_path / "straight")
    before = (tmp_path / "x" / "journal.jsonl").read_bytes()
    runner.resume(tmp_path / "x")
    assert (tmp_path / "x" / "journal.jsonl").read_bytes() == before


def test_a_job_that_diverges_ends_so_and_the_others_well(tmp_path: Path) -> None:
    wild = {"rule": "decavg", "optimiser": {"name": "sgd", "lr": 1e30}}
    experiment = small(methods={"wild": wild, "calm": {"rule": "decavg"}}, rounds=2)
    for act in (lambda: experiment.run(tmp_path / "x").records, lambda: runner.resume(tmp_path / "x").records):
        with pytest.raises(DivergedError):
            act()
        ends = {e.job: e for e in records.events(tmp_path / "x") if e.name == "end"}
        assert sorted(e.name for e in records.events(tmp_path / "x")).count("end") == 3
        assert [ends[job]["how"] for job in (("wild", 0), ("calm", 0), None)] == ["diverged", "done", "diverged"]
        assert "not finite" in ends["wild", 0]["error"]


def test_a_worker_that_dies_is_in_the_journal_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(multiprocessing.active_children())

    def kill() -> None:
        (worker,) = set(multiprocessing.active_children()) - before
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()

    (tmp_path / "x.toml").write_text(small(engine={**LOOP, "workers": 2}).to_toml())
    monkeypatch.setattr("coterie.app.progress.observers", lambda *_: [At(3, kill)])
    out = tmp_path / "x"
    assert main(["run", str(tmp_path / "x.toml"), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "training node" in said
    assert "in round 4" in said
    assert "coterie resume" in said
    *_, job, whole = records.events(out)
    assert (job.name, job.job, job["how"]) == ("end", ("decavg", 0), "failed")
    assert (whole.name, whole.job, whole["how"]) == ("end", None, "failed")
    assert "training node" in job["error"]
    assert set(records.load(out)["round"]) == {0, 1, 2, 3}
    runner.resume(out)
    small(engine={**LOOP, "workers": 2}).run(tmp_path / "straight")
    assert happened(out) == happened(tmp_path / "straight")


def test_a_run_whose_journal_cannot_grow_ends_and_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    noted, limits = Noted(), contextlib.ExitStack()

    def fill() -> None:
        size = (tmp_path / "x" / "journal.jsonl").stat().st_size
        limits.enter_context(files_no_longer_than(size + 100))

    with limits, pytest.raises(RunError, match="cannot write to"):
        runner.run(small(), tmp_path / "x", [At(3, fill), noted])
    assert told(tmp_path / "x")[-1] == ("round", 3)
    assert noted.closed == 1
    runner.resume(tmp_path / "x")
    small().run(tmp_path / "straight")
    assert happened(tmp_path / "x") == happened(tmp_path / "straight")


# Observers.


def test_observers_are_told_in_their_order_and_closed(tmp_path: Path) -> None:
    said: list[tuple[str, str]] = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def event(self, event: Event) -> None:
            said.append((self.name, event.name))

    first, second = Named("first"), Named("second")
    small(rounds=1).run(observers=[first, second])
    assert said[0::2] == [("first", name) for _, name in said[1::2]]
    assert said[1::2] == [("second", name) for _, name in said[0::2]]
    assert said[-1] == ("second", "end")


def test_an_observer_that_raises_is_told_no_more_and_spoils_nothing(tmp_path: Path) -> None:
    def slip() -> None:
        raise TypeError("a slip of the pen")

    noted = Noted()
    frame = small().run(tmp_path / "x", [At(2, slip), noted]).records
    assert_same(frame, small().run().records)
    (warning,) = noted.named("warning")
    assert "At failed and is told no more (TypeError: a slip of the pen)" in warning["text"]
    assert [e["round"] for e in noted.named("round")] == [1, 2, 3, 4, 5, 6]
    assert [e.name for e in records.events(tmp_path / "x")].count("warning") == 1


def test_an_observer_may_stop_the_run(tmp_path: Path) -> None:
    def enough() -> None:
        raise KeyboardInterrupt

    noted = Noted()
    with pytest.raises(runner.Interrupted):
        small().run(tmp_path / "x", [At(2, enough), noted])
    assert noted.closed == 1
    assert [e["how"] for e in records.events(tmp_path / "x") if e.name == "end"] == ["interrupted"] * 2


def test_an_observer_can_stop_a_run_after_the_round_with_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(runner.Interrupted):
        small().run(tmp_path / "x", [At(2, interrupt)])
    assert told(tmp_path / "x")[-3:] == [("checkpoint", 2), ("end", None), ("end", None)]


def test_the_examples_of_the_guide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks of code in the section on observers are run as they stand."""
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text("utf-8")
    section = guide.partition("\n## Observers\n")[2].partition("\n## ")[0]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(code, names)
    assert "decavg done with 36 rows" in capsys.readouterr().out
    assert names["best"].reached > 0.1
    assert names["best"].where.startswith("decavg, seed 0, round ")

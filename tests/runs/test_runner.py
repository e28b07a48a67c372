"""Interrupting, killing and resuming: the records are those of a run that nobody disturbed."""

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from coterie import records
from coterie.config.build import build, load_samples
from coterie.engines import CheckpointClock, local
from coterie.engines.local import Local, LocalSession
from coterie.errors import ConfigError, RunError
from coterie.runs import runner
from coterie.runs.experiment import Experiment
from driving import light
from small import LOOP, SMALL, At, Noted, assert_same, happened, interrupt, interrupted, small, timeless

DRIVER = """
import json, multiprocessing, os, signal, sys, time
from pathlib import Path
from coterie import records
from coterie.engines import CheckpointClock
from coterie.runs import runner
from coterie.runs.experiment import Experiment
from coterie.config.configuration import read

out, moments = Path(sys.argv[2]), json.loads(sys.argv[3])
experiment = Experiment(**read(Path(sys.argv[1])))  # imports all parts, once for all children
CheckpointClock.due = lambda self: True  # a checkpoint after every round
os.fsync = lambda file: None  # the system outlives its processes

class Workers:
    def event(self, event):
        (out / "workers").write_text(" ".join(str(p.pid) for p in multiprocessing.active_children()))

def go():
    if (out / "config.toml").exists():
        runner.resume(out, [Workers()])
    else:
        runner.run(experiment, out, [Workers()])

def done():
    finished = len(list(out.glob("jobs/*/done.parquet")))
    return 1000 * finished + max([int(p.name[6:]) for p in out.glob("jobs/*/round-*")], default=0)

for moment, pause in moments:
    child = os.fork()
    if not child:
        go()
        os._exit(0)
    limit = time.monotonic() + 100
    while done() < moment and time.monotonic() < limit:
        time.sleep(0.001)
    time.sleep(pause)
    os.kill(child, signal.SIGKILL)
    print(done(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Runs an experiment and kills it with no warning at each moment: 1000 x jobs done + round of the newest checkpoint."""


def killed(tmp_path: Path, settings: dict[str, Any], moments: list[tuple[int, float]]) -> list[list[int]]:
    """Run in another process, killed at these moments; (how far it was, how it ended) each time."""
    (tmp_path / "config.toml").write_text(small(**settings).to_toml())
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "config.toml"), str(tmp_path / "x"), json.dumps(moments)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=200).stdout
    return [[int(word) for word in line.split()] for line in said.splitlines()]


def until(holds: Callable[[], bool]) -> bool:
    """Wait for something to hold, for a minute at most."""
    limit = time.monotonic() + 60
    while not holds() and time.monotonic() < limit:
        time.sleep(0.01)
    return holds()


def alive(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


# Killed.


def test_a_run_killed_again_and_again_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"methods": ["decavg", "dechw"], "rounds": 20, "links": 0.7, "keep_optimiser": True, "evaluate": "log"}
    rng = random.Random()
    moments = [(r, rng.random() * 0.03) for r in (1, 7, 14, 1004)]
    ends = killed(tmp_path, settings, moments)
    assert [code for _, code in ends] == [-signal.SIGKILL] * len(moments)
    assert ends[-1][0] < 2000
    monkeypatch.setattr(CheckpointClock, "due", lambda self: True)
    assert_same(runner.resume(tmp_path / "x").records, small(**settings).run(tmp_path / "straight").records)
    assert happened(tmp_path / "x") == happened(tmp_path / "straight")
    left = [p.name for p in tmp_path.glob("x/**/*") if p.name.startswith((".", "making", "round"))]
    assert left == []


@pytest.mark.parametrize("protocol", ["relay", "aggregator", "desa"])
def test_other_protocols_resume_too(tmp_path: Path, protocol: str) -> None:
    experiment = small(protocol=light(protocol), topology="complete", presence=0.8, evaluate=2)
    interrupted(experiment, tmp_path / "x")
    assert_same(runner.resume(tmp_path / "x").records, experiment.run().records)


def test_worker_processes_do_not_outlive_a_killed_run_which_resumes_with_workers(tmp_path: Path) -> None:
    settings = {"engine": {**LOOP, "workers": 2}, "rounds": 15, "methods": ["dechw"]}
    ((reached, code),) = killed(tmp_path, settings, [(3, 0.01)])
    assert 3 <= reached < 1000
    assert code == -signal.SIGKILL
    workers = [int(p) for p in (tmp_path / "x" / "workers").read_text().split()]
    assert len(workers) == 1
    assert until(lambda: not any(map(alive, workers)))
    before = set(multiprocessing.active_children())
    resumed = runner.resume(tmp_path / "x").records
    assert records.environment(tmp_path / "x")["jobs"]["dechw-0"]["workers"] == 2
    assert_same(resumed, small(**settings).run().records)
    assert until(lambda: set(multiprocessing.active_children()) <= before)


# Interrupted.


def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "x"
    with pytest.raises(runner.Interrupted, match=f"coterie resume {out}"):
        runner.run(small(seeds="0-1"), out, [At(3, interrupt)])
    assert [p.name for p in out.glob("jobs/*/round-*")] == ["round-000000003"]
    assert set(records.load(out)["round"]) == {0, 1, 2, 3}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    noted = Noted()
    assert_same(runner.resume(out, [noted]).records, small(seeds="0-1").run().records)
    assert [e["round"] for e in noted.named("begin") if e.job] == [3, 0]
    assert [e["round"] for e in noted.named("round")] == [4, 5, 6, 1, 2, 3, 4, 5, 6]


def test_a_run_can_be_interrupted_after_every_round(tmp_path: Path) -> None:
    experiment = small(rounds=4, rule="dechw", momentum=0.9, keep_optimiser=True, evaluate=3)
    with pytest.raises(runner.Interrupted):
        runner.run(experiment, tmp_path / "x", [At(1, interrupt, "dechw")])
    for number in (2, 3):
        with pytest.raises(runner.Interrupted):
            runner.resume(tmp_path / "x", [At(number, interrupt, "dechw")])
    assert_same(runner.resume(tmp_path / "x").records, experiment.run().records)


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    noted = Noted()

    def twice() -> None:
        interrupt()
        interrupt()

    with pytest.raises(runner.Interrupted):
        runner.run(small(), tmp_path / "x", [At(3, twice), noted])
    assert len(noted.named("warning")) == 1
    assert not list(tmp_path.glob("x/jobs/*/round-*"))
    assert_same(runner.resume(tmp_path / "x").records, small().run().records)


def test_ctrl_c_in_the_very_last_round_loses_nothing_and_is_no_interruption(tmp_path: Path) -> None:
    assert_same(runner.run(small(), tmp_path / "x", [At(6, interrupt)]).records, small().run().records)


def test_ctrl_c_between_two_jobs_keeps_the_first(tmp_path: Path) -> None:
    experiment = small(methods=["decavg", "cfa"])
    with pytest.raises(runner.Interrupted):
        runner.run(experiment, tmp_path / "x", [At(6, interrupt)])
    assert records.RunFolder(tmp_path / "x").finished("decavg", 0)
    assert set(records.load(tmp_path / "x")["method"]) == {"decavg"}
    assert_same(runner.resume(tmp_path / "x").records, experiment.run().records)


def test_ctrl_c_while_data_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted()
    with monkeypatch.context() as patch:
        patch.setattr(runner, "load_samples", lambda _: interrupt())
        with pytest.raises(runner.Interrupted, match="coterie resume"):
            runner.run(small(), tmp_path / "x", [noted])
    assert noted.closed == 1
    assert_same(runner.resume(tmp_path / "x").records, small().run().records)


@pytest.mark.usefixtures("heeding")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_asks_during_preparation_need_not_ask_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As during calibration, which no round ends: nothing is lost yet."""
    noted = Noted()
    with monkeypatch.context() as patch:
        patch.setattr(local, "choose_mode", lambda *_: os.kill(os.getpid(), number))
        with pytest.raises(runner.Interrupted, match="coterie resume"):
            runner.run(small(engine={"name": "local", "workers": 1}), tmp_path / "x", [noted])
    assert noted.named("warning") == []
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)] == [signal.SIG_DFL] * 2
    assert_same(runner.resume(tmp_path / "x").records, small().run().records)


def test_what_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As `nohup` asks for."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        frame = runner.run(small(), tmp_path / "x", [At(3, lambda: os.kill(os.getpid(), signal.SIGHUP))]).records
    finally:
        signal.signal(signal.SIGHUP, before)
    assert frame["round"].max() == 6


def test_models_that_are_not_finite_are_not_kept(tmp_path: Path) -> None:
    """A merge has spoilt them, and Ctrl-C comes before the next training can say so."""
    file = tmp_path / "broken.py"
    file.write_text(
        "from coterie.contract import Rule\n\n\n"
        "class Broken(Rule):\n"
        "    def merge(self, me, params, state, inbox):\n"
        "        return inbox.mean('w') / (0 if me.round == 3 else 1), state\n"
    )
    with pytest.raises(runner.Interrupted):
        runner.run(small(rule=f"{file}:Broken"), tmp_path / "x", [At(3, interrupt, method="broken")])
    assert not list(tmp_path.glob("x/jobs/*/round-*"))


def test_without_a_folder_an_interruption_says_that_nothing_was_written() -> None:
    with pytest.raises(runner.Interrupted, match="Nothing was written"):
        runner.run(small(), None, [At(3, interrupt)])


def test_a_run_in_a_thread_leaves_signals_alone(tmp_path: Path) -> None:
    frames: list[pl.DataFrame] = []
    thread = threading.Thread(target=lambda: frames.append(small().run(tmp_path / "x").records))
    thread.start()
    thread.join()
    assert_same(frames[0], small().run().records)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_line_stops_when_asked_with_130(tmp_path: Path, number: int) -> None:
    """All of its processes are asked, as by a terminal that is closed, or a service manager."""
    out = tmp_path / "x"
    engine = {"name": "local", "workers": 2}
    (tmp_path / "long.toml").write_text(small(rounds=100_000, evaluate="log", engine=engine).to_toml())
    command = [sys.executable, "-c", "import sys; from coterie.app.cli import main; sys.exit(main())"]
    run = [*command, "run", str(tmp_path / "long.toml"), "--out", str(out)]
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(run, **pipes, start_new_session=True)
    try:
        journal = out / "journal.jsonl"
        assert until(lambda: journal.is_file() and '"event": "round"' in journal.read_text())
        os.killpg(process.pid, number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert f"coterie resume {out}" in said
    assert "Traceback" not in said
    (checkpoint,) = out.glob("jobs/*/round-*")
    with pytest.raises(runner.Interrupted):
        runner.resume(out, [At(int(checkpoint.name.removeprefix("round-")) + 2, interrupt)])


# Resuming.


def test_a_finished_run_gives_its_records_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = small().run(tmp_path / "x").records
    monkeypatch.setattr(runner, "load_samples", lambda _: pytest.fail("data were loaded"))
    (tmp_path / "x" / "records.parquet").unlink()
    resumed = runner.resume(tmp_path / "x").records
    assert resumed.equals(frame)
    assert records.load(tmp_path / "x").equals(frame)


def test_checkpoints_are_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    noted = Noted()

    class Slow:
        def event(self, event: records.Event) -> None:
            clock[0] += 4.0 * (event.name == "round")

    runner.run(small(rounds=13), tmp_path / "x", [Slow(), noted])
    assert [e["round"] for e in noted.named("checkpoint")] == [4, 8, 12]


def calibrate(experiment: Experiment) -> None:
    """Measure what is faster, as a run does that is long enough."""
    (method,) = experiment.model_copy(update={"rounds": 1_000_000}).resolved.values()
    session = Local(workers=1).open()
    session.choose(build(method, load_samples(method), 0), 1)
    session.close()


def test_the_plan_is_kept_whatever_would_be_chosen_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "cache"))
    experiment = small(engine={**LOOP, "mode": "auto"})
    calibrate(experiment)
    unbroken = experiment.run(tmp_path / "unbroken").records
    plan = records.environment(tmp_path / "unbroken")["jobs"]["decavg-0"]
    interrupted(experiment, tmp_path / "x")
    (memory,) = (tmp_path / "cache").glob("modes-*.json")
    known = json.loads(memory.read_text())
    other = 0 if plan["modes"][0]["stack"] else 3
    memory.write_text(json.dumps({key: value if "stackable" in key else other for key, value in known.items()}))
    assert_same(runner.resume(tmp_path / "x").records, unbroken)
    assert records.environment(tmp_path / "x")["jobs"]["decavg-0"] == plan
    experiment.model_copy(update={"rounds": 1}).run(tmp_path / "new")
    assert records.environment(tmp_path / "new")["jobs"]["decavg-0"] != plan


def test_plans_of_all_jobs_are_fixed_before_the_first_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever goes on with a run, on another machine or without its cache, chooses nothing anew."""
    experiment = small(engine={**LOOP, "mode": "auto"}, methods=["decavg", "dechw"], seeds="0-1", rounds=3)
    seen: list[dict[str, Any]] = []
    look = At(1, lambda: seen.append(records.environment(tmp_path / "x")["jobs"]))
    with pytest.raises(runner.Interrupted):
        runner.run(experiment, tmp_path / "x", [look, At(2, interrupt)])
    assert seen[0].keys() == {"decavg-0", "dechw-0", "decavg-1", "dechw-1"}
    for checkpoint in (tmp_path / "x").glob("jobs/*/round-*"):
        shutil.rmtree(checkpoint)
    monkeypatch.setattr(LocalSession, "choose", lambda *_: pytest.fail("a plan was chosen anew"))
    runner.resume(tmp_path / "x")
    assert records.environment(tmp_path / "x")["jobs"] == seen[0]


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "in memory"])
def test_what_one_method_cannot_be_is_told_before_another_has_trained(kept: bool, tmp_path: Path) -> None:
    seen, models = Noted(), [{"name": "mlp", "sizes": [n]} for n in (8, 4)]
    with pytest.raises(ConfigError, match="expected one model, got 2"):
        runner.run(small(methods=["decavg", "def-kt"], model=models), tmp_path / "x" if kept else None, [seen])
    assert [e.name for e in seen.events if e.job] == []
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("content", [b"[]", b'"abc"', b"abc", b"{", b'{"x": "y"}', b"\xff" * 9])
def test_a_spoilt_memory_of_what_is_faster_is_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path))
    experiment = small(engine={**LOOP, "mode": "auto", "chunk": 2}, rounds=1)
    calibrate(experiment)
    (memory,) = tmp_path.glob("modes-*.json")
    whole = memory.read_bytes()
    memory.write_bytes(content)
    experiment.run()
    calibrate(experiment)
    assert memory.read_bytes() == whole


def test_stacked_runs_resume_exactly(tmp_path: Path) -> None:
    engine = {**LOOP, "mode": "stack", "chunk": 4}
    experiment = small(engine=engine, batches=None, epochs=1, partition={"name": "dirichlet", "min_samples": 5})
    interrupted(experiment, tmp_path / "x")
    assert_same(runner.resume(tmp_path / "x").records, experiment.run().records)
    plan = {"workers": 1, "modes": [{"stack": True, "chunk": 4}]}
    assert records.environment(tmp_path / "x")["jobs"]["decavg-0"] == plan


def test_mixed_models_resume_exactly(tmp_path: Path) -> None:
    convolution = {"name": "cnn", "channels": [2], "kernel": 3, "norm": "batch"}
    experiment = small(model=[{"name": "mlp", "sizes": [8]}, convolution])
    interrupted(experiment, tmp_path / "x")
    assert_same(runner.resume(tmp_path / "x").records, experiment.run().records)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sample_left_alone_by_batch_norm_is_told_in_a_line(workers: int) -> None:
    resnet = {"name": "resnet18", "channels": [2, 2, 2, 2]}
    engine = {**LOOP, "workers": workers}
    settings = {"model": resnet, "nodes": 3, "rounds": 1, "batches": None, "epochs": 1, "total": 99, "validation": 0}
    experiment = small(**settings, batch_size=16, engine=engine)
    with pytest.raises(ConfigError, match=r"the 33 samples of node . in mini-batches of 16 leave one alone") as caught:
        experiment.run()
    assert "Choose another --batch-size, such as 15." in str(caught.value)
    assert len(small(**settings, batch_size=15).run().records) == 6


def test_a_run_under_way_cannot_be_resumed_by_another(tmp_path: Path) -> None:
    complaints: list[str] = []

    def meddle() -> None:
        with pytest.raises(RunError) as caught:
            runner.resume(tmp_path / "x")
        complaints.append(str(caught.value))

    frame = runner.run(small(), tmp_path / "x", [At(3, meddle)]).records
    assert "is being run by another process" in complaints[0]
    assert_same(frame, small().run().records)
    assert len(timeless(frame)) == SMALL["nodes"] * (SMALL["rounds"] + 1)

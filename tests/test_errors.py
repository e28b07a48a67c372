"""What a user can cause: one line each time, of what was expected, what came and the cure, and nothing is lost."""

import contextlib
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from safetensors import SafetensorError
from torch import Tensor

from coterie import errors, files, records
from coterie.contract import Inbox, Me, Rule, State
from coterie.engines import CheckpointClock
from coterie.engines.local import LocalSession
from coterie.errors import ConfigError, CoterieError, DataError, DivergedError, GraphError, RunError
from coterie.runs import runner
from coterie.runs.experiment import Experiment
from small import LOOP, At, assert_same, interrupted, no_space, small

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CoterieError)]


def complaint(kind: type[CoterieError], act: Callable[[], object], *words: str) -> str:
    """The one line of the error that this act raises, which has these words."""
    with pytest.raises(kind) as caught:
        act()
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text
    return text


# The errors themselves.


def test_an_error_is_one_line_of_what_expected_got_and_cure() -> None:
    whole = CoterieError("k is odd", expected="even", got=3, cure="Add 1.")
    assert str(whole) == "k is odd: expected even, got 3. Add 1."
    assert str(CoterieError("k is odd", got=3)) == "k is odd: got 3"
    assert str(CoterieError("k is odd", cure="Add 1.")) == "k is odd. Add 1."
    assert str(CoterieError("k is odd", expected=0, got=0)) == "k is odd: expected 0, got 0"


def test_an_error_in_words_says_its_kind_and_where_it_happened() -> None:
    noted = errors.noted(KeyError(2), "merging at", [3], 7)
    assert errors.in_words(noted) == "KeyError: 2. While merging at node 3 in round 7."
    assert errors.in_words(MemoryError()) == "MemoryError"
    assert errors.in_words(CoterieError("k is odd", cure="Add 1.")) == "k is odd. Add 1."


@pytest.mark.parametrize("kind", KINDS)
def test_errors_travel_between_processes(kind: type[CoterieError]) -> None:
    error = kind("what", expected=1, got=2, cure="Mend it.")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error)


# Settings.


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rule": "decagv"}, ["unknown rule 'decagv'", "Did you mean 'decavg'?"]),
        ({"rule": "zzzzzz"}, ["unknown rule 'zzzzzz'", "Choose from", "dechw"]),
        ({"topology": "rnig"}, ["Did you mean 'ring'?"]),
        ({"methods": ["dechv"]}, ["unknown method 'dechv'", "Did you mean 'dechw'?"]),
        ({"methods": {"a": {"use": "dechv"}}}, ["unknown method 'dechv'"]),
        ({"ruonds": 3}, ["unknown setting ruonds", "Did you mean rounds?"]),
        ({"topology": {"name": "er", "conect": True}}, ["topology.conect", "Did you mean topology.connect?"]),
        ({"rule": {"name": "decavg", "theta": 3}}, ["rule.theta", "rule decavg", "no settings"]),
        ({"dataset": "arrays"}, ["dataset arrays needs dataset.path"]),
        ({"topology": {"p": 0.3}}, ["topology has settings but no name"]),
        ({"rule": 5}, ["rule", "expected", "got 5"]),
        ({"model": []}, ["model", "got []"]),
        ({"model": {"name": "mlp", "sizes": ["a"]}}, ["model.sizes.0", "got 'a'"]),
        ({"nodes": 0}, ["nodes", "greater than or equal to 1", "got 0"]),
        ({"nodes": "many"}, ["nodes", "integer", "got 'many'"]),
        ({"lr": -1}, ["lr", "got -1"]),
        ({"momentum": 1}, ["momentum", "got 1"]),
        ({"merge_first": "perhaps"}, ["merge_first", "boolean"]),
        ({"methods": {"a": 3}}, ["methods.a", "got 3"]),
        ({"rule": {"name": "trimmed_mean", "share": 0.7}}, ["rule trimmed_mean", "0.7"]),
        ({"rule": "/nowhere/mine.py:Mine"}, ["no such file", "/nowhere/mine.py"]),
        ({"rule": "nowhere.module:Mine"}, ["cannot import 'nowhere.module'"]),
        ({"rule": "coterie.rules.median:Medain"}, ["Did you mean 'Median'?"]),
        ({"engine": {"name": "local", "mode": "fast"}}, ["engine.mode", "'auto', 'stack' or 'loop'"]),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], words: list[str]) -> None:
    complaint(ConfigError, lambda: Experiment(**settings), *words)


# What only shows when the world is built. The folder is free again afterwards.


def arrays(folder: Path) -> dict[str, Any]:
    """A data set in which class 1 has two samples."""
    import numpy as np

    x, y = np.random.default_rng(0).random((62, 4), np.float32), np.array([0] * 60 + [1] * 2)
    np.savez(folder / "rare.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return {"name": "arrays", "path": str(folder / "rare.npz")}


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        (GraphError, {"topology": {"name": "regular", "k": 3}, "nodes": 5}, ["nodes × k even", "got 5 × 3", "even"]),
        (GraphError, {"topology": {"name": "er", "p": 0.1}}, ["not connected", "components", "topology.connect"]),
        (DataError, {"total": 4}, ["too few samples for 6 nodes", "got 4", "fewer nodes"]),
        (DataError, {"nodes": 5000, "total": None}, ["too few samples for 5000 nodes"]),
        (DataError, {"dataset": "rare", "total": None, "partition": "iid_classes"}, ["class 1 has too few", "got 2"]),
        (DataError, {"dataset": "fashion-mnist", "data_dir": "/nowhere"}, ["/nowhere"]),
        (ConfigError, {"model": {"name": "cnn", "norm": "batch", "kernel": 3}, "mode": "stack"}, ["cannot be stacked"]),
    ],
)
def test_experiments_that_cannot_be_built_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[CoterieError],
    settings: dict[str, Any],
    words: list[str],
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    settings = dict(settings)
    if settings.get("dataset") == "rare":
        settings["dataset"] = arrays(tmp_path)
    if mode := settings.pop("mode", None):
        settings["engine"] = {**LOOP, "mode": mode}
    out = tmp_path / "x"
    complaint(kind, lambda: small(**settings).run().records, *words)
    complaint(kind, lambda: small(**settings).run(out).records, *words)
    assert not out.exists()
    assert_same(small(rounds=1).run(out).records, small(rounds=1).run().records)


def test_a_later_method_that_cannot_be_does_not_cost_the_earlier_one(tmp_path: Path) -> None:
    experiment = small(methods={"decavg": {}, "bad": {"topology": {"name": "regular", "k": 3}, "nodes": 5}})
    complaint(GraphError, lambda: experiment.run(tmp_path / "x").records)
    assert_same(records.load(tmp_path / "x"), small(methods=["decavg"]).run().records)


# Divergence.


def test_divergence_names_node_and_round_and_keeps_the_records(tmp_path: Path) -> None:
    experiment = small(lr=1e13, momentum=0.0, rounds=10, batches=1)
    text = complaint(DivergedError, lambda: experiment.run(tmp_path / "x").records, "of node ", "Lower --lr", "is kept")
    round = int(text.partition(" in round ")[2].partition(".")[0])
    kept = records.load(tmp_path / "x")
    assert round > 1
    assert set(kept["round"]) == set(range(round))
    assert kept["test_accuracy"].null_count() == 0
    complaint(DivergedError, lambda: runner.resume(tmp_path / "x").records, f"round {round}")
    assert records.load(tmp_path / "x").height == kept.height


def test_a_failure_of_a_users_own_rule_keeps_the_records(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from coterie.contract import Rule\n"
        "@dataclass(frozen=True)\n"
        "class Mine(Rule):\n"
        "    def merge(self, me, params, state, inbox):\n"
        "        if me.round == 3:\n"
        "            raise TypeError('a slip of the pen')\n"
        "        return inbox.mean('w', own=True), state\n"
    )
    experiment = small(rule=f"{tmp_path / 'mine.py'}:Mine")
    with pytest.raises(TypeError, match="a slip of the pen"):
        experiment.run(tmp_path / "x")
    assert set(records.load(tmp_path / "x")["round"]) == {0, 1, 2}


# Run directories.


def test_a_run_directory_that_exists(tmp_path: Path) -> None:
    frame = small().run(tmp_path / "x").records
    complaint(
        RunError, lambda: small(rounds=9).run(tmp_path / "x").records, "exists", str(tmp_path / "x"), "coterie resume"
    )
    assert records.load(tmp_path / "x").equals(frame)
    (tmp_path / "file").write_text("")
    complaint(RunError, lambda: small().run(tmp_path / "file").records, "exists")
    complaint(RunError, lambda: small().run(tmp_path / "file" / "x").records, "cannot write to")
    (tmp_path / "empty").mkdir()
    assert len(small(rounds=1).run(tmp_path / "empty").records)


def test_a_run_directory_in_use(tmp_path: Path) -> None:
    interrupted(small(), tmp_path / "x")
    with records.RunFolder(tmp_path / "x").lock():
        complaint(
            RunError, lambda: runner.resume(tmp_path / "x").records, "is being run by another process", "Wait for it"
        )
    assert_same(runner.resume(tmp_path / "x").records, small().run().records)


def test_what_goes_wrong_during_a_run_is_not_blamed_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = LocalSession.round

    def refuse(session: LocalSession, number: int, evaluate: bool) -> None:
        if number == 3:
            raise ConnectionRefusedError("somewhere else")
        go(session, number, evaluate)

    with monkeypatch.context() as patch:
        patch.setattr(LocalSession, "round", refuse)
        with pytest.raises(ConnectionRefusedError):
            runner.run(small(), tmp_path / "x")
    assert_same(runner.resume(tmp_path / "x").records, small().run().records)


def test_a_checkpoint_of_another_configuration(tmp_path: Path) -> None:
    interrupted(small(), tmp_path / "x")
    config = tmp_path / "x" / "config.toml"
    original = config.read_text()
    config.write_text(original.replace("batch_size = 8", "batch_size = 9"))
    assert config.read_text() != original
    before = sorted(tmp_path.glob("x/jobs/*/*/*"))
    complaint(RunError, lambda: runner.resume(tmp_path / "x").records, "another configuration", "Put the original")
    assert sorted(tmp_path.glob("x/jobs/*/*/*")) == before
    config.write_text(original)
    assert_same(runner.resume(tmp_path / "x").records, small().run().records)


@pytest.mark.parametrize("name", ["state.safetensors", "rows.parquet", "checkpoint.json"])
@pytest.mark.parametrize("damage", ["cut", "empty", "gone"])
def test_a_damaged_checkpoint(tmp_path: Path, name: str, damage: str) -> None:
    checkpoint = interrupted(small(), tmp_path / "x")
    file = checkpoint / name
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2] if damage == "cut" else b"")
    complaint(RunError, lambda: runner.resume(tmp_path / "x").records, str(checkpoint), "damaged", "Remove that folder")
    shutil.rmtree(checkpoint)
    assert_same(runner.resume(tmp_path / "x").records, small().run().records)


# The disk.


def safetensors_full(*_: Any, **__: Any) -> None:
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def polars_full(*_: Any, **__: Any) -> None:
    raise pl.exceptions.ComputeError("parquet: underlying IO error: No space left on device (os error 28)")


def checkpoint_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a checkpoint be due after every round."""
    monkeypatch.setattr(CheckpointClock, "due", lambda self: True)


@pytest.mark.parametrize(
    ("where", "name", "refuse"),
    [
        (files.FileSystem, "write", no_space),
        (files, "put", safetensors_full),
        (pl.DataFrame, "write_parquet", polars_full),
        (os, "replace", no_space),
        (os, "fsync", no_space),
        (files, "write", no_space),
    ],
)
def test_a_full_disk_leaves_the_earlier_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, refuse: Callable[..., None]
) -> None:
    checkpoint_every_round(monkeypatch)
    before: list[str] = []

    def fill() -> None:
        before.extend(p.parent.name for p in tmp_path.glob("x/jobs/*/round-*/checkpoint.json"))
        patch.setattr(where, name, refuse)

    with monkeypatch.context() as patch:
        act = lambda: runner.run(small(), tmp_path / "x", [At(4, fill)]).records  # noqa: E731
        complaint(RunError, act, "the disk is full", str(tmp_path / "x"), f"coterie resume {tmp_path / 'x'}")
    assert sorted(before) == ["round-000000002", "round-000000003"]
    kept = {p.name for p in tmp_path.glob("x/jobs/*/round-*")}
    assert "round-000000003" in kept <= {"round-000000002", "round-000000003", "round-000000004"}
    assert not list(tmp_path.glob("x/jobs/*/making*"))
    assert {0, 1, 2, 3} <= set(records.load(tmp_path / "x")["round"])
    assert_same(runner.resume(tmp_path / "x").records, small().run().records)


def test_a_full_disk_at_the_end_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        fill = At(6, lambda: patch.setattr(files, "write", no_space))
        complaint(RunError, lambda: runner.run(small(), tmp_path / "x", [fill]).records, "the disk is full")
    assert_same(runner.resume(tmp_path / "x").records, small().run().records)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=300k", "coterie-test", str(folder)]
    if mount is None or subprocess.run([mount, *options], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full(tiny_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint_every_round(monkeypatch)
    filler = tiny_disk / "filler"

    def fill() -> None:
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"0" * 512):
                pass

    out = tiny_disk / "x"
    complaint(
        RunError, lambda: runner.run(small(), out, [At(4, fill)]).records, "the disk is full", f"coterie resume {out}"
    )
    filler.unlink()
    assert sorted(p.name for p in out.glob("jobs/*/round-*")) == ["round-000000002", "round-000000003"]
    assert set(records.load(out)["round"]) == {0, 1, 2, 3}
    assert_same(runner.resume(out).records, small().run().records)


# Workers.


def test_a_worker_that_is_killed_ends_the_run_and_loses_nothing(tmp_path: Path) -> None:
    experiment = small(engine={**LOOP, "workers": 2})
    before = set(multiprocessing.active_children())

    def kill() -> None:
        (worker,) = set(multiprocessing.active_children()) - before
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()

    act = lambda: runner.run(experiment, tmp_path / "x", [At(3, kill)]).records  # noqa: E731
    complaint(RunError, act, "a worker process ended unexpectedly", "coterie resume")
    assert set(records.load(tmp_path / "x")["round"]) == {0, 1, 2, 3}
    assert_same(runner.resume(tmp_path / "x").records, experiment.run().records)


def test_a_job_that_diverges_does_not_stop_the_others(tmp_path: Path) -> None:
    wild = {"rule": "decavg", "optimiser": {"name": "sgd", "lr": 1e30}}
    experiment = small(methods={"wild": wild, "calm": {"rule": "decavg"}}, rounds=2)
    with pytest.raises(DivergedError, match="wild, seed 0: the parameters of node"):
        runner.run(experiment, tmp_path / "run")
    done = records.load(tmp_path / "run")
    assert done.filter(pl.col("method") == "calm")["round"].max() == 2


@pytest.mark.parametrize("setting", ["workers", "chunk"])
def test_negative_workers_or_chunks_are_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="at least 0"):
        small(engine={"name": "local", setting: -1})


def test_more_models_than_nodes_are_refused() -> None:
    mixed = [{"name": "mlp", "sizes": [8]}, {"name": "mlp", "sizes": [9]}, "logistic"]
    complaint(ConfigError, lambda: small(model=mixed, nodes=2, topology="line").run(), "at most 2", "--nodes")


def test_a_device_that_is_not_there_is_refused() -> None:
    complaint(ConfigError, lambda: small(engine={"name": "local", "device": "tpu9"}), "tpu9", "not to be had here")


def test_a_node_without_neighbours_has_no_distance_to_them() -> None:
    done = small(methods=["centralised"], rounds=1).run().records
    assert done["neighbourhood_distance"].null_count() == len(done)
    assert done["consensus_distance"].null_count() == 0


# Rules of a user's own.


@dataclass(frozen=True)
class Careless(Rule):
    """Gives back something else than it was asked for."""

    what: str = "flat"
    raw = True

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        rows = inbox.rows("w", own=True)
        given: Any = {"flat": (params[..., :3], state), "rows": (rows, state), "alone": params, "number": (0.0, state)}
        found: tuple[Tensor, State] = given[self.what]
        return found


@dataclass(frozen=True)
class CarelessOfAll(Careless):
    """The same with whole models."""

    span = "model"


@pytest.mark.parametrize("engine", [LOOP, "memory"], ids=["local", "memory"])
@pytest.mark.parametrize("kind", [Careless, CarelessOfAll])
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("flat", "expected parameters ["),
        ("rows", "Write everything over the last dimension"),
        ("number", "got a float"),
        ("alone", "expected parameters and memory, got ["),
    ],
)
def test_what_a_rule_gives_back_is_looked_at(engine: Any, kind: type[Careless], what: str, words: str) -> None:
    experiment = small(rule=kind(what), nodes=3, rounds=1, initialiser="common", engine=engine)
    complaint(ConfigError, lambda: experiment.run(progress=False), f"{kind.__name__}.merge: ", words)

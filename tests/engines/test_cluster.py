"""Simulations over workers that share no memory: plans, placement, checkpoints in shards, lost workers."""

import contextlib
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest
import torch

from coterie import processes, records
from coterie.app.cli import main
from coterie.engines import CheckpointClock
from coterie.engines.cluster import Cluster, ClusterSession
from coterie.errors import ConfigError, RunError
from coterie.runs import runner
from driving import agree, drive, session
from small import At, Noted, assert_close, happened, interrupted, small

TWO = {"name": "cluster", "workers": 2, "by": "processes", "mode": "loop"}


class TestPlans:
    @pytest.mark.parametrize(
        ("engine", "topology", "plan"),
        [("cluster", "star", "sums"), ("three", "complete", "transpose"), ("cluster", "ring", "halo")],
    )
    @pytest.mark.parametrize("rule", ["decavg", "cfa"])
    def test_the_cheapest_is_taken_and_changes_no_number(
        self, engine: str, topology: str, plan: str, rule: str
    ) -> None:
        found = drive(engine, rule=rule, topology=topology)
        running = session(engine)
        assert isinstance(running, ClusterSession)
        told = running.told()
        assert told["plan"] == plan
        assert told["rows"][plan] == min(told["rows"].values())
        agree(found, drive("memory", rule=rule, topology=topology))

    @pytest.mark.parametrize(
        ("rule", "topology"), [("median", "star"), ("dechw", "star"), ("cfa_ge", "star"), ("decdiff", "complete")]
    )
    def test_rules_that_need_more_than_a_sum_get_it(self, rule: str, topology: str) -> None:
        agree(drive("three", rule=rule, topology=topology), drive("memory", rule=rule, topology=topology))

    def test_float_buffers_are_averaged_in_sums_too(self) -> None:
        settings = {"topology": "star", "model": {"name": "cnn", "channels": [4], "norm": "batch"}, "batch_size": 8}
        agree(drive("cluster", **settings), drive("memory", **settings))

    @pytest.mark.parametrize("topology", ["star", "ring"])
    def test_bytes_on_the_wire_are_the_plans(self, topology: str) -> None:
        running = session("cluster")
        assert isinstance(running, ClusterSession)
        drive("cluster", topology=topology, rounds=1)
        before = running.models.planner.bytes
        running.told()
        running.round(2, False)
        planned, told = running.models.planner.bytes - before, running.told()
        assert told["wire_bytes"] == planned > 0
        row = 4 * running.models.layouts[0].size
        assert planned == row * told["rows"][told["plan"]]


class TestCheckpoints:
    def test_another_number_of_workers_goes_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = {"engine": {**TWO, "workers": 0}, "keep_optimiser": True}
        monkeypatch.setattr(processes, "cores_here", lambda: 2)
        checkpoint = interrupted(small(**settings), tmp_path / "x")
        assert len(list(checkpoint.glob("shard-*"))) == 2
        monkeypatch.setattr(processes, "cores_here", lambda: 3)
        again = runner.resume(tmp_path / "x")
        straight = small(keep_optimiser=True).run()
        assert_close(again.records, straight.records)
        models, wanted = again.models(), straight.models()
        for node, model in models.items():
            torch.testing.assert_close(model.row, wanted[node].row, rtol=1e-4, atol=1e-4)

    def test_a_damaged_shard_is_noticed(self, tmp_path: Path) -> None:
        checkpoint = interrupted(small(engine=TWO), tmp_path / "x")
        shard = checkpoint / "shard-00001.safetensors"
        content = bytearray(shard.read_bytes())
        content[-3] ^= 1
        shard.write_bytes(content)
        with pytest.raises(RunError, match="damaged"):
            runner.resume(tmp_path / "x")


class TestLosses:
    @pytest.mark.parametrize("kept", [True, False])
    def test_a_killed_worker_costs_no_record(self, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(CheckpointClock, "due", lambda self: True)
        noted, killed, before = Noted(), list[int](), {p.pid for p in multiprocessing.active_children()}

        def kill() -> None:
            if not killed:
                killed.append([p.pid for p in multiprocessing.active_children() if p.pid not in before][-1])
                os.kill(killed[0], signal.SIGKILL)

        out = tmp_path / "x" if kept else None
        found = runner.run(small(engine=TWO), out, [At(3, kill), noted]).records
        assert_close(found, small().run().records)
        said = [e["text"] for e in noted.named("warning") if "lost" in e["text"]]
        assert len(said) == 1
        assert "going on from round" in said[0]
        if out:
            rounds = [data["round"] for name, data in happened(out) if name == "round"]
            assert rounds == [1, 2, 3, 4, 5, 6]

    def test_a_worker_that_dies_again_and_again_ends_the_run(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(
            "import os\nfrom dataclasses import dataclass\nfrom coterie.contract import Rule\n\n\n"
            "@dataclass(frozen=True)\nclass Deadly(Rule):\n    def merge(self, me, params, state, inbox):\n"
            "        os.kill(os.getpid(), 9)\n        return params, state\n"
        )
        with pytest.raises(RunError, match=r"worker \d on .* was lost while merging at .* time in a row"):
            small(engine=TWO, rule=f"{tmp_path / 'mine.py'}:Deadly").run()

    def test_out_of_memory_says_where_and_what_to_do(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(
            "from dataclasses import dataclass\nfrom coterie.contract import Rule\n\n\n"
            "@dataclass(frozen=True)\nclass Greedy(Rule):\n    def merge(self, me, params, state, inbox):\n"
            "        return params.new_empty(2**55), state\n"
        )
        with pytest.raises(RunError, match=r"worker \d on .* is out of memory, merging at .*fewer workers"):
            small(engine=TWO, rule=f"{tmp_path / 'mine.py'}:Greedy").run()


class TestWords:
    def test_where_nodes_are_is_told_and_recorded(self, tmp_path: Path) -> None:
        noted = Noted()
        runner.run(small(engine=TWO, rounds=1), tmp_path / "x", [noted])
        said = " ".join(e["text"] for e in noted.named("warning"))
        assert "2 workers on 1 machine" in said
        assert "nodes placed by metis: 2 of 6 links" in said
        (plan,) = records.environment(tmp_path / "x")["jobs"].values()
        assert plan["placement"] == {"by": "metis", "cut": 2, "links": 6}
        (exchange,) = [data for name, data in happened(tmp_path / "x") if name == "exchange"]
        assert exchange["plan"] == "halo"
        assert len(exchange["workers"]) == 2

    def test_a_model_that_cannot_fit_is_refused_before_anything_starts(self) -> None:
        with pytest.raises(ConfigError, match=r"do not fit into the memory of .*: expected up to 9.5 kB, got \d+ kB"):
            small(engine={**TWO, "memory": 1e-5}).run()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--engine.by", "processes", "--engine.workers", "7"], "more workers than nodes: expected up to 6, got 7"),
        (["--engine.by", "torchrun"], "was not started by torchrun"),
        (["--engine.address", "127.0.0.1:9"], "there is no Ray at 127.0.0.1:9"),
        (["--engine.address", "nowhere"], "no address of a Ray cluster"),
        (["--engine.workers", "-1"], "at least 0"),
        (["--engine.device", "kuda"], "device 'kuda' is not to be had here"),
    ],
)
def test_what_cannot_be_is_one_line(
    flags: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [
        "run",
        "--rule",
        "decavg",
        "--nodes",
        "6",
        "--rounds",
        "1",
        "--engine",
        "cluster",
        "--out",
        str(tmp_path / "x"),
    ]
    assert main([*run, "--dataset", "digits", "--model", "logistic", *flags]) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "x").exists()


def test_who_listens_but_is_no_ray_is_said() -> None:
    """Ray itself would try for a quarter of an hour."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    door.accept()[0].sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        address = f"127.0.0.1:{door.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"there is no Ray at {address} .*ray start --head"):
            Cluster(address=address).open()


def test_ray_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'coterie\[cluster\]'"):
        Cluster().open()


@pytest.mark.parametrize(
    ("lacking", "words"),
    [
        ("version", "has another version of coterie: expected [0-9.]+, got 0.0.1. Install coterie=="),
        ("data", "no samples: expected a folder with samples, got .*/nowhere. Copy them there."),
    ],
)
def test_what_one_machine_lacks_is_one_line(lacking: str, words: str, tmp_path: Path) -> None:
    """Two processes as torchrun starts them, on machines of which the second is not as it should be."""
    (tmp_path / "sitecustomize.py").write_text("from coterie import version\n\nversion.__version__ = '0.0.1'\n")
    (tmp_path / "mine.py").write_text(
        "from coterie.datasets.digits import digits\nfrom coterie.errors import DataError\n\n\n"
        "def shelf(folder):\n    if not (folder / 'samples').is_dir():\n        "
        "raise DataError('no samples', expected='a folder with samples', got=folder, cure='Copy them there.')\n"
        "    return digits(folder)\n"
    )
    (tmp_path / "here" / "samples").mkdir(parents=True)
    (tmp_path / "nowhere").mkdir()
    settings = {"engine": {"name": "cluster", "mode": "loop"}, "dataset": f"{tmp_path / 'mine.py'}:shelf"}
    (tmp_path / "small.toml").write_text(small(rounds=1, **settings).to_toml())
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = str(door.getsockname()[1])
    here = {"COTERIE_DATA": str(tmp_path / "here"), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared = {**os.environ, **here, "WORLD_SIZE": "2"}
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    other = {"version": {"PYTHONPATH": path}, "data": {"COTERIE_DATA": str(tmp_path / "nowhere")}}[lacking]
    run = [sys.executable, "-m", "coterie", "run", str(tmp_path / "small.toml"), "--out", str(tmp_path / "x")]
    second = subprocess.Popen(run, env={**shared, "RANK": "1", **other}, stdout=subprocess.DEVNULL)
    try:
        first = subprocess.run(run, env={**shared, "RANK": "0"}, capture_output=True, text=True, timeout=300)
        assert second.wait(60) == 0
    finally:
        second.kill()
    assert first.returncode == 2
    (line,) = [line for line in first.stderr.splitlines() if line.startswith("coterie: ")]
    assert re.search(f"worker 1 on .*{words}", line)
    assert "Traceback" not in first.stderr
    assert not (tmp_path / "x").exists()


def test_within_torchrun(tmp_path: Path) -> None:
    """The same command in two processes, one of which dies once: one run, and its records are the local engine's."""
    (tmp_path / "mine.py").write_text(
        "import os\nfrom dataclasses import dataclass\nfrom pathlib import Path\n"
        "from coterie.rules.decavg import DecAvg\n\n\n@dataclass(frozen=True)\nclass Mortal(DecAvg):\n"
        "    where: str = ''\n\n    def merge(self, me, params, state, inbox):\n        there = Path(self.where)\n"
        "        if os.environ.get('RANK') == '1' and there.exists():\n            there.unlink()\n"
        "            os.kill(os.getpid(), 9)\n        return super().merge(me, params, state, inbox)\n"
    )
    (tmp_path / "alive").touch()
    rule = {"name": f"{tmp_path / 'mine.py'}:Mortal", "where": str(tmp_path / "alive")}
    engine = {"name": "cluster", "mode": "loop"}
    (tmp_path / "small.toml").write_text(small(engine=engine, rounds=3, rule=rule).to_toml())
    run = ["-m", "coterie", "run", str(tmp_path / "small.toml"), "--out", str(tmp_path / "x")]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*torchrun, "--max-restarts", "1", *run], check=True, capture_output=True, timeout=300)
    assert not (tmp_path / "alive").exists()
    wanted = small(rounds=3).run().records.with_columns(method=pl.lit("mortal"))
    assert_close(records.load(tmp_path / "x"), wanted)
    (plan,) = records.environment(tmp_path / "x")["jobs"].values()
    assert plan["workers"] == 2

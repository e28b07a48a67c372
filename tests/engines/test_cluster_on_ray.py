"""The cluster engine on Ray: two raylets on this machine. One Ray serves all tests here."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import ray
from ray.cluster_utils import Cluster as RayCluster

from coterie import records
from coterie.app.cli import main
from coterie.engines import CheckpointClock
from coterie.errors import ConfigError
from coterie.records import Event
from coterie.runs import runner
from small import At, Noted, assert_close, interrupt, small


@pytest.fixture(scope="module")
def rays() -> Iterator[RayCluster]:
    """A Ray of two machines with one CPU each, as far as Ray can tell."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    quiet = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 << 20}
    cluster = RayCluster(initialize_head=True, head_node_args=quiet)
    cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def engine(cluster: RayCluster, **settings: Any) -> dict[str, Any]:
    return {"name": "cluster", "address": cluster.address, "mode": "loop", **settings}


def test_too_few_cpus_are_said(rays: RayCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = ["--engine", "cluster", "--engine.address", rays.address, "--engine.workers", "3"]
    run = ["run", "--rule", "decavg", "--nodes", "6", "--dataset", "digits", "--model", "logistic"]
    assert main([*run, *said, "--out", str(tmp_path / "x")]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert "Ray has not enough to give: expected 3 workers of 1 CPU, got 2" in told[0]


def test_gpus_that_nobody_has_are_said(rays: RayCluster) -> None:
    with pytest.raises(ConfigError, match=r"expected 1 worker of 1 CPU and 0.5 GPU, got 0\. Add machines"):
        small(engine=engine(rays, workers=1, gpus=0.5)).run()


def test_two_raylets_give_the_same_records(rays: RayCluster, tmp_path: Path) -> None:
    noted = Noted()
    found = runner.run(small(engine=engine(rays)), tmp_path / "x", [noted]).records
    assert_close(found, small().run().records)
    assert sum("2 workers on" in e["text"] for e in noted.named("warning")) == 1


class TestRunsAllOverACluster:
    """Sweeps and studies hand whole runs to a cluster's machines."""

    GRID: ClassVar[dict[str, Any]] = {"rule": ["decavg", "isolation"]}

    @pytest.mark.parametrize("seen", [True, False])
    def test_a_sweep_brings_what_it_does_on_one_machine(self, rays: RayCluster, tmp_path: Path, seen: bool) -> None:
        """Whether machines see its folder, or send what they have written there."""
        noted = Noted()

        class Hidden:
            def event(self, event: Event) -> None:
                if not seen and "at a time" in str(event.get("text")):
                    (tmp_path / "x" / "tasks" / "token").unlink()

        spread = small(rounds=2, engine={"name": "cluster", "address": rays.address})
        found = spread.sweep(self.GRID, tmp_path / "x", seeds=(0, 1), observers=[Hidden(), noted])
        cells = [small(rounds=2, rule=rule, seeds=(0, 1)).run().records for rule in self.GRID["rule"]]
        assert_close(found.records.drop("rule"), records.together(cells))
        assert sum(e.get("how") == "done" for e in noted.named("end")) == 4
        assert any("2 at a time" in e["text"] for e in noted.named("warning"))
        assert not (tmp_path / "x" / "tasks" / "token").exists()

    def test_a_process_that_is_lost_costs_no_run(self, rays: RayCluster, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(
            "import os\nfrom pathlib import Path\nfrom dataclasses import dataclass\n"
            "from coterie.contract import Rule\n\n\n@dataclass(frozen=True)\nclass Deadly(Rule):\n"
            "    where: str = ''\n\n"
            "    def merge(self, me, params, state, inbox):\n        there = Path(self.where)\n"
            "        if there.exists():\n            there.unlink()\n            os.kill(os.getpid(), 9)\n"
            "        return params, state\n"
        )
        (tmp_path / "alive").touch()
        rule = {"name": f"{tmp_path / 'mine.py'}:Deadly", "where": str(tmp_path / "alive")}
        noted = Noted()
        spread = small(rounds=2, rule=rule, engine={"name": "cluster", "address": rays.address})
        found = spread.sweep({"batches": [1, 2]}, tmp_path / "x", observers=[noted])
        assert sum("lost; it goes on elsewhere" in e["text"] for e in noted.named("warning")) == 1
        assert found.records.filter(found.records["round"] == 2).height == 12

    def test_interrupted_runs_stop_after_their_round_and_go_on(self, rays: RayCluster, tmp_path: Path) -> None:
        long = small(rounds=300, evaluate=300, engine={"name": "cluster", "address": rays.address})
        with pytest.raises(KeyboardInterrupt):
            long.sweep({"rule": ["decavg"]}, tmp_path / "x", observers=[At(1, interrupt)])
        (kept,) = (tmp_path / "x").glob("tasks/*/jobs/decavg-0/round-*")
        assert int(kept.name.removeprefix("round-")) < 300
        noted = Noted()
        found = long.sweep({"rule": ["decavg"]}, tmp_path / "x", observers=[noted])
        assert [e["round"] for e in noted.named("begin") if "round" in e.data] == [int(kept.name[6:])]
        assert found.records["round"].max() == 300

    def test_two_ways_at_once_are_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run = ["sweep", "--grid", "rule=decavg", "--engine", "cluster", "--cluster", "slurm"]
        assert main([*run, "--out", str(tmp_path / "x")]) == 2
        assert "two ways" in capsys.readouterr().err


def test_a_machine_that_is_lost_costs_no_record(
    rays: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers, one on each raylet; one raylet is killed with all that it has, and the other goes on alone."""
    monkeypatch.setattr(CheckpointClock, "due", lambda self: True)
    noted, killed = Noted(), list[int]()

    def kill() -> None:
        if not killed:
            (node,) = rays.worker_nodes
            raylet = node.all_processes["raylet"][0].process.pid
            found = subprocess.run(["pgrep", "-P", str(raylet)], capture_output=True, text=True, check=True)
            killed.extend([raylet, *map(int, found.stdout.split())])
            for process in killed:
                os.kill(process, signal.SIGKILL)

    found = runner.run(small(engine=engine(rays)), tmp_path / "x", [At(3, kill), noted]).records
    assert_close(found, small().run().records)
    said = [e["text"] for e in noted.named("warning")]
    assert sum("2 workers on" in text for text in said) == 1
    assert sum("going on from round" in text and "with 1 worker" in text for text in said) == 1
    assert sum("lost" in text for text in said) == 1
    assert rays.head_node.all_processes["raylet"][0].process.poll() is None  # what was joined is still there

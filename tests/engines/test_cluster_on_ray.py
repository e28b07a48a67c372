"""The cluster engine on Ray: two raylets on this machine. One Ray serves all tests here."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster as RayCluster

from coterie.app.cli import main
from coterie.runs import runner
from small import Noted, assert_close, small


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


def test_two_raylets_give_the_same_records(rays: RayCluster, tmp_path: Path) -> None:
    noted = Noted()
    found = runner.run(small(engine=engine(rays)), tmp_path / "x", [noted]).records
    assert_close(found, small().run().records)
    assert sum("2 workers on" in e["text"] for e in noted.named("warning")) == 1

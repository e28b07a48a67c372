"""Runs whose parts are Python objects: in worker processes, resumed, and where they cannot go."""

import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from torch import Tensor, nn

import coterie
from coterie import Experiment
from coterie.contract import Inbox, Me, Rule, State
from coterie.errors import ConfigError
from coterie.runs.runner import Interrupted
from small import At, Noted, assert_same, interrupt, small

X = np.random.default_rng(0).normal(size=(120, 6)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)


def parts() -> dict[str, Any]:
    """Things that no other process could import."""

    class Net(nn.Module):
        def __init__(self, classes: int) -> None:
            super().__init__()
            self.layer = nn.Linear(6, classes)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(x)
            return out

    @dataclass(frozen=True)
    class Lazy(Rule):
        """Take half a step towards the average."""

        share: float = 0.5

        def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
            merged, state = super().merge(me, params, state, inbox)
            return params + self.share * (merged - params), state

    def loss(out: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(out, target, reduction="none")

    return {"model": Net, "rule": Lazy, "objective": loss, "dataset": (X, Y), "topology": nx.cycle_graph(5)}


def experiment(**more: Any) -> Experiment:
    return Experiment(**parts(), rounds=4, evaluate=1, partition="iid", batch_size=8, **more)


def engine(workers: int) -> dict[str, Any]:
    return {"name": "local", "workers": workers, "mode": "loop"}


def assert_close(left: pl.DataFrame, right: pl.DataFrame) -> None:
    told = ("method", "round", "node", "sent_bytes", "test_accuracy", "test_loss", "validation_loss")
    assert_frame_equal(left.select(told), right.select(told), abs_tol=1e-5)


def test_worker_processes_get_the_same_objects() -> None:
    one, two = (experiment(engine=engine(workers)).run().records for workers in (1, 2))
    assert_close(one, two)


def test_stacked_rows_and_loops_agree() -> None:
    stacked = {**engine(1), "mode": "stack", "chunk": 3}
    assert_close(experiment(engine=engine(1)).run().records, experiment(engine=stacked).run().records)


def test_the_folder_keeps_the_texts(tmp_path: Path) -> None:
    experiment(engine=engine(1)).run(tmp_path / "x")
    kept = {path.name.partition("-")[0]: path.read_text() for path in (tmp_path / "x" / "parts").iterdir()}
    assert set(kept) == {"Net", "Lazy", "loss"}
    assert kept["Net"].startswith("class Net(nn.Module):")


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        experiment(engine=engine(1)).run(tmp_path / "x", observers=[At(2, interrupt, "lazy")])
    assert_same(coterie.resume(tmp_path / "x").records, experiment(engine=engine(1)).run().records)


SCRIPT = """
import os, signal, sys
from pathlib import Path
import coterie
from coterie.errors import CoterieError
from torch import nn

class Net(nn.Module):
    def __init__(self, classes: int{more}) -> None:
        super().__init__()
        self.layer = nn.Linear(64, classes)

    def forward(self, x):
        return self.layer(x.flatten(1))

out, stop = Path(sys.argv[1]), sys.argv[2] == "begin"

class Stop:
    def event(self, event):
        if stop and event.name == "round" and event.get("round") == 2:
            os.kill(os.getpid(), signal.SIGINT)

if stop:
    try:
        engine = {{"name": "local", "workers": 2}}
        coterie.Experiment(model=Net, rounds=4, nodes=4, engine=engine).run(out, observers=[Stop()])
    except CoterieError:
        pass
else:
    print(coterie.resume(out, parts=[Net]).records["round"].max())
"""


def test_another_process_asks_for_the_same_objects(tmp_path: Path) -> None:
    def call(*arguments: str, more: str = "") -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(SCRIPT.format(more=more))
        return subprocess.run(
            [sys.executable, str(tmp_path / "script.py"), *arguments], capture_output=True, text=True, check=False
        )

    out = str(tmp_path / "x")
    assert call(out, "begin").returncode == 0
    with pytest.raises(ConfigError, match=r"Net was given as a Python object.*coterie.resume\(folder, parts=\[Net\]\)"):
        coterie.resume(out)
    changed = call(out, "go on", more=", hidden: int = 3")
    assert "Net is not the one that this run began with" in changed.stderr
    assert call(out, "go on").stdout.strip() == "4"


def test_what_cannot_go_elsewhere_is_computed_here() -> None:
    lock, noted = threading.Lock(), Noted()

    def guarded(out: Tensor, target: Tensor) -> Tensor:
        with lock:
            return nn.functional.cross_entropy(out, target, reduction="none")

    settings = {"rounds": 2, "nodes": 3, "topology": "ring", "objective": guarded}
    run = small(**settings, engine=engine(2)).run(observers=[noted])
    assert run.records["round"].max() == 2
    told = [str(event.get("text")) for event in noted.named("warning")]
    assert any("all nodes are computed in this process: guarded: cannot pickle" in text for text in told)


def test_peers_read_files_and_say_so() -> None:
    with pytest.raises(ConfigError, match=r"is a Python object, which peers cannot read. Put it into a file"):
        experiment(engine="peer").run()


def test_in_memory_peers_take_objects() -> None:
    assert_close(experiment(engine=engine(1)).run().records, experiment(engine="memory").run().records)


def test_models_of_a_run_are_the_user_s_own(tmp_path: Path) -> None:
    run = experiment(engine=engine(1)).run(tmp_path / "x")
    assert type(run.model(node=3)).__name__ == "Net"
    assert run.model(node=3)(torch.zeros(2, 6)).shape == (2, 3)

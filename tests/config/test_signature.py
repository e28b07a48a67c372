"""Editors and type checkers know every setting of an experiment, and what it takes."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAD = """
import networkx as nx
import numpy as np
import polars as pl
import torch
from torch import Tensor, nn
import coterie
from coterie import Experiment
from coterie.records import Moment
from coterie.rules.decdiff import DecDiff

class Net(nn.Module):
    pass

def loss(out: Tensor, target: Tensor) -> Tensor:
    return (out - target).abs()

class Mine(coterie.Watcher):
    def on_round(self, now: Moment) -> None:
        print(now.records.height, now.models[0].module())

x, y = np.zeros((4, 2)), np.zeros(4)
"""
SOUND = """
Experiment(rule=DecDiff(s=2.0), model=Net, dataset=(x, y), objective=loss, metrics=["accuracy", loss])
Experiment(rule=DecDiff, model=nn.Linear(2, 2), topology=nx.cycle_graph(4), partition=[[0, 1], [2, 3]])
Experiment(rule="decavg", model=[Net, "mlp"], dataset=pl.DataFrame({"label": y}), topology=np.eye(3), seeds="0-3")
Experiment(methods=["decavg"], optimiser={"name": "sgd", "lr": 0.1}, engine="memory")
Experiment.from_toml("a.toml").run("runs/x", [Mine()]).model(node=2).eval()
coterie.open("runs/x").resume().report().read_text()
"""
UNSOUND = {
    'Experiment(roundz=3)  # "roundz"': "",
    'Experiment(rounds="many")': "rounds",
    "Experiment(rule=3.5)": "rule",
    "Experiment(rule=Net)": "rule",
    "Experiment(model=3)": "model",
    "Experiment(topology=4)": "topology",
    "Experiment(batch_size=None)": "batch_size",
}


def test_a_type_checker_tells_right_from_wrong(tmp_path: Path) -> None:
    """With the options of `make check`, whose cache it shares."""
    script = tmp_path / "script.py"
    script.write_text(HEAD + SOUND + "\n".join(UNSOUND) + "\n")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(script)]
    known = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=known)
    assert not told.stderr
    wrong = {int(line) for line in re.findall(r"script\.py:(\d+): error", told.stdout)}
    first = (HEAD + SOUND).count("\n") + 1
    assert wrong == set(range(first, first + len(UNSOUND))), told.stdout
    for line, (_, word) in enumerate(UNSOUND.items(), first):
        assert re.search(rf"script\.py:{line}: error: .*{word}", told.stdout)

"""Each node's best model, kept beside its last: the same in every engine, in checkpoints, and exported."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie
from coterie import Experiment
from coterie.app.cli import main
from coterie.errors import RunError
from coterie.node.bests import BEST, hold
from coterie.runs.run import Run
from coterie.runs.runner import Interrupted
from small import At, interrupt

X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
TEST = np.random.default_rng(1).normal(size=(90, 5)).astype(np.float32)
TRUE = (TEST[:, 0] + TEST[:, 1] > 0).astype(np.int64)


def erratic(engine: Any = "memory", **more: Any) -> Experiment:
    """Training that gets better and worse."""
    rate = {"name": "sgd", "lr": 3.0, "momentum": 0.9}
    given = {"dataset": (X, Y, TEST, TRUE), "partition": "iid", "topology": "ring", "optimiser": rate, "validation": 0}
    return Experiment(**given, nodes=3, rounds=9, evaluate=1, engine=engine, keep_models="best", **more)


def accuracy(run: Run, node: int) -> float:
    with torch.no_grad():
        said = run.model(node=node, best=True)(torch.tensor(TEST)).argmax(-1)
    return float((said == torch.tensor(TRUE)).float().mean())


def test_the_best_is_the_one_that_was_judged_best() -> None:
    run = erratic().run(progress=False)
    for node in range(3):
        judged = run.records.filter(run.records["node"] == node)["test_accuracy"]
        assert accuracy(run, node) == pytest.approx(judged.max())
    last = run.records.filter(run.records["round"] == 9)["test_accuracy"]
    assert last.mean() < np.mean([accuracy(run, node) for node in range(3)])  # type: ignore[operator]


def test_every_engine_keeps_the_same(tmp_path: Path) -> None:
    ways = [{"name": "local", "workers": 1, "mode": "loop"}, {"name": "local", "workers": 1, "mode": "stack"}]
    alone = erratic().run(progress=False).models()
    for way in ways:
        kept = erratic(way).run(progress=False).models()
        assert all(torch.allclose(kept[n].best.row, alone[n].best.row, atol=1e-4) for n in range(3))


def test_a_run_that_goes_on_knows_the_best_before(tmp_path: Path) -> None:
    local = {"name": "local", "workers": 1, "mode": "loop"}
    whole = erratic(local).run(tmp_path / "whole", progress=False).models()
    with pytest.raises(Interrupted):
        erratic(local).run(tmp_path / "parts", [At(5, interrupt)], progress=False)
    kept = coterie.resume(tmp_path / "parts").models()
    assert all(torch.equal(kept[n].best.row, whole[n].best.row) for n in range(3))


def test_it_is_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    erratic().run(tmp_path / "run", progress=False)
    file = tmp_path / "best.safetensors"
    assert main(["export", str(tmp_path / "run"), str(file), "--node", "1", "--best"]) == 0
    assert file.is_file()
    capsys.readouterr()
    erratic().model_copy(update={"keep_models": True}).run(tmp_path / "last", progress=False)
    with pytest.raises(RunError, match=r'node 1 has kept no best. .*keep_models = "best"'):
        coterie.open(tmp_path / "last").model(node=1, best=True)


def test_less_is_better_for_losses_and_nothing_is_for_what_is_not_finite() -> None:
    notes: dict[str, torch.Tensor] = {}
    for worth in (-3.0, -2.0, -2.5, float("nan")):
        hold(notes, torch.tensor([worth]), worth)
    assert notes[BEST].tolist() == [-2.0]
    run = erratic(metrics=["loss"]).run(progress=False)
    judged = run.records.filter(run.records["node"] == 0)["test_loss"]
    with torch.no_grad():
        said = run.model(best=True)(torch.tensor(TEST))
    assert float(torch.nn.functional.cross_entropy(said, torch.tensor(TRUE))) == pytest.approx(judged.min(), rel=1e-4)

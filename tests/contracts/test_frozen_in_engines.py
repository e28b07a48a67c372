"""Only trainable parameters travel: what a model has frozen is alike everywhere, stays as it is, and costs no byte."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import own_frozen
import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from coterie import records
from coterie.app.cli import main
from coterie.errors import RunError
from coterie.initialisers import Origin
from coterie.initialisers.default import default
from coterie.net.agreement import disagreement
from coterie.node.architecture import Architecture
from coterie.node.node import trainers
from coterie.parts import chosen
from coterie.peers.runtime import PeerRuntime
from coterie.runs.experiment import Experiment
from driving import agree, drive, job
from peering import peer_configs, run, together
from small import LOOP

OWN = Path(__file__).parent / "own_frozen.py"
WHOLE: dict[str, Any] = {"model": f"{OWN}:half_frozen", "lr": 0.1, "partition": "iid"}
PLAIN: dict[str, Any] = {"model": {"name": f"{OWN}:half_frozen", "plain": True}, "lr": 0.1}
GIVEN: dict[str, Any] = {"model": f"{OWN}:begins_as_given", "lr": 0.1}
HEAD, NORM = 12 * 10 + 10, 2 * 12


@pytest.mark.parametrize("engine", ["loop", "two"])
def test_same_numbers_with_batch_norm_and_dropout_in_the_frozen_part(engine: str) -> None:
    here = drive(engine, **WHOLE)
    agree(here, drive("memory", **WHOLE))
    assert here.models[0].numel() == HEAD + NORM + NORM  # parameters of head and norm, and the norm's statistics
    assert here.integers[0].numel() == 1


@pytest.mark.parametrize("engine", ["stack", "workers"])
def test_same_numbers_stacked(engine: str) -> None:
    agree(drive(engine, **PLAIN), drive("memory", **PLAIN))


def test_bytes_are_those_of_the_head() -> None:
    ended = drive("loop", rounds=2, topology="ring", **PLAIN)
    assert set(ended.ledger["sent_bytes"]) == {2 * 2 * 4 * HEAD}


def test_peers_come_to_the_same_numbers(tmp_path: Path) -> None:
    settings = {"nodes": 3, "rounds": 2, "batches": 2, "topology": "complete", "evaluate": 1, **WHOLE}
    simulated = Experiment(**settings, engine=LOOP).run().records.sort("round", "node")
    found = run(together(peer_configs(Experiment(**settings), tmp_path), in_turn=True))
    np.testing.assert_allclose(found["test_loss"], simulated["test_loss"], rtol=1e-4)
    assert found["sent_bytes"].to_list() == simulated["sent_bytes"].to_list()


def test_frozen_parts_stay_in_evaluation_and_as_they_are() -> None:
    (trainer,) = trainers(job(**WHOLE), np.arange(6))
    module = trainer.architecture.module
    before = [t.clone() for t in (*module.eyes.parameters(), *module.eyes.buffers())]
    trainer.train_row(0, 1)
    assert module.training
    assert not any(part.training for part in module.eyes.modules())
    after = [*module.eyes.parameters(), *module.eyes.buffers()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("initialiser", ["default", "he", "glorot", "common", "gain"])
@pytest.mark.parametrize("world", [PLAIN, GIVEN], ids=["frozen", "given"])
def test_initialisers_leave_frozen_and_given_weights_alone(initialiser: str, world: dict[str, Any]) -> None:
    (trainer,) = trainers(job(**world, initialiser=initialiser), np.arange(6))
    wanted = own_frozen.Net((1, 8, 8), 10, True)
    for row in range(6):
        trainer.point(row)
        assert torch.equal(trainer.architecture.module.eyes[1].weight, wanted.eyes[1].weight)
        assert not torch.equal(trainer.architecture.module.head.weight, wanted.head.weight)


def test_a_frozen_tensor_of_a_layer_that_is_drawn_stays() -> None:
    """As where biases alone are trained."""
    layer = torch.nn.Linear(3, 2)
    layer.weight.requires_grad_(False)
    before, bias = layer.weight.clone(), layer.bias.clone()
    default(layer, Origin(0, 0, 1.0))
    assert torch.equal(layer.weight, before)
    assert not torch.equal(layer.bias, bias)


def test_equal_frozen_weights_are_held_once_in_a_process() -> None:
    made = [Architecture("net", own_frozen.half_frozen((4,), 3)) for _ in range(3)]
    assert len({a.module.eyes[1].weight.data_ptr() for a in made}) == 1
    assert len({a.module.head.weight.data_ptr() for a in made}) == 3
    twin = made[0].twin(torch.device("cpu"))
    assert twin.module.eyes[1].weight.data_ptr() == made[0].module.eyes[1].weight.data_ptr()
    assert twin.module.head.weight.data_ptr() != made[0].module.head.weight.data_ptr()


@pytest.mark.parametrize("world", [PLAIN, GIVEN], ids=["frozen", "given"])
def test_peers_with_other_frozen_weights_refuse_each_other(
    world: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = peer_configs(Experiment(nodes=2, topology="complete", **world), tmp_path)
    mine, same = (PeerRuntime(config).agreement.hello("", 0, False) for config in (first, second))
    assert disagreement(mine, same) is None
    monkeypatch.setattr(_module_of(world), "DRAW", 1)
    other = PeerRuntime(second).agreement.hello("", 0, False)
    assert (disagreement(mine, other) or "").startswith("frozen or given weights of ")


def _module_of(world: dict[str, Any]) -> Any:
    return sys.modules[chosen("models", world["model"]).part.target.__module__]


def test_a_kept_model_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a module, and as a file that needs nothing else."""
    settings = {"nodes": 2, "rounds": 1, "batches": 1, "topology": "complete", "engine": LOOP, **WHOLE}
    Experiment(**settings).run(tmp_path / "run")
    model = records.RunFolder(tmp_path / "run").models("decavg", 0)[1]
    x = torch.rand(3, 1, 8, 8)
    export = ["export", str(tmp_path / "run"), str(tmp_path / "one.safetensors"), "--node", "1"]
    assert main(export) == 2  # it is a part of one's own, whose code would run
    assert "say --build." in capsys.readouterr().err
    assert main([*export, "--build"]) == 0
    empty = own_frozen.Net((1, 8, 8), 10, False)
    empty.load_state_dict(load_file(tmp_path / "one.safetensors"), strict=True)
    torch.testing.assert_close(empty.eval()(x), model.module()(x))
    monkeypatch.setattr(_module_of(WHOLE), "DRAW", 1)
    with pytest.raises(RunError, match=r"other frozen or given weights than when it was trained"):
        model.module()


def test_something_is_learnt_through_the_head_alone() -> None:
    settings = {"nodes": 4, "rounds": 6, "epochs": 3, "topology": "ring", "engine": LOOP, "evaluate": 6}
    frame = Experiment(**settings, **PLAIN, partition="iid").run().records
    start, end = (frame.filter(pl.col("round") == r)["test_accuracy"].mean() for r in (0, 6))
    assert end > 0.6 > start  # type: ignore[operator]

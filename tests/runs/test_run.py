"""A run in hand: its table and curves, and its models as modules and as files."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import coterie
from coterie.app.cli import main
from coterie.errors import ConfigError, RunError
from coterie.runs import runner
from driving import samples
from small import At, interrupt, small

KINDS = {"model": [{"name": "mlp", "sizes": [8]}, "logistic"], "rounds": 2, "protocol": "aggregator"}


def accuracy(module: torch.nn.Module) -> float:
    data = samples()
    everything = torch.arange(len(data.test_y))
    with torch.no_grad():
        said = module(data.inputs(everything, test=True)).argmax(-1)
    return float((said == data.test_y).float().mean())


@pytest.mark.parametrize("engine", [{"name": "local", "workers": 1, "mode": "loop"}, "memory", {"name": "peer"}])
def test_models_come_out_as_they_were_measured(engine: object, tmp_path: Path) -> None:
    run = small(**KINDS, nodes=4, topology="star", test_share=1.0, engine=engine).run(tmp_path / "x")
    last = run.records.filter(run.records["round"] == 2).sort("node")
    for node, models in run.models().items():
        assert accuracy(models.module()) == pytest.approx(last["merged_accuracy"][node], abs=1e-6)
    assert [len(run.models()[node].tensors()) for node in range(4)] == [4, 2, 4, 2]
    assert coterie.open(tmp_path / "x").models().keys() == {0, 1, 2, 3}


@pytest.mark.parametrize("engine", [{"name": "local", "workers": 1, "mode": "loop"}, "memory", {"name": "peer"}])
def test_peaks_come_out_as_they_were_measured(
    engine: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lesson = {"name": "mutual", "epochs": 1, "period": 2, "growth": 0}
    settings = {"protocol": {"name": "wandering", "lesson": lesson, "share": 1.0}, "rule": "isolation", "rounds": 3}
    run = small(**KINDS | settings, nodes=4, topology="complete", test_share=1.0, engine=engine).run(tmp_path / "x")
    last = run.records.filter(run.records["round"] == 3).sort("node")
    for node in range(4):
        assert accuracy(run.model(node=node)) == pytest.approx(last["test_accuracy"][node], abs=1e-6)
        assert accuracy(run.model(node=node, peak=True)) == pytest.approx(last["peak_accuracy"][node], abs=1e-6)
    assert (last["peak_accuracy"] != last["test_accuracy"]).any()  # the last lesson was none of distillation
    file = tmp_path / "peak.safetensors"
    assert main(["export", str(tmp_path / "x"), str(file), "--node", "1", "--peak"]) == 0
    assert load_file(file)["1.weight"].equal(run.models()[1].peak.tensors()["1.weight"])
    with safe_open(file, "pt") as found:
        assert found.metadata()["kept"] == "peak"


def test_models_are_there_without_a_folder() -> None:
    run = small(seeds="0-1", rounds=1).run()
    one, other = (run.model("decavg", seed, 2) for seed in (0, 1))
    assert accuracy(one) != accuracy(other)
    assert repr(run) == "Run of 2 jobs, 1 round"


def test_a_run_shows_its_table_and_curves() -> None:
    run = small(rounds=2, methods=["decavg", "isolation"]).run()
    assert run.table()["method"].to_list() == ["decavg", "isolation"]
    shown = run._repr_mimebundle_()
    assert "| method |" in shown["text/markdown"]
    assert "<th>method</th>" in shown["text/html"]
    assert "<svg" in shown["text/html"]
    (axes,) = run.plot().axes
    assert {line.get_label() for line in axes.get_lines()} >= {"decavg", "isolation"}


def test_export_writes_a_file_for_plain_pytorch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, file = small(rounds=1, seeds="0-1").run(tmp_path / "x"), tmp_path / "model.safetensors"
    assert main(["export", str(tmp_path / "x"), str(file), "--seed", "1", "--node", "3"]) == 0
    assert "decavg, seed 1, node 3" in capsys.readouterr().out
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 10))
    module.load_state_dict(load_file(file))
    assert accuracy(module) == accuracy(run.model(seed=1, node=3))
    with safe_open(file, "pt") as found:
        assert found.metadata()["round"] == "1"


def test_what_cannot_be_exported_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small(rounds=1, seeds="0-1", methods=["decavg", "isolation"]).run(tmp_path / "x")
    with pytest.raises(RunError, match=r"which method\?: expected one of decavg, isolation"):
        run.models()
    with pytest.raises(ConfigError, match="Did you mean 'decavg'"):
        run.models("decvg", 0)
    with pytest.raises(RunError, match="no such node"):
        run.model("decavg", 0, 9)
    with pytest.raises(RunError, match=r"node 2 has kept no peak\. Take the present model"):
        run.model("decavg", 0, 2, peak=True)
    small(rounds=1, keep_models=False).run(tmp_path / "none")
    with pytest.raises(RunError, match="keep_models"):
        coterie.open(tmp_path / "none").models()
    with pytest.raises(runner.Interrupted):
        small().run(tmp_path / "half", [At(3, interrupt)])
    assert main(["export", str(tmp_path / "half"), "m.safetensors"]) == 2
    assert "coterie resume" in capsys.readouterr().err

"""Samples of any kind, in every engine: words with a mask, images beside numbers, numeric targets, whole texts."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from coterie import records
from coterie.app.cli import main
from coterie.errors import ConfigError, DataError
from coterie.node.node import trainers
from coterie.node.training import RowData, StackData
from coterie.peers.checkpoint import CHECKPOINT
from coterie.records.models import NodeModels
from coterie.runs import runner
from coterie.runs.experiment import Experiment
from driving import agree, drive, job
from peering import peer_configs, run, together
from small import LOOP, At, assert_same, interrupt

OWN = Path(__file__).parent / "own_data.py"


def mine(name: str) -> str:
    return f"{OWN}:{name}"


WORLDS: dict[str, dict[str, Any]] = {
    "tokens": {"dataset": mine("tokens"), "model": mine("attention"), "lr": 0.5, "metrics": "accuracy,loss,f1,top_k"},
    "pairs": {"dataset": mine("pairs"), "model": mine("both")},
    "numbers": {
        "dataset": mine("numbers"),
        "model": "logistic",
        "objective": "squared_error",
        "partition": "iid",
        "metrics": "error",
        "lr": 0.05,
    },
    "vectors": {
        "dataset": mine("vectors"),
        "model": {"name": "mlp", "sizes": [8]},
        "objective": "squared_error",
        "partition": "iid",
        "metrics": ["error", {"name": mine("Worst"), "most": 0.5}],
        "rule": "dechw",
    },
    "texts": {
        "dataset": mine("texts"),
        "model": mine("continues"),
        "partition": "iid",
        "metrics": ["perplexity", "accuracy", mine("Bits")],
        "lr": 0.5,
    },
    "recurrent": {"dataset": mine("tokens"), "model": mine("recurrent"), "lr": 0.5},
}
STACKED = [name for name in WORLDS if name != "recurrent"]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("engine", ["loop", "stack", "workers"])
def test_same_numbers(engine: str, world: str) -> None:
    if engine in ("stack", "workers") and world not in STACKED:
        pytest.skip("a GRU cannot be stacked: the next test")
    agree(drive(engine, **WORLDS[world]), drive("memory", **WORLDS[world]), 5e-4)


def test_what_cannot_be_stacked_is_looped() -> None:
    assert drive("auto", rounds=1, **WORLDS["recurrent"]).plan["modes"] == [{"stack": False, "chunk": 1}]


@pytest.mark.parametrize(
    ("world", "column", "falls"),
    [("tokens", "merged_accuracy", False), ("numbers", "test_error", True), ("texts", "test_perplexity", True)],
)
def test_something_is_learnt(world: str, column: str, falls: bool) -> None:
    settings = {"nodes": 4, "rounds": 12, "epochs": 3, "topology": "ring", "engine": LOOP, "evaluate": 12}
    frame = Experiment(**{**settings, **WORLDS[world], "partition": "iid", "merged": True}).run().records
    start, end = (frame.filter(pl.col("round") == r)[column].mean() for r in (0, 12))
    assert (end < 0.2 * start) if falls else (end > 0.8)  # type: ignore[operator]


@pytest.mark.parametrize("world", ["tokens", "numbers", "texts"])
def test_peers_come_to_the_numbers_of_the_simulator(world: str, tmp_path: Path) -> None:
    settings = {"nodes": 3, "rounds": 2, "batches": 2, "topology": "complete", "evaluate": 1, "merged": True}
    settings |= WORLDS[world]
    simulated = Experiment(**settings, engine=LOOP).run().records
    peers = run(together(peer_configs(Experiment(**settings), tmp_path)))
    assert peers.columns == simulated.columns
    judged = [c for c in peers.columns if c.startswith(("test_", "validation_", "merged_"))]
    for name in judged:
        np.testing.assert_allclose(peers[name], simulated.sort("round", "node")[name], rtol=1e-3, atol=0.02)


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The user's own file, named as it lies; the table, the figures and the report show what models were judged by."""
    monkeypatch.chdir(OWN.parent)
    parts = "--dataset ./own_data.py:texts --model ./own_data.py:continues --partition iid"
    how = f"--nodes 3 --rounds 2 --engine.workers 1 --engine.mode loop --rule decavg --out {tmp_path / 'run'}"
    assert main(f"run {parts} --metrics perplexity,./own_data.py:Bits {how}".split()) == 0
    out = capsys.readouterr().out
    assert "Metrics on the test set at round 2" in out
    assert "perplexity" in out
    assert {p.name for p in (tmp_path / "run").glob("*.png")} == {"test_perplexity.png", "test_bits.png"}
    assert "test_perplexity" in pl.read_csv(tmp_path / "run" / "summary.csv").columns
    assert main(f"compare {tmp_path / 'run'}".split()) == 0


def test_a_partition_without_classes_is_described(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(OWN.parent)
    assert main(["partition", "iid", "--dataset", "./own_data.py:numbers", "--nodes", "3"]) == 0
    assert "100" in capsys.readouterr().out


def test_columns_are_those_of_the_metrics(tmp_path: Path) -> None:
    settings = {"nodes": 3, "rounds": 1, "topology": "ring", "engine": LOOP, **WORLDS["texts"]}
    frame = Experiment(**settings).run(tmp_path / "run").records
    assert frame.columns[4:10] == [
        *("test_perplexity", "test_accuracy", "test_bits"),
        *("validation_perplexity", "validation_accuracy", "merged_perplexity"),
    ]
    assert_same(records.load(tmp_path / "run"), frame)
    assert dict(frame.schema) == records.schema(Experiment(**settings).resolved["decavg"].judges)
    np.testing.assert_allclose(frame["test_perplexity"], 2 ** frame["test_bits"].to_numpy())


def test_an_interrupted_run_goes_on_with_the_same_metrics(tmp_path: Path) -> None:
    settings = {"nodes": 3, "rounds": 4, "topology": "ring", "engine": LOOP, "evaluate": 1, **WORLDS["vectors"]}
    straight = Experiment(**settings).run().records
    with pytest.raises(runner.Interrupted):
        runner.run(Experiment(**settings), tmp_path / "run", [At(2, interrupt, "dechw")])
    assert_same(runner.resume(tmp_path / "run").records, straight)


def test_a_stopped_peer_goes_on_with_its_metrics(tmp_path: Path) -> None:
    settings = {"nodes": 2, "rounds": 3, "batches": 1, "topology": "complete", "evaluate": 1, **WORLDS["numbers"]}
    given = peer_configs(Experiment(**settings), tmp_path)
    straight = run(together(given))
    again = run(together(given))  # from the checkpoint of the last round
    assert_same(again, straight)
    assert again.columns == straight.columns


@pytest.mark.parametrize("world", ["tokens", "numbers", "texts", "pairs"])
def test_a_peers_model_comes_out_as_a_module(world: str, tmp_path: Path) -> None:
    """Whatever it takes and gives: the checkpoint says for which samples it was made."""
    settings = {"nodes": 2, "rounds": 1, "batches": 1, "topology": "complete", **WORLDS[world]}
    given = peer_configs(Experiment(**settings), tmp_path)
    run(together(given))
    samples, (model,) = given[1].job.samples, NodeModels.read(given[1].folder / CHECKPOINT).values()
    x, y = samples.inputs(torch.arange(5), test=True), samples.targets(torch.arange(5), test=True)
    assert model.module()(x).shape[: y.dim()] == y.shape


@pytest.mark.parametrize("engine", [LOOP, {"name": "memory"}], ids=["local", "memory"])
def test_the_models_of_a_run_come_out_as_modules(engine: dict[str, Any], tmp_path: Path) -> None:
    settings = {"nodes": 2, "rounds": 1, "batches": 1, "topology": "complete", **WORLDS["vectors"]}
    Experiment(**settings, engine=engine).run(tmp_path / "run")
    model = records.RunFolder(tmp_path / "run").models("dechw", 0)[1].module()
    assert model(torch.zeros(4, 5)).shape == (4, 3)


@pytest.mark.parametrize("objective", ["squared_error", mine("absolute")])
def test_rules_see_gradients_of_the_objective_where_there_are_no_classes(objective: str) -> None:
    made = job(**{**WORLDS["numbers"], "objective": objective})
    (trainer,) = trainers(made, np.arange(6))
    stacked = next(iter(StackData(trainer, np.arange(6)).grads(trainer.params, size=20)))
    for row in range(6):
        alone = next(iter(RowData(trainer, row).grads(trainer.params[row], size=20)))
        torch.testing.assert_close(stacked[row], alone, rtol=1e-4, atol=1e-6)
        own = torch.as_tensor(made.roster.train[row][:20])
        x, y = made.samples.inputs(own), made.samples.targets(own)
        assert isinstance(x, torch.Tensor)
        weight, bias = trainer.params[row, :5].clone().requires_grad_(), trainer.params[row, 5].clone()
        off = x @ weight + bias - y
        (slope,) = torch.autograd.grad((off**2 if objective == "squared_error" else off.abs()).mean(), weight)
        torch.testing.assert_close(alone[:5], slope, rtol=1e-4, atol=1e-6)


def test_early_stopping_looks_at_the_objective_where_there_are_no_classes() -> None:
    settings = {**WORLDS["numbers"], "early_stopping": True, "epochs": 3, "batches": None, "rule": "isolation"}
    calm, wild = (drive("loop", rounds=1, **{**settings, "lr": lr}) for lr in (0.001, 0.9))
    start = drive("loop", rounds=0, **settings)
    assert all(not torch.equal(calm.models[n], start.models[n]) for n in range(6))
    assert all(torch.equal(wild.models[n], start.models[n]) for n in range(6))  # each step made it worse


def test_the_gain_by_gossip_needs_no_images() -> None:
    told = {"name": "gain", "estimate": "gossip", "gossip_samples": 50, "gossip_rounds": 4}
    settings = {"nodes": 4, "rounds": 1, "topology": "ring", "engine": LOOP, **WORLDS["tokens"]}
    assert Experiment(**settings, initialiser=told).run().records.height == 8


class TestRefusals:
    def attempt(self, **settings: Any) -> None:
        Experiment(**{"nodes": 3, "rounds": 1, "topology": "ring", "engine": LOOP, **settings}).run()

    @pytest.mark.parametrize("partition", ["dirichlet", "shards", "zipf_equal", "labels"])
    @pytest.mark.parametrize("world", ["numbers", "texts"])
    def test_partitions_by_class(self, world: str, partition: str) -> None:
        with pytest.raises(DataError, match=r"expected class labels.*--partition iid"):
            self.attempt(**{**WORLDS[world], "partition": partition})

    def test_metrics_of_classes(self) -> None:
        with pytest.raises(ConfigError, match=r"metric accuracy: expected class labels.*--metrics error"):
            self.attempt(**{**WORLDS["numbers"], "metrics": "accuracy"})

    def test_metrics_of_numbers(self) -> None:
        with pytest.raises(ConfigError, match=r"metric error: expected an output for each number"):
            self.attempt(**{**WORLDS["tokens"], "metrics": "error"})

    def test_objectives_of_classes(self) -> None:
        with pytest.raises(ConfigError, match=r"objective cross_entropy: expected class labels"):
            self.attempt(**{**WORLDS["numbers"], "objective": "cross_entropy"})

    def test_models_that_come_along(self) -> None:
        with pytest.raises(ConfigError, match=r"model 'mlp': expected samples of one tensor.*ids.*int64"):
            self.attempt(**{**WORLDS["tokens"], "model": "mlp"})

    @pytest.mark.parametrize("world", ["tokens", "numbers"])
    def test_anchors_of_words(self, world: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="protocol desa makes samples of its own"):
            self.attempt(**{**WORLDS[world], "protocol": "desa"})
        with pytest.raises(ConfigError, match="protocol desa makes samples of its own"):
            run(together(peer_configs(Experiment(nodes=2, **WORLDS[world], protocol="desa"), tmp_path)))

"""Data of one's own that are no pictures with a class: numbers to be found, labels that go together, texts; learnt."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor, nn

from coterie.app.cli import main
from coterie.datasets import Dataset
from coterie.datasets.own import own
from coterie.errors import CoterieError
from coterie.models import called
from coterie.runs.experiment import Experiment
from small import LOOP

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 4))
SLOPE = RNG.normal(size=(4, 3))
NUMBER, LABELS = X @ SLOPE[:, 0], (X @ SLOPE > 0).astype(np.int64)
PLACE = ["sun", "sea", "sand"], ["ice", "wind", "snow"]
TEXTS = [f"much {PLACE[i % 2][i % 3]} and no {('fog', 'rain')[i % 5 % 2]}" for i in range(240)]


def table(columns: int = 4) -> dict[str, Any]:
    return {f"c{i}": X[:, i] for i in range(columns)}


def lists(x: Any) -> pl.Series:
    return pl.Series(x.tolist())


def write(path: Path) -> Path:
    """The file of that name."""
    match path.name:
        case "numbers.csv":
            pl.DataFrame({**table(), "target": NUMBER}).write_csv(path)
        case "numbers.parquet":
            pl.DataFrame({**table(), "target": NUMBER}).write_parquet(path)
        case "labels.npz":
            np.savez(path, x=X, y=LABELS)
        case "labels.parquet":
            pl.DataFrame({"x": lists(X), "label": lists(LABELS)}).write_parquet(path)
        case "texts.csv":
            pl.DataFrame({"text": TEXTS, "label": ["warm", "cold"] * 120}).write_csv(path)
        case "classes.csv":
            names = np.array(["low", "high"])[(NUMBER > 0).astype(int)]
            pl.DataFrame({**table(), "label": names}).write_csv(path)
    return path


class Words(nn.Module):
    """Takes the tensors of a sample by their names, and something more that it need not be told."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(2000, 8), nn.Linear(8, classes)

    def forward(self, mask: Tensor, tokens: Tensor, scale: float = 1.0) -> tuple[Tensor, None]:
        seen = self.words(tokens) * mask.unsqueeze(-1)
        return scale * self.last(seen.sum(-2) / mask.sum(-1, keepdim=True)), None


REGRESSION = {"objective": "squared_error", "metrics": ["error", "absolute_error"], "model": "logistic", "lr": 0.1}
MULTI = {"objective": "binary_cross_entropy", "metrics": "labels_right", "model": "logistic", "lr": 1.0}
LEARNT: list[Any] = [
    ("numbers.csv", REGRESSION, "test_error", 0.05, True),
    ("numbers.parquet", {**REGRESSION, "objective": "absolute_error"}, "test_absolute_error", 0.2, True),
    ("labels.npz", MULTI, "test_labels_right", 0.9, False),
    ("labels.parquet", MULTI, "test_labels_right", 0.9, False),
    ("classes.csv", {"model": "logistic", "lr": 1.0}, "test_accuracy", 0.9, False),
    ("texts.csv", {"model": Words, "lr": 1.0, "dataset.length": 12}, "test_accuracy", 0.95, False),
]


@pytest.mark.parametrize(("name", "how", "column", "bound", "falls"), LEARNT, ids=[case[0] for case in LEARNT])
def test_it_is_learnt(name: str, how: dict[str, Any], column: str, bound: float, falls: bool, tmp_path: Path) -> None:
    settings = {key: value for key, value in how.items() if "." not in key}
    data = {"name": "own", "path": str(write(tmp_path / name))}
    data |= {key.partition(".")[2]: value for key, value in how.items() if "." in key}
    world = {"dataset": data, "nodes": 3, "topology": "ring", "partition": "iid", "epochs": 3, "batch_size": 8}
    run = Experiment(**world, **settings, rounds=8, evaluate=8, engine=LOOP).run()
    first, last = (run.records.filter(pl.col("round") == r)[column].mean() for r in (0, 8))
    assert isinstance(first, float)
    assert isinstance(last, float)
    assert (last < bound < first) if falls else (last > bound > first)


@pytest.mark.parametrize("name", ["numbers.csv", "labels.npz", "texts.csv"])
def test_every_engine_has_the_same_numbers(name: str, tmp_path: Path) -> None:
    how = {"numbers.csv": REGRESSION, "labels.npz": MULTI, "texts.csv": {"model": Words}}[name]
    world = {"dataset": {"name": "own", "path": str(write(tmp_path / name))}, "partition": "iid", "total": 150, **how}
    engines = ({"name": "memory"}, LOOP, {"name": "local", "workers": 1, "mode": "stack", "chunk": 3})
    settings = {"nodes": 3, "topology": "ring", "rounds": 2, "batches": 3, "evaluate": 1, "merged": True, **world}
    memory, *others = [Experiment(**settings, engine=engine).run().records.sort("round", "node") for engine in engines]
    for column in (c for c in memory.columns if c.startswith(("test_", "validation_", "merged_", "sent_"))):
        for other in others:
            np.testing.assert_allclose(other[column], memory[column], rtol=1e-3, atol=1e-4)


def test_what_targets_are_is_seen_and_can_be_said(tmp_path: Path) -> None:
    np.savez(tmp_path / "ages.npz", x=X, y=np.arange(240))
    assert own(path=str(tmp_path / "ages.npz")).classes == 240
    assert own(path=str(tmp_path / "ages.npz"), classes=0).train_y.dtype == torch.float32
    assert own(path=str(write(tmp_path / "classes.csv"))).classes == 2
    texts = own(path=str(write(tmp_path / "texts.csv")), length=8)
    assert texts.shape == {"tokens": (8,), "mask": (8,)}


def broken(path: Path) -> str:
    np.savez(path / "gap.npz", x=X, y=np.where(np.arange(240) == 7, np.nan, NUMBER))
    return str(path / "gap.npz")


def test_what_is_wrong_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CoterieError, match=r"targets of .*expected finite numbers, got another in sample 7\. Correct"):
        own(path=broken(tmp_path))
    arguments = f"run --dataset own --dataset.path {write(tmp_path / 'numbers.csv')} --rule decavg --partition iid"
    assert main([*arguments.split(), "--rounds", "1", "--engine.workers", "1", "--out", str(tmp_path / "x")]) == 2
    assert "--objective squared_error" in capsys.readouterr().err


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(3, 2)

    def forward(self, a: Tensor, b: Tensor) -> dict[str, Tensor]:
        return {"logits": self.first(a) + self.second(b)}


def two() -> nn.Module:
    return Two()


def crossed() -> nn.Module:
    return called(Two(), lambda module, x: module(x["left"], b=x["right"]))


def data(names: tuple[str, str] | None) -> Dataset:
    a, b = torch.randn(80, 2), torch.randn(80, 3)
    x: Any = (a, b) if names is None else dict(zip(names, (a, b), strict=True))
    y = (a[:, 0] > 0).long()
    return Dataset("two", x, y, x, y, classes=2)


@pytest.mark.parametrize(
    ("names", "model"), [(("b", "a"), two), (("left", "right"), crossed), (None, two), (("a", "b"), Two())]
)
def test_any_forward_is_called_as_it_wants(names: tuple[str, str] | None, model: Any) -> None:
    if names == ("b", "a"):
        names = ("a", "b")
    settings = {"nodes": 3, "topology": "ring", "partition": "iid", "rounds": 2, "batches": 2, "lr": 0.1}
    engine = {"name": "local", "workers": 1, "mode": "stack", "chunk": 3}
    run = Experiment(dataset=data(names), model=model, engine=engine, **settings).run()
    module = run.model(node=1)
    assert type(module) is Two
    assert "first.weight" in dict(module.named_parameters())
    one: Any = (torch.zeros(4, 2), torch.zeros(4, 3))
    assert module(one if names is None else dict(zip(names, one, strict=True))).shape == (4, 2)


def test_a_forward_that_nothing_fits_is_refused_with_a_cure() -> None:
    with pytest.raises(CoterieError, match=r"forward of Two: expected .*have \['left', 'right'\].*models\.called"):
        Experiment(dataset=data(("left", "right")), model=two, nodes=2, rounds=1, partition="iid", engine=LOOP).run()

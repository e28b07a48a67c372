"""Adapters are what is trained and exchanged; the model around them is frozen, and begins as it was."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from coterie.datasets import Dataset
from coterie.errors import ConfigError
from coterie.node.node import trainers
from coterie.parts import find
from coterie.runs.experiment import Experiment
from driving import agree, drive, job
from small import LOOP

pytest.importorskip("transformers")
pytest.importorskip("peft")

SHAPE = {"tokens": (8,), "mask": (8,)}
BODY: dict[str, Any] = {"name": "distilbert", "width": 16, "layers": 1, "heads": 2, "pieces": 20}
ADAPTERS, HEAD = 2 * 2 * 4 * 16, 16 * 16 + 16 + 16 * 3 + 3


def questions(folder: Path | None = None) -> Dataset:
    """Texts in which one word tells the class."""
    draw = torch.Generator().manual_seed(0)

    def part(count: int) -> tuple[dict[str, Tensor], Tensor]:
        label = torch.randint(3, (count,), generator=draw)
        tokens = torch.randint(8, 20, (count, 8), generator=draw)
        tokens[:, 0], tokens[:, 1] = 2, 4 + label
        return {"tokens": tokens, "mask": torch.ones(count, 8, dtype=torch.bool)}, label

    return Dataset("questions", *part(240), *part(60), classes=3)


WORLD: dict[str, Any] = {
    "dataset": f"{__file__}:questions",
    "model": {"name": "lora", "of": BODY},
    "partition": "iid",
    "lr": 0.1,
}


def build(**settings: Any) -> Any:
    return find("models", "lora").make(**{"of": BODY, **settings})(SHAPE, 3)


def sizes(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters() if p.requires_grad)


def test_adapters_and_the_classifier_are_trained_and_nothing_else() -> None:
    net = build()
    assert sizes(net) == ADAPTERS + HEAD
    trained = {n for n, p in net.named_parameters() if p.requires_grad}
    assert {n.split(".")[0] for n in trained} == {"body", "inner", "scores"}
    assert all("lora_" in n for n in trained if n.startswith("body"))


def test_it_begins_as_the_model_without_adapters() -> None:
    torch.manual_seed(0)
    plain = find("models", "distilbert").make(**{k: v for k, v in BODY.items() if k != "name"})(SHAPE, 3).eval()
    torch.manual_seed(0)
    net = build().eval()
    x = {"tokens": torch.randint(20, (4, 8)), "mask": torch.ones(4, 8, dtype=torch.bool)}
    torch.testing.assert_close(net(x), plain(x))


def test_bytes_are_those_of_the_adapters_and_engines_agree() -> None:
    here = drive("loop", rounds=2, topology="ring", **WORLD)
    agree(here, drive("memory", rounds=2, topology="ring", **WORLD))
    assert set(here.ledger["sent_bytes"]) == {2 * 2 * 4 * (ADAPTERS + HEAD)}


@pytest.mark.parametrize("initialiser", ["default", "he", "gain"])
def test_all_begin_with_the_same_adapters_which_change_nothing(initialiser: str) -> None:
    (made,) = trainers(job(**WORLD, initialiser=initialiser), np.arange(6))
    drawn = []
    for row in range(6):
        made.point(row)
        layer = made.architecture.module.body.transformer.layer[0].attention.q_lin
        assert not layer.lora_B["default"].weight.any()
        drawn.append(layer.lora_A["default"].weight.clone())
    assert drawn[0].any()
    assert all(torch.equal(drawn[0], other) for other in drawn)


def test_something_is_learnt_through_adapters_alone(tmp_path: Path) -> None:
    """Of a body with larger weights than random ones have, so that there is something to adapt."""
    torch.manual_seed(3)
    body = find("models", "distilbert").make(**{k: v for k, v in BODY.items() if k != "name"})(SHAPE, 3).body
    for p in body.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.3)
    body.save_pretrained(tmp_path)
    model = {"name": "lora", "of": {"name": "distilbert", "weights": str(tmp_path)}}
    settings = {"nodes": 2, "rounds": 3, "epochs": 3, "topology": "complete", "evaluate": 3, "engine": LOOP}
    world = {**WORLD, "model": model, "lr": None, "optimiser": {"name": "adamw", "lr": 0.02}}
    frame = Experiment(**world, **settings).run().records
    assert frame.filter(round=3)["test_accuracy"].mean() > 0.9  # type: ignore[operator]


def test_any_linear_layer_of_any_model_may_have_them() -> None:
    net = find("models", "lora").make(of={"name": "vit", "width": 8, "head": 4}, targets=("query", "key"), rank=2)(
        (3, 16, 16), 5
    )
    assert {n.rpartition("lora_")[1] for n, p in net.named_parameters() if p.requires_grad} == {"lora_"}
    assert net(torch.rand(2, 3, 16, 16)).shape == (2, 5)


def test_parts_may_be_trained_as_a_whole() -> None:
    assert sizes(build(also=("scores",))) == ADAPTERS + 16 * 3 + 3


def test_a_notation_says_it_in_a_line() -> None:
    (method,) = Experiment(model="lora[distilbert]{rank=2}", dataset="trec6").resolved.values()
    assert method.models[0].settings["rank"] == 2
    assert method.models[0].settings["of"]["name"] == "distilbert"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rank": 0}, "a rank of at least 1"),
        ({"targets": ("nothing",)}, r"got nothing. Name some of: q_lin, k_lin"),
        ({"also": ("nothing",)}, r"expected parts of the model: body, inner"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build(**settings)


def test_samples_must_be_those_of_the_model_inside() -> None:
    with pytest.raises(ConfigError, match=r"expected samples that are tokens and mask"):
        job(model={"name": "lora", "of": BODY})


def test_without_peft_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r'needs peft. Install it: pip install "coterie\[lora\]"'):
        build()

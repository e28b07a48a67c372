"""DistilBERT: small with random weights, or with those of a folder; and what is said when they do not fit."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from coterie.datasets import Dataset
from coterie.errors import ConfigError
from coterie.node.node import trainers
from coterie.parts import find
from coterie.records import Event
from coterie.runs.experiment import Experiment
from driving import agree, drive, job
from small import LOOP

pytest.importorskip("transformers")

SHAPE = {"tokens": (8,), "mask": (8,)}
SMALL: dict[str, Any] = {"width": 16, "layers": 1, "heads": 2, "pieces": 20}


def questions(folder: Path | None = None, *, samples: int = 240) -> Dataset:
    """Texts in which one word tells the class, with padding of all lengths."""
    draw = torch.Generator().manual_seed(0)

    def part(count: int) -> tuple[dict[str, Tensor], Tensor]:
        label = torch.randint(3, (count,), generator=draw)
        tokens = torch.randint(8, 20, (count, 8), generator=draw)
        tokens[:, 0], tokens[:, 1] = 2, 4 + label
        mask = torch.arange(8) < torch.randint(3, 9, (count, 1), generator=draw)
        return {"tokens": tokens * mask, "mask": mask}, label

    return Dataset("questions", *part(samples), *part(60), classes=3)


WORLD: dict[str, Any] = {
    "dataset": f"{__file__}:questions",
    "model": {"name": "distilbert", **SMALL},
    "optimiser": {"name": "adamw", "lr": 0.01},
    "partition": "iid",
}


def build(**settings: Any) -> nn.Module:
    made = find("models", "distilbert").make(**settings)(SHAPE, 3)
    assert isinstance(made, nn.Module)
    return made


def kept(folder: Path, **settings: Any) -> str:
    """A folder with the weights of a small body."""
    torch.manual_seed(1)
    build(**SMALL | settings).body.save_pretrained(folder)
    return str(folder)


def test_it_scores_every_class_and_learns_in_every_layer() -> None:
    model = build(**SMALL).eval()
    x = {"tokens": torch.randint(20, (4, 8)), "mask": torch.ones(4, 8, dtype=torch.bool)}
    scores = model(x)
    assert scores.shape == (4, 3)
    scores.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for n, p in model.named_parameters() if "k_lin.bias" not in n)


def test_padding_does_not_matter() -> None:
    model = build(**SMALL).eval()
    tokens, mask = torch.randint(4, 20, (2, 8)), torch.arange(8).expand(2, 8) < 5
    torch.testing.assert_close(
        model({"tokens": tokens * mask, "mask": mask}), model({"tokens": tokens, "mask": mask}), rtol=1e-4, atol=1e-5
    )


def test_it_is_64_wide_with_2_layers_unless_said_otherwise() -> None:
    model = build()
    assert model.body.config.vocab_size == model.vocabulary == 2000
    assert (model.body.config.dim, model.body.config.n_layers) == (64, 2)


def test_the_published_size() -> None:
    with torch.device("meta"):
        model = find("models", "distilbert").make(width=768, layers=6, heads=12, pieces=30_522)({"tokens": (512,)}, 6)
    assert sum(p.numel() for p in model.body.parameters()) == 66_362_880


def test_engines_agree_with_dropout_and_all() -> None:
    """Without Adam, which makes steps of the rounding errors where a gradient is zero: that of the keys' biases."""
    world = WORLD | {"optimiser": {"name": "sgd", "lr": 0.1}}
    agree(drive("loop", **world), drive("memory", **world))


def test_something_is_learnt_and_the_run_says_that_weights_are_random() -> None:
    said: list[str] = []

    class Listener:
        def event(self, event: Event) -> None:
            said.extend([event["text"]] if event.name == "warning" else [])

    settings = {"nodes": 2, "rounds": 3, "epochs": 3, "topology": "complete", "evaluate": 3, "engine": LOOP}
    frame = Experiment(**WORLD, **settings).run(observers=[Listener()]).records
    assert frame.filter(round=0)["test_accuracy"].mean() < 0.6  # type: ignore[operator]
    assert frame.filter(round=3)["test_accuracy"].mean() > 0.9  # type: ignore[operator]
    assert [text for text in said if "distilbert is small and has random weights (16 wide" in text] == said[:1]


def test_weights_of_a_folder_are_where_all_begin_and_are_trained(tmp_path: Path) -> None:
    folder = kept(tmp_path / "body")
    world = WORLD | {"model": {"name": "distilbert", "weights": folder}}
    (made,) = trainers(job(**world), range(6))  # type: ignore[arg-type]
    wanted = build(weights=folder).body.embeddings.word_embeddings.weight
    heads = []
    for row in range(6):
        made.point(row)
        module = made.architecture.module
        assert torch.equal(module.body.embeddings.word_embeddings.weight, wanted)
        heads.append(module.scores.weight.clone())
    assert not torch.equal(heads[0], heads[1])
    made.train_row(0, 1)
    assert not torch.equal(module.body.embeddings.word_embeddings.weight, wanted)
    assert module.note == ""


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"width": 32}, r"expected width 32, got 16. Leave width out"),
        ({"pieces": 30}, r"expected pieces 30, got 20"),
    ],
)
def test_settings_that_contradict_the_weights(tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build(weights=kept(tmp_path), **settings)


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"dim": 32}, r"embeddings.LayerNorm.bias of 16 instead of 32, .* and \d+ more"),
        ({"n_layers": 2}, r"no transformer.layer.1.attention.k_lin.bias, .* and \d+ more"),
    ],
)
def test_weights_that_do_not_fit_their_configuration(tmp_path: Path, change: dict[str, int], got: str) -> None:
    kept(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError, match=rf"do not fit .* got {got}\. Save weights and") as error:
        build(weights=str(tmp_path))
    assert "\n" not in str(error.value)


def test_texts_longer_than_the_weights_have_places_for(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    with pytest.raises(ConfigError, match=r"places for 40 tokens, got 8. Cut the texts: --dataset.length 8"):
        find("models", "distilbert").make(weights=folder)({"tokens": (40,)}, 3)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a folder with config.json and weights"):
        build(weights=str(tmp_path))


def test_a_model_of_another_type(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ConfigError, match="bert"):
        build(weights=str(tmp_path))


def test_tokens_beyond_the_vocabulary_are_refused_before_anything_is_trained() -> None:
    with pytest.raises(ConfigError, match=r"tokens below 10, got 19. Let both have one vocabulary: --model.pieces 20"):
        job(**WORLD | {"model": {"name": "distilbert", **SMALL, "pieces": 10}})


def test_samples_that_are_no_texts_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"expected samples that are tokens and mask"):
        job(model="distilbert")


@pytest.mark.parametrize("settings", [{"width": 0}, {"heads": 3}, {"layers": 0}, {"dropout": 1.0}])
def test_sizes_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"--model\.|a share from 0"):
        build(**SMALL | settings)


def test_without_transformers_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r'needs transformers. Install it: pip install "coterie\[transformers\]"'):
        build()

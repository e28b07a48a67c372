"""A vision-language model of which only the projection is trained and sent, and whose answers are judged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from coterie.datasets import Dataset
from coterie.datasets.patterns import END, PAD, WORDS, patterns
from coterie.errors import ConfigError
from coterie.node.node import trainers
from coterie.parts import find
from coterie.runs.experiment import Experiment
from driving import agree, drive, job
from small import LOOP

library = pytest.importorskip("transformers")


def few(folder: Path | None = None) -> Dataset:
    """Some small pictures with prompts."""
    return patterns(samples=60, test_samples=8, size=8)


DATA = patterns(samples=12, test_samples=6, size=8)
METRICS = ["strict", "lenient", "loss"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny BLIP-2 with random weights, as a user would have it."""
    place = tmp_path_factory.mktemp("blip2")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = library.LlamaConfig(**sizes, vocab_size=len(WORDS), eos_token_id=END, pad_token_id=PAD, bos_token_id=END)
    made = library.Blip2Config(
        vision_config={**sizes, "image_size": 8, "patch_size": 4},
        qformer_config={**sizes, "encoder_hidden_size": 8, "cross_attention_frequency": 1, "vocab_size": 2},
        text_config=text.to_dict(),
        num_query_tokens=2,
    )
    torch.manual_seed(0)
    model = library.Blip2ForConditionalGeneration(made)
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)
    model.save_pretrained(place)
    return str(place)


def build(folder: str, **settings: Any) -> Any:
    return find("models", "minigpt").make(weights=folder, **settings)(DATA.shape, 0).eval()


def world(folder: str) -> dict[str, Any]:
    return {
        "dataset": f"{__file__}:few",
        "model": {"name": "minigpt", "weights": folder},
        "partition": "iid",
        "metrics": METRICS,
        "merged": True,
        "lr": 0.1,
        "total": 60,
    }


def test_only_the_projection_is_trained(folder: str) -> None:
    model = build(folder)
    assert [n for n, p in model.named_parameters() if p.requires_grad] == ["projection.weight", "projection.bias"]
    scores = model(DATA.train_x)
    assert scores.shape == (*DATA.train_y.shape, len(WORDS))
    scores.square().sum().backward()
    assert model.projection.weight.grad.any()


def test_answers_are_those_of_the_librarys_own_greedy_search(folder: str) -> None:
    """And what it says under its own words is what the scores say."""
    model, x = build(folder), DATA.test_x
    assert isinstance(x, dict)
    found = model.generate(x)
    assert found.shape == DATA.test_y.shape
    ended = found.masked_fill(found == -100, PAD)
    again = model(x | {"answers": ended[..., :-1]}).argmax(-1)
    assert torch.equal(torch.where(found == -100, -100, again), found)
    own = library.Blip2ForConditionalGeneration.from_pretrained(folder).language_model.eval()
    slots = model.projection(model.whole.get_image_features(x["image"], return_dict=True).pooler_output)
    words = own.get_input_embeddings()(x["prompts"][:, 0])
    theirs = own.generate(
        inputs_embeds=torch.cat([slots, words], 1),
        attention_mask=torch.ones(len(slots), slots.shape[1] + words.shape[1]),
        max_new_tokens=found.shape[-1],
        do_sample=False,
    )
    wanted = nn.functional.pad(theirs, (0, found.shape[-1] - theirs.shape[1]), value=PAD)
    assert torch.equal(ended[:, 0], wanted)


def test_what_is_remembered_of_a_picture_is_what_is_seen(folder: str) -> None:
    remembering, forgetful = build(folder), build(folder, remember=False)
    looks = 0

    def look(*_: object) -> None:
        nonlocal looks
        looks += 1

    remembering.whole.vision_model.register_forward_hook(look)
    first, second = remembering(DATA.test_x), remembering(DATA.test_x)
    assert torch.equal(first, second)
    assert torch.equal(first, forgetful(DATA.test_x))
    assert looks == len(DATA.test_y)


def test_engines_agree_and_only_the_projection_travels(folder: str) -> None:
    here = drive("loop", topology="ring", **world(folder))
    agree(here, drive("memory", topology="ring", **world(folder)))
    assert set(here.ledger["sent_bytes"]) == {3 * 2 * 4 * (8 * 8 + 8)}


def test_adapters_of_the_language_model_travel_with_the_projection(folder: str) -> None:
    pytest.importorskip("peft")
    model = {"name": "lora", "of": {"name": "minigpt", "weights": folder}, "rank": 2}
    here = drive("loop", topology="ring", **world(folder) | {"model": model})
    assert set(here.ledger["sent_bytes"]) == {3 * 2 * 4 * (8 * 8 + 8 + 2 * 2 * 2 * 8)}


def test_answers_are_judged_in_rounds_in_every_engine(folder: str) -> None:
    settings = world(folder) | {"nodes": 2, "rounds": 1, "batches": 1, "topology": "complete", "validation": 0.2}
    found = [Experiment(**settings, engine=e).run().records for e in (LOOP, {"name": "memory"})]
    for column in ("test_strict", "test_lenient", "validation_strict", "merged_strict"):
        np.testing.assert_array_equal(found[0][column], found[1][column])
    assert found[0]["test_lenient"].is_between(0, 1).all()


def test_frozen_parts_are_held_once_however_many_nodes(folder: str) -> None:
    one, other = (trainers(job(**world(folder)), np.arange(3))[0].architecture for _ in range(2))
    for a, b in zip(one.module.whole.parameters(), other.module.whole.parameters(), strict=True):
        assert a.data_ptr() == b.data_ptr()
    assert one.width == 8 * 8 + 8


def test_the_projection_begins_as_the_folder_has_it(folder: str) -> None:
    (made,) = trainers(job(**world(folder)), np.arange(3))
    wanted = library.Blip2ForConditionalGeneration.from_pretrained(folder).language_projection.weight
    made.point(2)
    assert torch.equal(made.architecture.module.projection.weight, wanted)


def test_a_model_that_does_not_generate_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'mlp' has no method `generate` for answers. Take one that does"):
        Experiment(nodes=2, rounds=1, topology="complete", engine=LOOP, metrics="strict").run()


def test_pictures_of_another_size(folder: str) -> None:
    with pytest.raises(ConfigError, match=r"pictures of 8 pixels a side, got 16. Use --dataset.size 8"):
        find("models", "minigpt").make(weights=folder)(DATA.shape | {"image": (3, 16, 16)}, 0)


def test_a_language_model_that_is_no_decoder(folder: str, tmp_path: Path) -> None:
    text = json.loads((Path(folder) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(text | {"text_config": {"model_type": "t5"}}))
    with pytest.raises(ConfigError, match=r"expected a decoder-only language model, got t5"):
        build(str(tmp_path))


def test_the_tiny_pair_learns_through_its_projection_and_is_kept() -> None:
    """Both scores are those of nearly all right answers, after a start with none."""
    settings: dict[str, Any] = {
        "dataset": {"name": "patterns", "samples": 400, "test_samples": 100},
        "model": "minigpt",
        "metrics": METRICS,
        "optimiser": {"name": "adamw", "lr": 0.01},
        "nodes": 2,
        "rounds": 3,
        "epochs": 2,
        "evaluate": 3,
        "merged": True,
        "topology": "complete",
        "partition": "iid",
        "engine": LOOP,
    }
    frame = Experiment(**settings).run().records
    assert frame.filter(round=0)["test_strict"].max() < 0.3  # type: ignore[operator]
    assert frame.filter(round=3)["merged_strict"].min() > 0.9  # type: ignore[operator]
    one, other = (find("models", "minigpt").make()({**DATA.shape, "image": (3, 16, 16)}, 0) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.whole.parameters(), other.whole.parameters(), strict=True))
    assert "pre-trained on simple patterns" in one.note

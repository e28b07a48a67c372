"""Pictures of patterns with prompts and answers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from coterie.datasets import tensors
from coterie.datasets.patterns import PROMPTS, SHAPES, WORDS, patterns, pictures, texts
from coterie.errors import ConfigError, DataError


def said(tokens: Tensor) -> str:
    return " ".join(WORDS[int(t)] for t in tokens if t >= 0)


def test_a_sample_is_a_picture_with_four_prompts_and_answers() -> None:
    found = patterns(samples=30, test_samples=20)
    assert isinstance(found.train_x, dict)
    assert found.shape["image"] == (3, 16, 16)
    assert found.train_y.shape[:2] == (30, 4)
    assert found.classes == 0
    assert [said(p[m]) for p, m in zip(found.train_x["prompts"][3], found.train_x["mask"][3], strict=True)] == [
        *PROMPTS
    ]
    answers = {said(a) for a in found.train_y[:, 0]}
    assert answers == {f"buy a {name} [END]" for name in SHAPES}
    torch.testing.assert_close(found.train_x["answers"], found.train_y[..., :-1].clamp(min=0))


def test_every_answer_speaks_of_the_same_pattern() -> None:
    _, answers = texts()
    for name, four in zip(SHAPES, answers, strict=True):
        assert [said(a) for a in four] == [f"{a.format(name)} [END]" for a in PROMPTS.values()]


def test_all_patterns_are_there_alike_and_always_the_same() -> None:
    one, other = (patterns(samples=50, test_samples=10) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(tensors(one.train_x), tensors(other.train_x), strict=True))
    _, counts = one.train_y[:, 1].unique(dim=0, return_counts=True)
    assert counts.tolist() == [5] * len(SHAPES)
    assert isinstance(one.train_x, dict)
    assert isinstance(one.test_x, dict)
    assert not torch.equal(one.train_x["image"][:10], one.test_x["image"])


def test_patterns_can_be_told_apart() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(400) % len(SHAPES)
    x = pictures(y, 16, rng).flatten(1).numpy()
    assert KNeighborsClassifier(1).fit(x[:300], y[:300]).score(x[300:], y[300:]) > 0.8


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="at least one sample"):
        patterns(samples=0)
    with pytest.raises(ConfigError, match="at least 8 pixels"):
        patterns(size=4)


def tokenizer(folder: Path, **marks: str) -> str:
    """A folder with a tokenizer that knows some words."""
    made, library = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    words = made.Tokenizer(made.models.WordLevel({"[UNK]": 0, "[PAD]": 1, "</s>": 2, "buy": 3, "write": 4}, "[UNK]"))
    words.pre_tokenizer = made.pre_tokenizers.Whitespace()
    library.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", **marks).save_pretrained(folder)
    return str(folder)


def test_a_tokenizer_of_ones_own_pads_on_the_left(tmp_path: Path) -> None:
    asked, answers = texts(tokenizer(tmp_path, pad_token="[PAD]", eos_token="</s>"))
    assert asked["prompts"][1, 0] == 4
    assert answers[0, 0].tolist() == [3, 0, 0, 2, -100]


@pytest.mark.parametrize(
    ("marks", "says"),
    [
        ({"pad_token": "[PAD]"}, r'no token for the end of a text. Choose one and save it: .*"eos_token": "\[EOS\]"'),
        ({"eos_token": "</s>"}, r"no token for padding. Choose one and save it: tokenizer.pad_token = tokenizer.eos_"),
    ],
)
def test_a_tokenizer_without_an_end_or_without_padding(marks: dict[str, str], says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=says):
        texts(tokenizer(tmp_path, **marks))

"""Questions by what they ask for: the publisher's files, word pieces of the training part, a tokenizer of one's own."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.datasets import Dataset
from coterie.errors import ConfigError, DataError
from coterie.parts import find

TRAIN = ["NUM:dist How far is it from Denver to Aspen ?", "HUM:desc Who was Galileo ?", "DESC:def What is an atom ?"]
TEST = ["LOC:city What county is Modesto , California in ?"]
REAL = os.environ.get("COTERIE_DATA")


def write(folder: Path, train: list[str] = TRAIN, test: list[str] = TEST) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train_5500.label").write_bytes("\n".join(train).encode("latin-1"))
    (folder / "TREC_10.label").write_bytes("\n".join(test).encode("latin-1"))
    return folder


def load(folder: Path | None, **settings: Any) -> Dataset:
    found = find("datasets", "trec6").make(**settings)(folder)
    assert isinstance(found, Dataset)
    return found


@pytest.mark.parametrize("subfolder", ["", "trec6"])
def test_questions_become_tokens_with_a_mask(tmp_path: Path, subfolder: str) -> None:
    write(tmp_path / subfolder)
    found = load(tmp_path, length=16, pieces=60)
    assert found.shape == {"tokens": (16,), "mask": (16,)}
    assert found.classes == 6
    assert found.train_y.tolist() == [5, 3, 1]
    assert found.test_y.tolist() == [4]
    assert isinstance(found.train_x, dict)
    tokens, mask = found.train_x["tokens"], found.train_x["mask"]
    assert torch.equal(mask, tokens != 0)
    assert (mask.int().diff() <= 0).all()  # padding comes last
    assert (tokens[:, 0] == 2).all()
    assert tokens.max() < 60


def test_texts_are_cut_to_the_length_and_end_properly(tmp_path: Path) -> None:
    found = load(write(tmp_path), length=5).train_x
    assert isinstance(found, dict)
    assert (found["tokens"][:, -1] == 3).all()


def test_letters_that_training_has_not_seen_are_unknown(tmp_path: Path) -> None:
    found = load(write(tmp_path, test=["LOC:city Where is ß ?"]), length=12).test_x
    assert isinstance(found, dict)
    assert 1 in found["tokens"]


def test_more_pieces_make_shorter_texts_and_frequent_words_whole(tmp_path: Path) -> None:
    few, many = (load(write(tmp_path), length=60, pieces=size).train_x for size in (40, 400))
    assert isinstance(few, dict)
    assert isinstance(many, dict)
    assert many["mask"].sum() < few["mask"].sum()
    assert many["mask"][1].sum() == 6  # start, who, was, galileo, ?, end


@pytest.mark.parametrize("line", ["", "NUM far", "FOO:bar what ?", "NUM:dist"])
def test_a_line_that_is_no_question_is_named(tmp_path: Path, line: str) -> None:
    write(tmp_path, train=[TRAIN[0], line, TRAIN[1]])
    with pytest.raises(DataError, match=r"train_5500.label is damaged .*line 2"):
        load(tmp_path)


def test_one_file_of_two_is_incomplete(tmp_path: Path) -> None:
    (write(tmp_path) / "TREC_10.label").unlink()
    with pytest.raises(DataError, match=r"incomplete. Add TREC_10.label"):
        load(tmp_path)


def test_offline_says_which_files_go_where(tmp_path: Path, asked: list[str]) -> None:
    with pytest.raises(DataError, match=r"Put train_5500.label, TREC_10.label into .*trec6"):
        load(tmp_path)
    assert asked


def test_too_short_a_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset.length: expected at least 3"):
        load(write(tmp_path), length=2)


def tokenizer(folder: Path, padding: bool) -> str:
    """A tokenizer of whole words as transformers keeps it."""
    made = pytest.importorskip("tokenizers")
    library = pytest.importorskip("transformers")
    words = made.Tokenizer(made.models.WordLevel({"[UNK]": 0, "[PAD]": 1, "What": 2, "is": 3, "an": 4}, "[UNK]"))
    words.pre_tokenizer = made.pre_tokenizers.Whitespace()
    more = {"pad_token": "[PAD]"} if padding else {}
    library.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", **more).save_pretrained(folder)
    return str(folder)


def test_a_tokenizer_of_ones_own_is_taken(tmp_path: Path) -> None:
    found = load(write(tmp_path), length=6, tokenizer=tokenizer(tmp_path / "mine", True)).train_x
    assert isinstance(found, dict)
    assert found["tokens"][2].tolist() == [2, 3, 4, 0, 0, 1]
    assert found["mask"][2].tolist() == [True] * 5 + [False]


def test_a_tokenizer_without_padding_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'has no token for padding. Choose one and save it: .*"pad_token": "\[PAD\]"'):
        load(write(tmp_path), tokenizer=tokenizer(tmp_path / "mine", False))


def test_no_tokenizer_in_the_folder(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(DataError, match=r"expected a folder with a tokenizer"):
        load(write(tmp_path), tokenizer=str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"no tokenizer that can be read in .* Save one there"):
        load(write(tmp_path), tokenizer=str(tmp_path))


def test_without_transformers_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r'needs transformers. Install it: pip install "coterie\[transformers\]"'):
        load(write(tmp_path), tokenizer=str(tmp_path))


@pytest.mark.skipif(not REAL, reason="needs the real files: set COTERIE_DATA")
def test_the_real_questions() -> None:
    found = load(Path(REAL or ""))
    assert found.train_y.bincount().tolist() == [86, 1162, 1250, 1223, 835, 896]
    assert found.test_y.bincount().tolist() == [9, 138, 94, 65, 81, 113]
    assert isinstance(found.train_x, dict)
    assert found.train_x["tokens"].max() == 1999
    assert not (found.train_x["tokens"] == 1).any()  # all letters are among the pieces

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from coterie.datasets import Dataset
from coterie.datasets._files import Source, damaged, incomplete, load, read_bytes
from coterie.datasets._tokens import tokenise
from coterie.errors import ConfigError

SERVER = "https://cogcomp.seas.upenn.edu/Data/QA/QC/"
FILES = {
    "train_5500.label": "073462e3fcefaae31e00edb1f18d2d02",
    "TREC_10.label": "323a3554401d86e650717e2d2f942589",
}
CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")


class _Questions(NamedTuple):
    texts: list[str]
    labels: Tensor


def trec6(folder: Path | None = None, *, length: int = 32, pieces: int = 2000, tokenizer: str | None = None) -> Dataset:
    """5,952 questions by what they ask for, in six classes, 500 of them for testing; as tokens with a mask.

    Files: `train_5500.label` and `TREC_10.label`.

    A sample is `length` tokens, cut or padded, and a mask that tells words from padding. Without a `tokenizer` (a
    folder with one as transformers keeps it) the tokens are a vocabulary of so many word `pieces`, made of the training
    questions.

    Reference: Li and Roth, Learning Question Classifiers, 2002
    """
    if length < 3:
        raise ConfigError("dataset.length", expected="at least 3 tokens: a start, a word and an end", got=length)
    sources = [Source(name, md5, (SERVER + name,)) for name, md5 in FILES.items()]
    train, test = load("trec6", folder, [_find], sources, also=["trec", "TREC"])
    samples = tokenise([train.texts, test.texts], length, pieces, tokenizer)
    return Dataset("trec6", samples[0], train.labels, samples[1], test.labels, classes=len(CLASSES))


def _find(place: Path) -> tuple[_Questions, _Questions] | None:
    missing = [name for name in FILES if not (place / name).is_file()]
    if len(missing) == len(FILES):
        return None
    if missing:
        raise incomplete("trec6", place, missing)
    train, test = (_read(place / name) for name in FILES)
    return train, test


def _read(path: Path) -> _Questions:
    """The questions of a file, each in a line after its class and its finer one: `NUM:dist How far is it …`."""
    texts, labels = [], []
    for number, line in enumerate(read_bytes(path).decode("latin-1").splitlines(), 1):
        about, _, text = line.strip().partition(" ")
        kind, _, finer = about.partition(":")
        if kind not in CLASSES or not finer or not text:
            raise damaged(path, f"line {number}: expected CLASS:finer and a question, got {line[:40]!r}")
        texts.append(text)
        labels.append(CLASSES.index(kind))
    if not texts:
        raise damaged(path, "no questions in it")
    return _Questions(texts, torch.tensor(labels))

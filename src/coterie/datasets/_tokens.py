"""Texts as tokens with a mask: by a tokenizer of the user's, or by word pieces of the training texts."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from coterie.datasets._pieces import PAD, encode, vocabulary
from coterie.errors import ConfigError, DataError
from coterie.files import named


def tokenise(parts: Sequence[list[str]], length: int, pieces: int, tokenizer: str | None) -> list[dict[str, Tensor]]:
    """Tokens and mask of the texts of each part, the training part first, all cut or padded to a length."""
    if tokenizer is not None:
        made = read_tokenizer(tokenizer)
        return [_by_tokenizer(made, texts, length) for texts in parts]
    known = {piece: number for number, piece in enumerate(vocabulary(parts[0], pieces))}
    return [_by_pieces(known, texts, length) for texts in parts]


def read_tokenizer(folder: str, ends: bool = False) -> Any:
    """The tokenizer that transformers finds in a folder; it must know how to pad, and if `ends` how to end a text."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        cure = 'Install it: pip install "coterie[transformers]".'
        raise ConfigError("dataset.tokenizer needs transformers", cure=cure) from None
    path = named(folder)
    cure = "Save one there: tokenizer.save_pretrained(folder)."
    if not path.is_dir():
        raise DataError("dataset.tokenizer", expected="a folder with a tokenizer", got=folder, cure=cure)
    try:
        made = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:  # the library raises of all kinds
        why = " ".join(str(error).split())[:120]
        raise DataError(f"no tokenizer that can be read in {path} ({why})", cure=cure) from error
    for what, wanted, token in (("the end of a text", ends, "eos_token"), ("padding", True, "pad_token")):
        if wanted and getattr(made, f"{token}_id") is None:
            chosen = f'tokenizer.add_special_tokens({{"{token}": "[{token[:3].upper()}]"}})'
            if token == "pad_token" and made.eos_token:
                chosen = "tokenizer.pad_token = tokenizer.eos_token"
            cure = f"Choose one and save it: {chosen}; tokenizer.save_pretrained(folder)."
            raise DataError(f"the tokenizer in {path} has no token for {what}", cure=cure)
    return made


def _by_tokenizer(made: Any, texts: list[str], length: int) -> dict[str, Tensor]:
    found = made(texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt")
    return {"tokens": found["input_ids"].long(), "mask": found["attention_mask"].bool()}


def _by_pieces(known: dict[str, int], texts: list[str], length: int) -> dict[str, Tensor]:
    tokens = torch.full((len(texts), length), PAD)
    for row, text in zip(tokens, texts, strict=True):
        found = torch.tensor(encode(text, known, length))
        row[: len(found)] = found
    return {"tokens": tokens, "mask": tokens != PAD}

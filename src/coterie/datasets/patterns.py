from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.datasets import IGNORED, Dataset
from coterie.datasets._tokens import read_tokenizer
from coterie.errors import ConfigError
from coterie.randomness import generator

Grid = NDArray[np.float64]
Outline = Callable[[Grid, Grid], NDArray[np.bool_]]

SHAPES: dict[str, Outline] = {
    "rows": lambda x, y: np.sin(2.5 * np.pi * y) > 0,
    "columns": lambda x, y: np.sin(2.5 * np.pi * x) > 0,
    "slopes": lambda x, y: np.sin(2 * np.pi * (x + y)) > 0,
    "checks": lambda x, y: np.sin(2 * np.pi * x) * np.sin(2 * np.pi * y) > 0,
    "disc": lambda x, y: np.hypot(x, y) < 0.6,
    "ring": lambda x, y: np.abs(np.hypot(x, y) - 0.6) < 0.2,
    "cross": lambda x, y: np.minimum(np.abs(x), np.abs(y)) < 0.2,
    "frame": lambda x, y: np.abs(np.maximum(np.abs(x), np.abs(y)) - 0.65) < 0.15,
    "wedge": lambda x, y: np.abs(x) < (y + 0.8) / 2,
    "corner": lambda x, y: (x < 0.1) & (y < 0.1),
}
"""Ten patterns by name, each where its pixels are bright: x and y go from -1 to 1."""

PROMPTS = {
    "draft an advertisement for this": "buy a {}",
    "write a poem about this": "oh lovely {}",
    "explain why this is funny": "because of the {}",
    "how do i make this": "just draw a {}",
}
"""Four prompts, and what answers each about a pattern."""

PAD, END = 0, 1
WORDS = (
    "[PAD]",
    "[END]",
    *dict.fromkeys(w for p, a in PROMPTS.items() for w in f"{p} {a}".split() if w != "{}"),
    *SHAPES,
)
"""The vocabulary: every word of prompts and answers."""


def pictures(labels: NDArray[np.int64], size: int, rng: np.random.Generator) -> Tensor:
    """A picture `[3, size, size]` of each pattern, shifted and scaled a little, of any colour, and noisy."""
    line = (np.arange(size) + 0.5) / size * 2 - 1
    shapes, found = list(SHAPES.values()), np.empty((len(labels), 3, size, size), np.float32)
    for picture, label in zip(found, labels, strict=True):
        (across, down), scale = rng.uniform(-0.15, 0.15, 2), rng.uniform(0.85, 1.15)
        bright = shapes[label]((line[None, :] - across) * scale, (line[:, None] - down) * scale)
        picture[:] = np.broadcast_to(bright, (size, size)) * rng.uniform(0.6, 1.4, (3, 1, 1)) - 0.5
        picture += 0.2 * rng.normal(size=picture.shape)
    return torch.from_numpy(found)


def texts(tokenizer: str | None = None) -> tuple[dict[str, Tensor], Tensor]:
    """The four prompts as tokens `[4, P]` with a mask, and their answers by pattern `[10, 4, A]`, with an end each.

    Prompts are padded on the left, so that answers follow at once, and answers with -100 on the right.
    """
    made = None if tokenizer is None else read_tokenizer(tokenizer, ends=True)

    def encoded(text: str) -> list[int]:
        return (
            [WORDS.index(w) for w in text.split()] if made is None else made(text, add_special_tokens=False).input_ids
        )

    pad, end = (PAD, END) if made is None else (made.pad_token_id, made.eos_token_id)
    prompts = [encoded(p) for p in PROMPTS]
    answers = [[*encoded(a.format(name)), end] for name in SHAPES for a in PROMPTS.values()]
    width, longest = max(map(len, prompts)), max(map(len, answers))
    asked = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[False] * (width - len(p)) + [True] * len(p) for p in prompts])
    even = torch.tensor([a + [IGNORED] * (longest - len(a)) for a in answers])
    return {"prompts": asked, "mask": mask}, even.view(len(SHAPES), len(PROMPTS), longest)


def patterns(
    folder: Path | None = None,
    *,
    samples: int = 1000,
    test_samples: int = 200,
    size: int = 16,
    tokenizer: str | None = None,
) -> Dataset:
    """Pictures of ten simple patterns with four prompts and their answers, for models of vision and language.

    Files: none; they are drawn. A sample is a picture, four prompts as tokens with a mask, and their answers but for
    the last token; whole answers are the targets. Without a `tokenizer` (a folder with one as
    transformers keeps it) each of the few words is a token.
    """
    if min(samples, test_samples) < 1 or size < 8:
        expected = "at least one sample for training and for testing, of at least 8 pixels a side"
        raise ConfigError("dataset 'patterns'", expected=expected, got=f"{samples}, {test_samples} and {size}")
    asked, answers = texts(tokenizer)

    def part(count: int, which: int) -> tuple[dict[str, Tensor], Tensor]:
        rng = generator(0, "patterns", which)
        labels = rng.permutation(np.arange(count) % len(SHAPES))
        targets = answers[torch.from_numpy(labels)]
        alike = {name: t.expand(count, *t.shape).contiguous() for name, t in asked.items()}
        return {"image": pictures(labels, size, rng), **alike, "answers": targets[..., :-1].clamp(min=0)}, targets

    return Dataset("patterns", *part(samples, 0), *part(test_samples, 1))

"""Data, models and a metric as a user would bring them: words with a mask, numbers, and texts to go on with."""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie.contract import Me
from coterie.datasets import Dataset
from coterie.metrics import Mean, Values
from coterie.metrics.loss import Loss

WORDS, LENGTH = 12, 7


def _ids(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Words, and which of them are there: the rest is padding."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, WORDS, (samples, LENGTH), generator=draw)
    mask = torch.arange(LENGTH) < torch.randint(2, LENGTH + 1, (samples, 1), generator=draw)
    return ids * mask, mask


def tokens(folder: Path | None = None, *, samples: int = 300) -> Dataset:
    """Sentences as word numbers with a mask; the label says whether there are more even words than odd ones."""

    def part(count: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
        ids, mask = _ids(count, seed)
        even = ((ids % 2 == 0) & mask).sum(1) > ((ids % 2 == 1) & mask).sum(1)
        return {"ids": ids, "mask": mask}, even.long()

    return Dataset("tokens", *part(samples, 0), *part(100, 1), classes=2)


def pairs(folder: Path | None = None) -> Dataset:
    """The same as a tuple of an image of bytes and numbers, with one label in four: as many kinds as there are."""
    draw = torch.Generator().manual_seed(0)

    def part(count: int) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
        image = torch.randint(0, 256, (count, 1, 4, 4), generator=draw, dtype=torch.uint8)
        floats = torch.randn(count, 3, 4, 4, generator=draw)
        age = torch.rand(count, generator=draw)
        label = 2 * (floats[:, 0].mean((1, 2)) > 0) + (age > 0.5)
        return (image, floats, age), label.long()

    return Dataset("pairs", *part(240), *part(60), classes=4)


def photos(folder: Path | None = None) -> Dataset:
    """Images of two kinds, whose channels and pixels all mean something else."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(300, 3, 4, 5, generator=draw)
    y = (x.flatten(1) @ torch.randn(60, generator=draw) > 0).long()
    return Dataset("photos", x[:200], y[:200], x[200:], y[200:], classes=2)


def numbers(folder: Path | None = None, *, outputs: int = 1) -> Dataset:
    """Points and a linear function of them, with a little noise."""
    draw = torch.Generator().manual_seed(0)
    slope = torch.randn(5, outputs, generator=draw)
    x = torch.randn(400, 5, generator=draw)
    y = x @ slope + 0.05 * torch.randn(400, outputs, generator=draw)
    y = y[:, 0] if outputs == 1 else y
    return Dataset("numbers", x[:300], y[:300], x[300:], y[300:])


def vectors(folder: Path | None = None) -> Dataset:
    """Points and three functions of them."""
    return numbers(folder, outputs=3)


def texts(folder: Path | None = None) -> Dataset:
    """Texts in which each word is followed by the next higher one, and what comes next of each; -100 for padding."""

    def part(count: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
        first, (_, mask) = _ids(count, seed)[0][:, :1], _ids(count, seed)
        ids = (first + torch.arange(LENGTH)) % WORDS
        return {"ids": ids, "mask": mask}, torch.where(mask, (ids + 1) % WORDS, -100)

    return Dataset("texts", *part(200, 0), *part(60, 1))


class _Attention(nn.Module):
    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.words, self.asks = nn.Embedding(WORDS, width), nn.Linear(width, 1)
        self.last = nn.Linear(width, classes)

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        seen = self.words(x["ids"])
        weights = self.asks(seen).squeeze(-1).masked_fill(~x["mask"], -1e9).softmax(-1)
        out: Tensor = self.last((weights.unsqueeze(-1) * seen).sum(-2))
        return out


def attention(shape: dict[str, tuple[int, ...]], classes: int, *, width: int = 8) -> nn.Module:
    """Words, weighed by attention, then one layer."""
    assert shape == {"ids": (LENGTH,), "mask": (LENGTH,)}
    return _Attention(classes, width)


class _Recurrent(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.words, self.reads, self.last = (
            nn.Embedding(WORDS, 8),
            nn.GRU(8, 8, batch_first=True),
            nn.Linear(8, classes),
        )

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        read, _ = self.reads(self.words(x["ids"]) * x["mask"].unsqueeze(-1))
        out: Tensor = self.last(read[:, -1])
        return out


def recurrent(shape: dict[str, tuple[int, ...]], classes: int) -> nn.Module:
    """Words, read one after the other."""
    return _Recurrent(classes)


class _Both(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.sees, self.last = nn.Conv2d(3, 2, 3), nn.Linear(8 + 16 + 1, classes)

    def forward(self, x: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        image, floats, age = x
        assert image.dtype == torch.uint8
        whole = [self.sees(floats).flatten(1), image.flatten(1) / 255.0, age.unsqueeze(-1)]
        out: Tensor = self.last(torch.cat(whole, -1))
        return out


def both(shape: tuple[tuple[int, ...], ...], classes: int) -> nn.Module:
    """An image, bytes and a number together."""
    assert shape == ((1, 4, 4), (3, 4, 4), ())
    return _Both(classes)


class _Continues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        out: Tensor = self.last(self.words(x["ids"]))
        return out


def continues(shape: dict[str, tuple[int, ...]], classes: int) -> nn.Module:
    """For each word what may come next: scores `[B, L, words]`."""
    assert classes == 0  # the targets do not say how many words there are
    return _Continues()


def absolute(outputs: Tensor, target: Tensor, me: Me, noise: Tensor) -> Tensor:
    """How far a number is off, counted more or less as is drawn."""
    return (outputs.squeeze(-1) - target).abs() * (0.5 + noise)


@dataclass
class Worst(Mean):
    """The share of samples that are off by more than `most`."""

    most: float = 1.0

    def each(self, outputs: Tensor, targets: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        return (outputs - targets).abs().amax(-1) > self.most, real


class Bits(Loss):
    """The loss in bits."""

    validated = False

    def value(self) -> Values:
        return super().value() / float(F.softplus(torch.tensor(0.0)))

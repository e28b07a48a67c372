"""Stacks of layers the models share."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from coterie.errors import ConfigError

Norm = Literal["none", "batch", "layer"]
NormPlace = Literal["convolution", "pool"]


def dense(sizes: Sequence[int], *, dropout: float = 0.0) -> list[nn.Module]:
    """Linear layers through these sizes, ReLU (and dropout) after each but the last."""
    if min(sizes) < 1:
        raise ConfigError("layer sizes", expected="whole numbers of at least 1", got=list(sizes))
    if not 0 <= dropout < 1:
        raise ConfigError("dropout", expected="a share from 0 to below 1", got=dropout)
    layers: list[nn.Module] = []
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        layers.append(nn.Linear(fan_in, fan_out))
        if i < len(sizes) - 2:
            layers += [nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
    return layers


def convolutions(
    model: str,
    shape: tuple[int, ...],
    channels: Sequence[int | Literal["pool"]],
    *,
    kernel: int,
    padding: int = 0,
    norm: Norm = "none",
    norm_after: NormPlace = "convolution",
) -> tuple[list[nn.Module], int]:
    """Convolutions with ReLU, one for each number of channels, with a 2×2 max-pool at each "pool"; and what they give.

    Normalisation follows each convolution or each pool. The second value is the number of features left for the dense
    layers.
    """
    depth, height, width = image(model, shape)
    if norm_after not in get_args(NormPlace):
        raise ConfigError(f"{model}.norm_after", expected=" or ".join(get_args(NormPlace)), got=norm_after)
    if kernel < 1 or padding < 0 or any(c != "pool" and c < 1 for c in channels):
        expected = "channels and kernel of at least 1, padding of at least 0"
        raise ConfigError(f"model {model!r}", expected=expected, got=f"{list(channels)}, {kernel} and {padding}")
    layers: list[nn.Module] = []
    for step in channels:
        if step == "pool":  # before ReLU, which then has a quarter to do: the same function, and the same gradient
            at = len(layers) - bool(layers and isinstance(layers[-1], nn.ReLU))
            layers.insert(at, nn.MaxPool2d(2))
            layers += normalisation(norm, depth) if norm_after == "pool" else []
            height, width = height // 2, width // 2
        else:
            layers.append(nn.Conv2d(depth, step, kernel, padding=padding))
            layers += [*(normalisation(norm, step) if norm_after == "convolution" else []), nn.ReLU()]
            depth, height, width = step, height + 2 * padding - kernel + 1, width + 2 * padding - kernel + 1
        if min(height, width) < 1:
            raise too_small(model, shape)
    return layers, depth * height * width


def too_small(model: str, shape: tuple[int, ...]) -> ConfigError:
    """The error for images of which a model's layers would leave nothing."""
    cure = "Use larger images, or the model 'mlp', or 'cnn' with fewer channels."
    return ConfigError(f"{shape[1]}×{shape[2]} pixels are too few for the layers of model {model!r}", cure=cure)


def image(model: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width of the images, or an error that says what else takes such samples."""
    if len(shape) != 3:
        cure = "Use 'mlp' or 'logistic' for other samples."
        raise ConfigError(f"model {model!r}", expected="images (channels, height, width)", got=shape, cure=cure)
    depth, height, width = shape
    return depth, height, width


def normalisation(norm: Norm, channels: int) -> list[nn.Module]:
    """The layer that normalises this many channels, if any; its parameters follow the channels."""
    if norm == "batch":
        return [nn.BatchNorm2d(channels)]
    if norm == "layer":
        # One group over all channels is layer norm, with one scale and shift per channel rather than per pixel, so that
        # the parameters do not depend on the image size and follow the channels when a model is cut narrower.
        return [nn.GroupNorm(1, channels)]
    if norm != "none":
        raise ConfigError("norm", expected="none, batch or layer", got=norm)
    return []


class LinearScores(nn.Sequential):
    """Scores that are linear in the flattened sample, z = Wx + b.

    With `one`, two classes share one score s, and the scores are (0, s): hinge is then max(0, 1 − ys) and
    cross-entropy log(1 + e^{−ys}), with y = 1 for class 1 and −1 for class 0. Training relies on that promise.
    """

    def __init__(self, features: int, classes: int, one: bool = False) -> None:
        if one and classes != 2:
            raise ConfigError("one score for all classes", expected="2 classes", got=classes, cure="Leave `one` out.")
        super().__init__(nn.Flatten(), nn.Linear(features, 1 if one else classes))
        self.one = one

    def forward(self, x: Tensor) -> Tensor:
        """One score for each class, `[B, C]`."""
        scores: Tensor = self[1](self[0](x))
        return F.pad(scores, (1, 0)) if self.one else scores

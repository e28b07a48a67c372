from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from coterie.errors import ConfigError
from coterie.models._layers import Norm, image, normalisation


class _Block(nn.Module):
    """Two 3×3 convolutions, each after norm and ReLU, beside a shortcut."""

    def __init__(self, before: int, channels: int, stride: int, norm: Norm) -> None:
        super().__init__()
        bias = norm == "none"
        self.norm1 = nn.Sequential(*normalisation(norm, before))
        self.conv1 = nn.Conv2d(before, channels, 3, stride=stride, padding=1, bias=bias)
        self.norm2 = nn.Sequential(*normalisation(norm, channels))
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)
        self.shortcut = None
        if stride > 1 or before != channels:
            self.shortcut = nn.Conv2d(before, channels, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        beside: Tensor = x if self.shortcut is None else self.shortcut(active)
        inner: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return beside + inner


class _Mean(nn.Module):
    """The mean over the pixels of each channel."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def resnet(
    shape: tuple[int, ...],
    classes: int,
    *,
    channels: tuple[int, ...] = (64, 128, 256, 512),
    blocks: int = 2,
    norm: Norm = "batch",
    stem: int = 3,
) -> nn.Module:
    """A pre-activation residual net: ResNet18, or one as wide and deep as its channels and blocks say.

    `channels` are those of the stages, each of so many `blocks`; every stage but the first halves the image. The `stem`
    is a convolution of 3×3 pixels, or one of 7×7 that halves the image, with a 3×3 max-pool that halves it again. Only
    without `norm` convolutions have biases. On CIFAR-10: 11,172,170 parameters.

    Reference: He et al., Identity Mappings in Deep Residual Networks, 2016
    """
    depth, _, _ = image("resnet", shape)
    if not channels or min(*channels, blocks) < 1:
        expected = "at least one stage, with channels and blocks of at least 1"
        raise ConfigError("model 'resnet'", expected=expected, got=f"{list(channels)} and {blocks}")
    if stem not in (3, 7):
        raise ConfigError("resnet.stem", expected="3 or 7", got=stem)
    first = nn.Conv2d(depth, channels[0], stem, stride=1 if stem == 3 else 2, padding=stem // 2, bias=norm == "none")
    layers: list[nn.Module] = [first, *([nn.MaxPool2d(3, stride=2, padding=1)] if stem == 7 else [])]
    for stage, (before, width) in enumerate(pairwise([channels[0], *channels])):
        layers += [
            _Block(width if block else before, width, 2 if stage and not block else 1, norm) for block in range(blocks)
        ]
    head = [*normalisation(norm, channels[-1]), nn.ReLU(), _Mean(), nn.Linear(channels[-1], classes)]
    return nn.Sequential(*layers, *head)

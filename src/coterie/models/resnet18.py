from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from coterie.errors import ConfigError
from coterie.models._layers import Norm, image, normalisation


class _Block(nn.Module):
    """Two 3×3 convolutions with norm beside a shortcut, and ReLU after the sum."""

    def __init__(self, before: int, channels: int, stride: int, norm: Norm) -> None:
        super().__init__()
        bias = norm == "none"
        self.inner = nn.Sequential(
            nn.Conv2d(before, channels, 3, stride=stride, padding=1, bias=bias),
            *normalisation(norm, channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=bias),
            *normalisation(norm, channels),
        )
        changes = stride > 1 or before != channels
        cut = [nn.Conv2d(before, channels, 1, stride=stride, bias=bias), *normalisation(norm, channels)]
        self.shortcut = nn.Sequential(*cut) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        beside: Tensor = x if self.shortcut is None else self.shortcut(x)
        inner: Tensor = self.inner(x)
        return F.relu(beside + inner)


def resnet18(
    shape: tuple[int, ...],
    classes: int,
    *,
    channels: tuple[int, ...] = (64, 128, 256, 512),
    blocks: int = 2,
    norm: Norm = "batch",
) -> nn.Module:
    """ResNet-18 as it was first described: norm and ReLU after each convolution, and a stem of 7×7 pixels.

    The stem halves the image, a 3×3 max-pool halves it again, and so does every stage but the first. `channels` are
    those of the stages: 8, 16, 32, 64 make it an eighth as wide. Of images up to 32×32 the last stage sees a single
    pixel, and batch norm then needs mini-batches of two samples or more. On ImageNet: 11,689,512 parameters.

    Reference: He et al., Deep Residual Learning for Image Recognition, 2016
    """
    depth, _, _ = image("resnet18", shape)
    if not channels or min(*channels, blocks) < 1:
        expected = "at least one stage, with channels and blocks of at least 1"
        raise ConfigError("model 'resnet18'", expected=expected, got=f"{list(channels)} and {blocks}")
    layers: list[nn.Module] = [
        nn.Conv2d(depth, channels[0], 7, stride=2, padding=3, bias=norm == "none"),
        *normalisation(norm, channels[0]),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    for stage, (before, width) in enumerate(pairwise([channels[0], *channels])):
        layers += [
            _Block(width if block else before, width, 2 if stage and not block else 1, norm) for block in range(blocks)
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], classes))

from typing import Literal

from torch import nn

from coterie.models._layers import convolutions
from coterie.models._layers import dense as connected

_STEPS: tuple[int | Literal["pool"], ...] = (
    *(64, 64, "pool"),
    *(128, 128, "pool"),
    *(256, 256, 256, "pool"),
    *(512, 512, 512, "pool"),
    *(512, 512, 512, "pool"),
)


def vgg16(
    shape: tuple[int, ...], classes: int, *, width: float = 1.0, dropout: float = 0.5, dense: int = 4096
) -> nn.Module:
    """VGG16 without batch norm: thirteen 3×3 convolutions in five pooled groups, then 4096, 4096; images from 32×32.

    On CIFAR-10: dense layers 512 → 4096 → 4096 → 10, 33,638,218 parameters in all. `width` multiplies the channels and
    `dense` is the size of the dense layers: small ones make a thin net of the same depth.

    Reference: Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, 2015
    """
    steps = tuple(step if step == "pool" else max(1, round(width * step)) for step in _STEPS)
    layers, features = convolutions("vgg16", shape, steps, kernel=3, padding=1)
    return nn.Sequential(*layers, nn.Flatten(), *connected([features, dense, dense, classes], dropout=dropout))

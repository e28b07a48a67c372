from typing import Literal

from torch import nn

from coterie.models._layers import convolutions, dense

_STEPS: tuple[int | Literal["pool"], ...] = (
    *(64, 64, "pool"),
    *(128, 128, "pool"),
    *(256, 256, 256, "pool"),
    *(512, 512, 512, "pool"),
    *(512, 512, 512, "pool"),
)


def vgg16(shape: tuple[int, ...], classes: int, *, dropout: float = 0.5) -> nn.Module:
    """VGG16 without batch norm: thirteen 3×3 convolutions in five pooled groups, then 4096, 4096; images from 32×32.

    On CIFAR-10: dense layers 512 → 4096 → 4096 → 10, 33,638,218 parameters in all.

    Reference: Simonyan and Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, 2015
    """
    layers, features = convolutions("vgg16", shape, _STEPS, kernel=3, padding=1)
    return nn.Sequential(*layers, nn.Flatten(), *dense([features, 4096, 4096, classes], dropout=dropout))

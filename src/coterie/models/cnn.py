from typing import Literal

from torch import nn

from coterie.models._layers import Norm, NormPlace, convolutions, dense


def cnn(
    shape: tuple[int, ...],
    classes: int,
    *,
    channels: tuple[int, ...] = (32, 64),
    kernel: int = 5,
    hidden: tuple[int, ...] = (),
    padding: int | None = None,
    norm: Norm = "none",
    norm_after: NormPlace = "convolution",
) -> nn.Module:
    """A convolutional net: convolution, ReLU and 2×2 max-pool for each number of channels, then dense layers.

    `hidden` are the sizes of dense layers before the last. Without `padding` each side gets kernel // 2 pixels, which
    keeps the image size for odd kernels. `norm` stands between convolution and ReLU, or after the pool; "layer" takes
    all channels and pixels of a sample together.
    """
    steps: list[int | Literal["pool"]] = [step for count in channels for step in (count, "pool")]
    pad = kernel // 2 if padding is None else padding
    layers, features = convolutions("cnn", shape, steps, kernel=kernel, padding=pad, norm=norm, norm_after=norm_after)
    return nn.Sequential(*layers, nn.Flatten(), *dense([features, *hidden, classes]))

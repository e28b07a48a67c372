from typing import Literal, NamedTuple, get_args

from torch import Tensor, nn

from coterie.errors import ConfigError
from coterie.models._layers import image, too_small
from coterie.models._transformers import library

Variant = Literal["b0", "b1", "b2", "b3", "b4"]


class _Scaling(NamedTuple):
    width: float
    depth: float
    features: int
    dropout: float


_VARIANTS: dict[Variant, _Scaling] = {
    "b0": _Scaling(1.0, 1.0, 1280, 0.2),
    "b1": _Scaling(1.0, 1.1, 1280, 0.2),
    "b2": _Scaling(1.1, 1.2, 1408, 0.3),
    "b3": _Scaling(1.2, 1.4, 1536, 0.3),
    "b4": _Scaling(1.4, 1.8, 1792, 0.4),
}


class _Scores(nn.Module):
    """A classifier of the library, called with a batch and giving scores alone."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.net(pixel_values=x).logits
        return scores


def efficientnet(shape: tuple[int, ...], classes: int, *, variant: Variant = "b0") -> nn.Module:
    """EfficientNet B0 to B4 with random weights, for images from 32×32; best from 64×64.

    Of 32×32 pixels the last layers see a single one, and their batch norm then needs mini-batches of two samples or
    more. Needs transformers: pip install "coterie[transformers]". Nothing is downloaded.

    Reference: Tan and Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, 2019
    """
    depth, height, width = image("efficientnet", shape)
    if variant not in get_args(Variant):
        raise ConfigError("efficientnet.variant", expected=", ".join(get_args(Variant)), got=variant)
    if min(height, width) < 32:  # it halves five times
        raise too_small("efficientnet", shape)
    kinds = library("model 'efficientnet'")
    scaling = _VARIANTS[variant]
    configuration = kinds.EfficientNetConfig(
        num_channels=depth,
        num_labels=classes,
        image_size=max(height, width),
        width_coefficient=scaling.width,
        depth_coefficient=scaling.depth,
        hidden_dim=scaling.features,
        dropout_rate=scaling.dropout,
        batch_norm_momentum=0.1,  # the library's 0.99 is TensorFlow's; in PyTorch it forgets all but the last batch
    )
    net = kinds.EfficientNetForImageClassification(configuration)
    for layer in net.modules():  # the library draws the scales of batch norm around 0, and the signal fades away
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    return _Scores(net)

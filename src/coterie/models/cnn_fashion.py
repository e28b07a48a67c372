from torch import nn

from coterie.models._layers import convolutions, dense


def cnn_fashion(shape: tuple[int, ...], classes: int, *, dropout: bool = False) -> nn.Module:
    """The Fashion-MNIST net of the papers: two 3×3 convolutions of 32 and 64 channels, pooled once, then 128.

    On Fashion-MNIST: dense layers 9216 → 128 → 10, 1,199,882 parameters in all. `dropout` drops 0.25 of the features
    and 0.5 of the hidden units.

    Reference: Valerio et al., Coordination-free Decentralised Federated Learning on Complex Networks, 2023
    """
    layers, features = convolutions("cnn_fashion", shape, (32, 64, "pool"), kernel=3)
    drop = [nn.Dropout(0.25)] if dropout else []
    return nn.Sequential(
        *layers, *drop, nn.Flatten(), *dense([features, 128, classes], dropout=0.5 if dropout else 0.0)
    )

from torch import nn

from coterie.models._layers import convolutions, dense


def cnn_so2sat(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The satellite net of the initialisation paper: 3×3 convolutions of 32, 64, 64 channels, unpooled, then 128, 64.

    Reference: Badie-Modiri et al., Initialisation and Network Effects in Decentralised Federated Learning
    """
    layers, features = convolutions("cnn_so2sat", shape, (32, 64, 64), kernel=3, padding=1)
    return nn.Sequential(*layers, nn.Flatten(), *dense([features, 128, 64, classes]))

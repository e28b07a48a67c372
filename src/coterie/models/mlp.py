from math import prod

from torch import nn

from coterie.models._layers import dense


def mlp(shape: tuple[int, ...], classes: int, *, sizes: tuple[int, ...] = (512, 256, 128)) -> nn.Module:
    """A multi-layer perceptron with these hidden sizes and ReLU between the layers.

    The default sizes are those of both papers on uncoordinated starts.

    Reference: Valerio et al., Coordination-free Decentralised Federated Learning on Complex Networks, 2023
    """
    return nn.Sequential(nn.Flatten(), *dense([prod(shape), *sizes, classes]))

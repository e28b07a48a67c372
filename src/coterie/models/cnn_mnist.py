from torch import nn

from coterie.models._layers import convolutions, dense


def cnn_mnist(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The MNIST net of the Hessian-weighting paper: two 5×5 convolutions of 10 and 20 channels, each pooled, then 50.

    On MNIST: dense layers 320 → 50 → 10, 21,840 parameters in all.

    Reference: Ahmad et al., DecHW: Heterogeneous Decentralized Federated Learning Exploiting Second-Order Information
    """
    layers, features = convolutions("cnn_mnist", shape, (10, "pool", 20, "pool"), kernel=5)
    return nn.Sequential(*layers, nn.Flatten(), *dense([features, 50, classes]))

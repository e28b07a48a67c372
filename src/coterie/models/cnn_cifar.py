from torch import nn

from coterie.models._layers import convolutions, dense


def cnn_cifar(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The CIFAR-10 net of the Hessian-weighting paper: 3×3 convolutions of 32, 64, 128 channels, each pooled, then 128.

    On CIFAR-10: dense layers 2048 → 128 → 10, 356,810 parameters in all.

    Reference: Ahmad et al., DecHW: Heterogeneous Decentralized Federated Learning Exploiting Second-Order Information
    """
    layers, features = convolutions("cnn_cifar", shape, (32, "pool", 64, "pool", 128, "pool"), kernel=3, padding=1)
    return nn.Sequential(*layers, nn.Flatten(), *dense([features, 128, classes]))

from torch import nn

from coterie.models.cnn_fashion import cnn_fashion


def cnn_emnist(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The EMNIST net of the papers: `cnn_fashion` with dropout of 0.25 and 0.5.

    Reference: Valerio et al., Coordination-free Decentralised Federated Learning on Complex Networks, 2023
    """
    return cnn_fashion(shape, classes, dropout=True)

"""Everything at zero."""

from torch import nn

from coterie.initialisers import Origin, weights, zero_biases


def zeros(module: nn.Module, origin: Origin) -> None:
    """Weights and biases at zero, the same for all nodes: for models of one layer, whose loss is convex.

    W = 0,   b = 0
    """
    for w in weights(module):
        nn.init.zeros_(w)
    zero_biases(module)

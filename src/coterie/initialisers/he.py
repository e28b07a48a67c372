"""Weights scaled for rectified units."""

from typing import Literal

from torch import nn

from coterie.initialisers import Origin, weights, zero_biases
from coterie.randomness import torch_generator


def he(
    module: nn.Module,
    origin: Origin,
    *,
    law: Literal["normal", "uniform"] = "normal",
    activation: Literal["relu", "leaky_relu", "tanh", "sigmoid", "selu", "linear"] = "relu",
) -> None:
    """He's start: weights of variance g²/fan_in, g by the activation, biases zero, every node with its own draw.

        W ~ N(0, g²/fan_in);   g² = 2 for rectified units, 25/9 for tanh, 1 for linear ones

    Reference: He et al., Delving Deep into Rectifiers, 2015
    """
    rng = torch_generator(origin.seed, "start", origin.node)
    fill = nn.init.kaiming_normal_ if law == "normal" else nn.init.kaiming_uniform_
    for w in weights(module):
        fill(w, nonlinearity=activation, generator=rng)
    zero_biases(module)

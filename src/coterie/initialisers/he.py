"""Weights scaled for rectified units."""

from typing import Literal

from torch import nn

from coterie.initialisers import Origin, weights, zero_biases
from coterie.randomness import torch_generator


def he(module: nn.Module, origin: Origin, *, law: Literal["normal", "uniform"] = "normal") -> None:
    """He's start: weights of variance 2/fan_in, biases zero, every node with its own draw.

        W ~ N(0, 2/fan_in)

    Reference: He et al., Delving Deep into Rectifiers, 2015
    """
    rng = torch_generator(origin.seed, "start", origin.node)
    fill = nn.init.kaiming_normal_ if law == "normal" else nn.init.kaiming_uniform_
    for w in weights(module):
        fill(w, nonlinearity="relu", generator=rng)
    zero_biases(module)

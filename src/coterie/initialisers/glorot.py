"""Weights scaled for both directions."""

from typing import Literal

from torch import nn

from coterie.initialisers import Origin, weights, zero_biases
from coterie.randomness import torch_generator


def glorot(module: nn.Module, origin: Origin, *, law: Literal["normal", "uniform"] = "uniform") -> None:
    """Glorot's start: weights of variance 2/(fan_in + fan_out), biases zero, every node with its own draw.

        Var W = 2/(fan_in + fan_out)

    Reference: Glorot and Bengio, Understanding the Difficulty of Training Deep Feedforward Neural Networks, 2010
    """
    rng = torch_generator(origin.seed, "start", origin.node)
    fill = nn.init.xavier_normal_ if law == "normal" else nn.init.xavier_uniform_
    for w in weights(module):
        fill(w, generator=rng)
    zero_biases(module)

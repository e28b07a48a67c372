"""What PyTorch does."""

import torch
from torch import nn

from coterie.initialisers import Origin, drawn
from coterie.randomness import key


def default(module: nn.Module, origin: Origin) -> None:
    """PyTorch's own start: each layer's `reset_parameters`, every node with its own draw.

    W ~ U(−1/√fan_in, 1/√fan_in) for linear and convolutional layers, biases likewise
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(origin.seed, "start", origin.node) >> 1)
        for layer in drawn(module):
            reset = getattr(layer, "reset_parameters", None)
            if callable(reset):
                fixed = [(p, p.detach().clone()) for p in layer.parameters(recurse=False) if not p.requires_grad]
                reset()
                for p, before in fixed:
                    p.data = before

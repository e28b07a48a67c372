"""Optimisers of PyTorch that there are here, too, as parts of this room."""

import inspect
from dataclasses import dataclass
from typing import Any

import torch

from coterie.errors import ConfigError
from coterie.optimisers.adam import Adam
from coterie.optimisers.adamw import AdamW
from coterie.optimisers.sgd import SGD


@dataclass(frozen=True)
class _SGD(SGD):
    """Stochastic gradient descent, with the rate that PyTorch has where none is said."""

    lr: float = 0.001


HERE: dict[type, type] = {torch.optim.SGD: _SGD, torch.optim.Adam: Adam, torch.optim.AdamW: AdamW}


def adapt(thing: Any) -> Any:
    """A user's class as it is; for a class of PyTorch ours that takes the same steps, for many nodes at once."""
    kind = thing if inspect.isclass(thing) else type(thing)
    if thing in HERE:
        return HERE[thing]
    if issubclass(kind, torch.optim.Optimizer):
        cure = 'Name one: {"name": "adam", "lr": 0.01}; or inherit coterie.optimisers.Optimiser.'
        expected = "torch.optim.SGD, Adam or AdamW, as a class or with settings by functools.partial"
        got = kind.__name__ if thing is kind else f"one that is made, of {kind.__name__}"
        raise ConfigError("optimisers of PyTorch hold one model's parameters", expected=expected, got=got, cure=cure)
    return thing

"""Functions of users, as parts of this room."""

import inspect
from typing import Any

import torch
from torch import Tensor

from coterie.errors import ConfigError
from coterie.metrics import Mean


def adapt(thing: Any) -> Any:
    """A user's class as it is; a function of outputs and targets, that gives what each sample is worth, as a mean."""
    if not inspect.isroutine(thing):
        return thing

    class Worth(Mean):
        def each(self, outputs: Tensor, targets: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
            worth = [torch.as_tensor(thing(said, wanted)) for said, wanted in zip(outputs, targets, strict=True)]
            if any(one.shape[:1] != real.shape[1:] for one in worth):
                expected = f"one number for each sample, [{real.shape[1]}]"
                raise ConfigError(f"metric {thing.__name__}", expected=expected, got=list(worth[0].shape))
            return torch.stack(
                [one.float().flatten(1).mean(1) if one.dim() > 1 else one.float() for one in worth]
            ), real

    Worth.__name__ = thing.__name__ if thing.__name__.isidentifier() else "function"
    Worth.__doc__ = inspect.getdoc(thing)
    return Worth

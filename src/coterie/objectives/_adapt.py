"""Losses of users, as parts of this room."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from coterie.contract import Me
from coterie.errors import ConfigError


def adapt(thing: Callable[..., Any]) -> Callable[..., Any]:
    """A user's loss as a part of this room: one of outputs and targets alone need not know of the node.

    Losses of PyTorch that are modules are such, too.
    """
    if inspect.isclass(thing) and issubclass(thing, nn.Module):
        cure = f"Hand over one that is made: {thing.__name__}(reduction='none')."
        raise ConfigError(
            "an objective is called with outputs and targets", got=f"the class {thing.__name__}", cure=cure
        )
    signature = inspect.signature(thing.forward if isinstance(thing, nn.Module) else thing)
    places = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if inspect.isclass(thing) or len([p for p in places if p.default is p.empty]) != 2:
        return thing

    @functools.wraps(thing)
    def loss(outputs: Tensor, target: Tensor, me: Me, **settings: Any) -> Tensor:
        each: Tensor = thing(outputs, target, **settings)
        if each.shape[:1] != target.shape[:1]:
            raise ConfigError(
                f"objective {getattr(thing, '__name__', type(thing).__name__)}",
                expected=f"one loss for each sample, [{len(target)}]",
                got=list(each.shape),
                cure="The mean is taken later: losses of PyTorch take reduction='none'.",
            )
        return each.flatten(1).mean(1) if each.dim() > 1 else each

    settings = [p for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
    vars(loss)["__signature__"] = inspect.Signature(list(inspect.signature(_told).parameters.values()) + settings)
    return loss


def _told(outputs: Tensor, target: Tensor, me: Me) -> None:
    """What objectives are called with."""

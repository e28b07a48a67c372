"""Modules of users, whatever their `forward` wants: the tensors of a sample as arguments, scores as an answer."""

import inspect
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

from torch import Tensor, nn

from coterie.errors import ConfigError


def called_as_it_wants(module: Any, shape: Any) -> Any:
    """A module that is called with a sample of several tensors, and takes them as arguments.

    A dict of tensors goes to arguments of these names, a tuple to as many places, if `forward` has them; one argument
    alone is handed all of it. What is no module is left to be refused.
    """
    if not isinstance(module, nn.Module) or not isinstance(shape, dict | tuple) or "forward" in vars(module):
        return module
    several = isinstance(shape, dict) or (shape and isinstance(shape[0], tuple))
    wants = inspect.signature(module.forward).parameters.values()
    places = [p for p in wants if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p.name for p in wants if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not several or len(places) < 2:
        return module
    if (
        isinstance(shape, dict)
        and (set(needed) <= set(shape))
        and (known := [p.name for p in wants if p.name in shape])
    ):
        return called(module, lambda self, x: self(**{name: x[name] for name in known}))
    if isinstance(shape, tuple) and len(needed) <= len(shape) <= len(places):
        return called(module, lambda self, x: self(*x))
    has = list(shape) if isinstance(shape, dict) else f"{len(shape)} tensors"
    raise ConfigError(
        f"forward of {type(module).__name__}",
        expected=f"arguments named like the tensors of a sample, or one for all, where samples have {has}",
        got=f"({', '.join(p.name for p in places)})",
        cure="Rename them, or say how it is called: coterie.models.called(module, lambda module, x: …).",
    )


def called(module: nn.Module, how: Callable[[Any, Any], Any]) -> nn.Module:
    """A module that is called with a sample as the data set gives it: `how(module, x)` hands that on its own way.

    Of an answer with `logits`, as transformers give, or of a tuple, the scores are taken.
    """
    own = type(module).forward

    def forward(self: nn.Module, x: Any) -> Any:
        return scores(how(_Own(self, own), x))

    vars(module)["forward"] = MethodType(forward, module)
    return module


class _Own:
    """A module under its own `forward`."""

    def __init__(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        self._module, self._forward = module, forward

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._forward(self._module, *args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def scores(answer: Any) -> Any:
    """The scores in what a module says."""
    if isinstance(answer, Tensor):
        return answer
    if (found := getattr(answer, "logits", None)) is not None:
        return found
    if isinstance(answer, Mapping) and "logits" in answer:
        return answer["logits"]
    return answer[0] if isinstance(answer, tuple) and answer else answer

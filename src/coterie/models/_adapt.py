"""What users make modules with, as parts of this room."""

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from torch import nn

from coterie.models._calling import called_as_it_wants

TOLD = ("shape", "classes")
"""What a model may be told about the data."""


def adapt(thing: Any) -> Callable[..., Any]:
    """What a user makes modules with, as a part of this room: everything but `shape` and `classes` is a setting.

    A class, or a function that is not of this room's form, is told these if it has parameters of that name. A module is
    copied for each node, and begins with the weights that it has.
    """
    if isinstance(thing, nn.Module):
        return _copies(thing)
    own = list(inspect.signature(thing).parameters.values())
    placed = [p for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not inspect.isclass(thing) and len([p for p in placed if p.default is p.empty]) == len(placed) == 2:

        @functools.wraps(thing)
        def made(shape: Any, classes: int, **settings: Any) -> Any:
            return called_as_it_wants(thing(shape, classes, **settings), shape)

        return made
    told = [p.name for p in own if p.name in TOLD]

    def make(shape: Any, classes: int, **settings: Any) -> nn.Module:
        known = {"shape": shape, "classes": classes}
        module: nn.Module = called_as_it_wants(thing(**{name: known[name] for name in told}, **settings), shape)
        return module

    first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in TOLD]
    rest = [p for p in own if p.name not in TOLD and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    vars(make)["__signature__"] = inspect.Signature(first + [p.replace(kind=p.KEYWORD_ONLY) for p in rest])
    make.__annotations__ = get_type_hints(thing.__init__ if inspect.isclass(thing) else thing, include_extras=True)
    make.__doc__ = inspect.getdoc(thing)
    return make


def _copies(module: nn.Module) -> Callable[..., nn.Module]:
    def copied(shape: Any, classes: int) -> nn.Module:
        """A module in hand, with its weights."""
        made = copy.deepcopy(module)
        vars(made)["given"] = True
        fitted: nn.Module = called_as_it_wants(made, shape)
        return fitted

    return copied

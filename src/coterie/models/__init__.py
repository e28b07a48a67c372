"""Models: name to module. One file each; found by looking.

A part of this room is a function `name(shape, classes, *, …settings) -> nn.Module`. The module takes a batch
`[B, *shape]` and gives `[B, classes]` scores. Where targets are numbers, `classes` is how many a target has; where they
are anything else, such as tokens, it is 0. A data set with several tensors per sample has a dict or tuple of shapes,
and the module is called with a dict or tuple of tensors. A part that wants several by name says which, by
`takes`. Its module may have a `vocabulary`, a number that all tokens are below, and a `note`, which is told when a run
begins. For adapters (`lora`) it may say in which part they go, `adapted`, and which parts are trained `beside` them.

The first setting of a part is its main one, usually its size: in the notation by which models are spread over nodes,
`cnn[32,64]`, brackets fill it. Models that are spread together have a name in `mixes.toml`.
"""

import functools
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from torch import nn

from coterie.models._calling import called
from coterie.parts import Held

__all__ = ["Maker", "Mix", "Model", "called", "mixes", "takes"]

Model = Annotated[Callable[..., nn.Module], Held("models")]
"""What makes a model, with its settings bound: for parts that hold one."""

Maker = TypeVar("Maker", bound=Callable[..., Any])


def takes(*names: str) -> Callable[[Maker], Maker]:
    """Mark a model part that takes samples of several tensors with these names."""

    def mark(part: Maker) -> Maker:
        vars(part)["takes"] = names
        return part

    return mark


class Mix(NamedTuple):
    """Models that are spread over nodes together, in the notation of the setting `model`."""

    summary: str
    reference: str
    models: list[str]


@functools.cache
def mixes() -> dict[str, Mix]:
    """All mixes by name, in the order of the file."""
    text = (Path(__file__).parent / "mixes.toml").read_text("utf-8")
    return {name: Mix(**table) for name, table in tomllib.loads(text).items()}

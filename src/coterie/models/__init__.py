"""Models: name to module. One file each; found by looking.

A part of this room is a function `name(shape, classes, *, …settings) -> nn.Module`. The module takes a batch
`[B, *shape]` and gives `[B, classes]` scores. Where targets are numbers, `classes` is how many a target has; where they
are anything else, such as tokens, it is 0. A data set with several tensors per sample has a dict or tuple of shapes,
and the module is called with a dict or tuple of tensors.
"""

from collections.abc import Callable
from typing import Annotated

from torch import nn

from coterie.parts import Held

Model = Annotated[Callable[..., nn.Module], Held("models")]
"""What makes a model, with its settings bound: for parts that hold one."""

"""Objectives: what local training minimises. One file each; found by looking.

An objective maps (outputs, target, me) to one loss per sample; the engine takes the mean, because batches may be
padded. It may use what a node is (`me.size`, `me.labels`, …) but not when: `me.seed` and `me.round` are 0 here. One
that draws takes a fourth argument, `noise`: a number for each sample, uniform between 0 and 1 and new in every step.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from numpy.typing import NDArray
from torch import Tensor

from coterie.contract import Me
from coterie.errors import ConfigError


def draws(objective: Callable[..., Any]) -> bool:
    """Whether this objective asks for noise."""
    return "noise" in inspect.signature(objective).parameters


Numbers = NDArray[Any]
Formula = Callable[[Numbers], Numbers]


class MarginShape(NamedTuple):
    """An objective as a function φ of the margin m = ys, where two classes have scores (0, s) and y is 1 or −1.

    Its settings are keyword arguments of the three until `shape_of` binds them. Linear models with one score are
    trained by the slope, without autograd.
    """

    value: Callable[..., Numbers]
    slope: Callable[..., Numbers]
    """φ'; where it jumps, that of smaller margins."""
    bend: Callable[..., Numbers]
    """φ'', of which none is larger than the largest between m = −1 and 1; NaN where φ has none."""


_Function = TypeVar("_Function", bound=Callable[..., Tensor])


def shaped(*formulas: Callable[..., Numbers]) -> Callable[[_Function], _Function]:
    """Mark an objective that has a shape: φ, φ' and φ''."""

    def mark(objective: _Function) -> _Function:
        vars(objective)["shape"] = MarginShape(*formulas)
        return objective

    return mark


def shape_of(objective: Callable[..., Any]) -> MarginShape | None:
    """The shape of an objective with its settings bound, if it has one."""
    shape = getattr(getattr(objective, "func", objective), "shape", None)
    bound = getattr(objective, "keywords", {})
    return MarginShape(*(functools.partial(formula, **bound) for formula in shape)) if shape else None


def expect_classes(objective: str, target: Tensor) -> None:
    """Refuse targets that are no class labels."""
    if target.is_floating_point():
        raise ConfigError(
            f"objective {objective}",
            expected="class labels",
            got=f"{target.dtype} targets",
            cure="Learn numbers with --objective squared_error.",
        )


def per_number(objective: str, outputs: Tensor, target: Tensor, apart: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The mean over the numbers of each target of what `apart` says of an output and its target."""
    if outputs.numel() != target.numel():
        raise ConfigError(
            f"objective {objective}",
            expected="an output for each number of a target",
            got=f"outputs {list(outputs.shape[1:])} for targets {list(target.shape[1:])}",
            cure="Let the model give as many numbers as a target has, or learn labels with --objective cross_entropy.",
        )
    each = apart(outputs.reshape(target.shape), target.to(outputs.dtype))
    return each.flatten(1).mean(1) if each.dim() > 1 else each


def among_present(objective: str, logits: Tensor, target: Tensor, me: Me, weights: Tensor) -> Tensor:
    """−[z_y − log Σ_c weight_c e^{z_c}], the sum over the classes of which a node holds samples.

    Absent classes are left out rather than weighed by 0, whose logarithm would spoil the gradient. A label that the
    node does not hold, as padding may have, still gives a finite loss.
    """
    expect_classes(objective, target)
    if me.labels.shape[-1] != logits.shape[-1]:
        raise ConfigError(
            f"objective {objective}",
            expected="the share of each class in a node's data",
            got=f"{me.labels.shape[-1]} shares for {logits.shape[-1]} scores",
            cure="Use --objective cross_entropy for targets that are no class labels.",
        )
    absent = me.labels == 0
    weighed = (logits + weights.masked_fill(absent, 1.0).log()).masked_fill(absent, float("-inf"))
    return weighed.logsumexp(-1) - logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)

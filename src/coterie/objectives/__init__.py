"""Objectives: what local training minimises. One file each; found by looking.

An objective maps (outputs, target, me) to one loss per sample; the engine takes the mean, because batches may be
padded. It may use what a node is (`me.size`, `me.labels`, …) but not when: `me.seed` and `me.round` are 0 here. One
that draws takes a fourth argument, `noise`: a number for each sample, uniform between 0 and 1 and new in every step.
"""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from coterie.errors import ConfigError


def draws(objective: Callable[..., Any]) -> bool:
    """Whether this objective asks for noise."""
    return "noise" in inspect.signature(objective).parameters


def expect_classes(objective: str, target: Tensor) -> None:
    """Refuse targets that are no class labels."""
    if target.is_floating_point():
        raise ConfigError(
            f"objective {objective}",
            expected="class labels",
            got=f"{target.dtype} targets",
            cure="Learn numbers with --objective squared_error.",
        )

"""Objectives: what local training minimises. One file each; found by looking.

An objective maps (logits, target, me) to one loss per sample; the engine takes the mean, because batches may be padded.
It may use what a node is (`me.size`, `me.labels`, …) but not when: `me.seed` and `me.round` are 0 here. One that draws
takes a fourth argument, `noise`: a number for each sample, uniform between 0 and 1 and new in every step.
"""

import inspect
from collections.abc import Callable
from typing import Any


def draws(objective: Callable[..., Any]) -> bool:
    """Whether this objective asks for noise."""
    return "noise" in inspect.signature(objective).parameters

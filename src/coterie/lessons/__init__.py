"""Lessons: what an aggregator does to the models it was handed. One file each; found by looking.

A lesson maps `{node: Pupil}` to `{node: parameters}`; it may use the aggregator's own data, and pupils may differ in
architecture.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Pupil:
    """A model in an aggregator's hands."""

    architecture: str
    params: Tensor
    size: float
    """The number of training samples of the node it came from."""
    forward: Callable[[Tensor, Tensor], Tensor]
    """(parameters, inputs) -> logits, differentiable in the parameters."""


@dataclass(frozen=True)
class Classroom:
    """The aggregator's own training data, as a lesson sees them."""

    inputs: Tensor
    targets: Tensor
    seed: int
    round: int
    node: int


Lesson = Callable[[dict[int, Pupil], Classroom], dict[int, Tensor]]

"""Lessons: what an aggregator does to the models it was handed. One file each; found by looking.

A lesson maps `{node: Pupil}` to `{node: parameters}`; it may use the aggregator's own data, and pupils may differ in
architecture. What a node teaches itself is an exercise, a method of its protocol, which is handed a `Student`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from torch import Tensor

from coterie.contract import Fields, Message


@dataclass(frozen=True)
class Pupil:
    """A model in an aggregator's hands."""

    architecture: str
    params: Tensor
    size: float
    """The number of training samples of the node it came from."""
    forward: Callable[[Tensor, Any], Tensor]
    """(parameters, inputs) -> outputs, differentiable in the parameters."""


@dataclass(frozen=True)
class Classroom:
    """The aggregator's own training data, as a lesson sees them."""

    inputs: Any
    """As the data set has them and models take them: a tensor, or a dict or tuple of tensors."""
    targets: Tensor
    seed: int
    round: int
    node: int
    notes: dict[str, Tensor] = field(default_factory=dict)
    """What lessons and exercises keep at this node from round to round, and in checkpoints: replaced, not changed."""


class Lesson(ABC):
    """What an aggregator does to the models it was handed: a frozen dataclass whose fields are the settings."""

    room: ClassVar[str] = "lessons"

    @abstractmethod
    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        """The parameters that each pupil goes home with; who is left out keeps its own."""


BASE = Lesson

Look = Callable[[Any], tuple[Tensor, Tensor]]
"""Inputs -> the features that the model's last layer is given, `[B, F]`, and the outputs, logits `[B, C]` as a rule."""
Loss = Callable[[Look, Any, Tensor], Tensor]
"""(the model, inputs, targets) -> what a mini-batch is to make small."""
Said = dict[int, Fields]
"""What is to be told to whom: flat tensors. Who is missing, or has no fields, is told nothing."""


class Student(Protocol):
    """A node in an exercise: its own model, data and notes, and what it heard."""

    node: int
    seed: int
    round: int
    classes: int
    """0 where targets are no class labels."""
    shape: Any
    """Of one sample: a tuple, or a dict or tuple of such where it is several tensors."""
    to: list[int]
    """To whom the exercise may speak."""
    heard: dict[int, Message]
    notes: dict[str, Tensor]
    """What the protocol's exercises keep at this node from round to round, and in checkpoints."""

    @property
    def data(self) -> Classroom:
        """One's own training data."""
        ...

    @property
    def pupil(self) -> Pupil:
        """One's own model; an exercise that learns in a way of its own writes into `pupil.params`."""
        ...

    def look(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Features and outputs of one's own model as it is: eval mode, no gradient."""
        ...

    def train(self, loss: Loss) -> None:
        """Train one's own model as in every round, but with this loss: same mini-batches, same optimiser."""
        ...

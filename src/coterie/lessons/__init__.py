"""Lessons: what an aggregator does to the models it was handed. One file each; found by looking.

A lesson maps `{node: Pupil}` to `{node: parameters}`; it may use the aggregator's own data, and pupils may differ in
architecture. What a node teaches itself is an exercise, a method of its protocol, which is handed a `Student`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from coterie.contract import Fields, Layout, Message


@dataclass(frozen=True)
class Pupil:
    """A model in an aggregator's hands."""

    architecture: str
    params: Tensor
    size: float
    """The number of training samples of the node it came from."""
    forward: Callable[[Tensor, Any], Tensor]
    """(parameters, inputs) -> outputs, differentiable in the parameters."""
    layout: Layout = Layout((), ())
    """The trainable tensors, which stand first in `params`."""
    buffers: Layout = Layout((), ())
    """The float buffers, which come after."""
    labels: Tensor | None = None
    """The share of each class in the data of the node it came from, for lessons that are `informed`."""


Losses = Callable[[Tensor, Tensor], Tensor]
"""(the outputs of all models `[m, B, C]`, targets `[B]`) -> what each model is to make small, `[m]`."""


class Learn(Protocol):
    """Training of several models at once on a teacher's own data."""

    def __call__(
        self, pupils: Mapping[int, Pupil], losses: Losses, epochs: int, learners: Collection[int] | None = None
    ) -> dict[int, Tensor]:
        """The models after so many epochs, each with an optimiser of its own; those who do not learn are left out.

        All see the same mini-batches, and all take their steps from the same outputs. `learners` are all unless said.
        """
        ...


def _absent(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("this classroom was made without a way to learn")


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
    turn: int = 0
    """How many lessons came before this one."""
    rounds: int = 1
    """How many rounds there are in all."""
    supervise: Callable[[Tensor, Tensor], Tensor] = _absent
    """(outputs `[..., B, C]`, targets `[B]`) -> the run's objective for each sample `[..., B]`, by the labels here."""
    learn: Learn = _absent


@dataclass(frozen=True)
class Homecoming:
    """A node's model as it comes home from a lesson, and what the node keeps beside it."""

    params: Tensor
    """Parameters and float buffers; live, so whoever keeps them keeps a copy."""
    notes: dict[str, Tensor]
    turn: int
    rounds: int


PEAK = "peak"
"""The note in which a lesson keeps a model beside the present one; it is judged and exported, too."""


class Lesson(ABC):
    """What an aggregator does to the models it was handed: a frozen dataclass whose fields are the settings."""

    room: ClassVar[str] = "lessons"
    informed: ClassVar[bool] = False
    """Whether models come with the label shares of their nodes' data (`Pupil.labels`)."""

    @property
    def keeps(self) -> bool:
        """Whether nodes keep something of the models that come home (`home`)."""
        return False

    def cycles(self, rounds: int) -> list[int]:
        """In which rounds, of so many, the weights of what it teaches begin a cycle anew, if they go in cycles."""
        return []

    @abstractmethod
    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        """The parameters that each pupil goes home with; who is left out keeps its own."""

    def home(self, home: Homecoming) -> None:  # noqa: B027  most lessons keep nothing
        """What a node keeps of its model when that comes home: written into its notes."""

    def suits(self, layouts: Mapping[str, Layout]) -> None:  # noqa: B027  most lessons take any
        """Refuse architectures, by name, that it cannot teach together."""


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

    def another(self, make: Callable[..., nn.Module], note: str) -> Pupil:
        """A model beside one's own, as a part of `models` makes it for this data; its parameters are that note's.

        If there is no such note yet, they are drawn, and everyone's draw is the same.
        """
        ...

    def look(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Features and outputs of one's own model as it is: eval mode, no gradient."""
        ...

    def train(self, loss: Loss) -> None:
        """Train one's own model as in every round, but with this loss: same mini-batches, same optimiser."""
        ...

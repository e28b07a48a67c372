"""What a rule may know and must say: the one contract that every engine keeps.

A rule describes ONE node and does no I/O. It is written over the last dimension: `params` is `[P]` on a real peer and
`[n, P]` (or a block of rows, or for coordinate-wise rules of columns) in the simulator, and the code is the same.
Scalars of a node are `[..., 1]`, so that they broadcast in both.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

State = dict[str, Tensor]
Fields = dict[str, Tensor]


def finite(x: Tensor) -> bool:
    """Whether all numbers are, in one pass and without a mask: their sum carries what is not."""
    return math.isfinite(x.sum()) or bool(x.isfinite().all())  # the sum of large ones may overflow


@dataclass(frozen=True)
class Layout:
    """Where each named tensor of a model stands in its row of the parameter matrix."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First and last-plus-one column of each tensor."""
        ends = itertools.accumulate((math.prod(shape) for shape in self.shapes), initial=0)
        return list(itertools.pairwise(ends))

    @property
    def size(self) -> int:
        """The number of columns: P."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def weights(self) -> Tensor:
        """1 for each parameter of a tensor of two dimensions or more, `[P]`; 0 for biases and what scales."""
        return torch.cat([torch.full((math.prod(shape),), float(len(shape) > 1)) for shape in self.shapes])

    def views(self, x: Tensor) -> dict[str, Tensor]:
        """`[..., P]` as named tensors `[..., *shape]`, sharing memory."""
        return {
            name: x[..., a:b].unflatten(-1, shape or (1,)) if shape else x[..., a]
            for name, shape, (a, b) in zip(self.names, self.shapes, self.spans, strict=True)
        }

    def map(self, formula: Callable[..., Tensor], *xs: Tensor) -> Tensor:
        """The same formula, tensor by tensor: each call sees `[..., size of that tensor]`."""
        return torch.cat([formula(*(x[..., a:b] for x in xs)) for a, b in self.spans], dim=-1)


@dataclass(frozen=True)
class Me:
    """What a node knows of itself. In the simulator the tensors hold one row per node."""

    node: Tensor
    size: Tensor
    """What the node counts for in averages: its number of training samples, or 1 where all nodes count alike."""
    degree: Tensor
    """How many others it hears in this round, if nothing fails."""
    labels: Tensor
    """The share of each class in one's training data; empty where there are no classes."""
    seed: int
    round: int
    layout: Layout
    """The model's tensors. Of no use to a rule with `span = "coordinate"`, which may see any block of columns."""


@dataclass(frozen=True)
class Message:
    """What one node tells another: named tensors, and what the sender counts for in averages (`Me.size`)."""

    fields: Fields
    size: Tensor
    round: int = 0
    numbers: tuple[int, ...] = ()
    """Whole numbers instead of fields: what protocols arrange among themselves."""

    def __getitem__(self, name: str) -> Tensor:
        return self.fields[name]

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    @property
    def void(self) -> bool:
        """Whether it says nothing."""
        return not self.fields and not self.numbers


@dataclass(frozen=True)
class Term:
    """A summand made of one message: the sender's own scalars only, not normalised."""

    value: Tensor
    weight: Tensor | float = 1.0


@dataclass(frozen=True)
class Range:
    """What the numbers of a field are at an honest neighbour; peers refuse what is outside."""

    least: float = -math.inf
    """The smallest that occurs."""
    norm: float = math.inf
    """The greatest Euclidean norm of the whole field."""
    scale: float | None = None
    """Times this, the field is of the size of the parameters and is held against one's own, tensor by tensor.

    It is as long as the parameters, or has the root mean square of each tensor. None: it is not compared.
    """


class Inbox(Protocol):
    """The sum of what a node heard in one exchange; ω is the weight of the link.

    For oneself it is 1, or with Metropolis weights what the links of those heard leave of 1.
    """

    @property
    def count(self) -> Tensor:
        """How many neighbours were heard, `[..., 1]`."""
        ...

    def __contains__(self, term: str) -> bool:
        """Whether anyone's message was lifted to this term."""
        ...

    def sum(self, term: str, own: bool = False) -> Tensor:
        """Σ ω·weight·value over the neighbours heard (and oneself) whose messages have the term."""
        ...

    def mean(self, term: str, own: bool = False) -> Tensor:
        """Σ ω·weight·value / Σ ω·weight."""
        ...

    def rows(self, field: str, own: bool = False) -> Tensor:
        """The raw field of everyone heard who has it (oneself last), `[..., count, F]`; for rules with `raw = True`."""
        ...

    def shares(self, own: bool = False) -> tuple[Tensor, Tensor]:
        """ω and `size` of everyone heard, in the order of `rows`, each `[..., count, 1]`; for the same rules."""
        ...


class Data(Protocol):
    """A node's own training data, seen only through gradients."""

    def grads(self, params: Tensor, size: int = 100, batches: int | None = None, first: int = 0) -> Iterator[Tensor]:
        """The mean cross-entropy gradient `[..., P]` of each batch at ANY parameters: eval mode, fixed order.

        Where targets are no class labels, it is the gradient of the training objective instead.
        The order begins with batch `first` and goes round: no batch comes twice. A node that has fewer batches than
        its neighbours in a stack gets zeros once its own are spent.
        """
        ...

    def squares(self) -> Tensor:
        """Σ (∂ loss_batch/∂w)², `[..., P]`, over this round's training; for rules with `squares = True`.

        Unlike those of `grads` these gradients are of the training objective with its clamp, in training mode, each
        taken where the parameters were at that step. Zeros before any training.
        """
        ...


class Rule:
    """How a node merges what it hears: override what differs, in a frozen dataclass whose fields are the settings."""

    room: ClassVar[str] = "rules"
    span: Literal["coordinate", "model"] = "coordinate"
    """`coordinate`: every column is merged alike and alone. `model`: the rule must see whole rows."""
    raw: bool = False
    """Whether `merge` asks for `inbox.rows`: then a peer must keep every neighbour's model."""
    robust: bool = False
    """Whether it bears liars, so that float buffers are merged as parameters are, and not averaged by data size.

    Such a rule is `raw`, merges each coordinate of `w` alone, and has no memory.
    """
    observes: bool = False
    """Whether `observe` is to be called after local training."""
    squares: bool = False
    """Whether `observe` asks for `data.squares`: then training sums up its squared gradients."""
    replaces: bool = False
    """Whether what was heard takes the place of one's own model: float buffers are then averaged without one's own."""
    answers: bool = False
    """Whether each neighbour heard is to be answered, before the merge, with what `answer` says."""

    def own_weight(self, size: Tensor, near: Tensor, count: Tensor) -> Tensor | float | None:
        """ω_ii, by which one's own data size counts in the average, or None: merging shrinks nothing that a gain mends.

        `near` is Σ ω_ij |D_j| over the `count` neighbours. Only `initialiser = "gain"` asks; a rule whose weights are
        not known beforehand is taken for DecAvg.
        """
        return 1.0

    def init(self, me: Me, params: Tensor) -> State:
        """The node's memory before the first round; it may be changed by `observe` and `merge` only."""
        return {}

    def observe(self, me: Me, params: Tensor, state: State, data: Data) -> State:
        """Look at one's own data after training."""
        return state

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        """What every neighbour is told; nothing at all if empty."""
        return {"w": params}

    def ranges(self, round: int) -> dict[str, Range]:
        """What the fields of a message of this round can be, of those of which more is known than that they are finite.

        A peer refuses what is outside, and is not spoilt by it.
        """
        return {"w": Range(scale=1.0)}

    def lift(self, message: Message) -> dict[str, Term]:
        """What a message adds to the sums, applied on arrival, so that it need not be kept."""
        return {"w": Term(message["w"], message.size)}

    def answer(self, me: Me, theirs: Message, data: Data) -> Fields:
        """What goes back to the one neighbour who sent `theirs`; lifted as its other messages are."""
        return {}

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        """The parameters and memory after hearing; never called with an empty inbox."""
        return inbox.mean("w", own=True), state

    def tell(self, me: Me, params: Tensor, state: State) -> dict[str, Tensor]:
        """What the rule has to say of itself at the end of a round, one number `[..., 1]` each: for the measures."""
        return {}

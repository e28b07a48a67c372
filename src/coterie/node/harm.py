"""Harm that neighbours' messages do to a model, though each was fair to look at: how it is noticed, and undone."""

import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.contract import Fields, Layout, Message, State, finite
from coterie.errors import CoterieError
from coterie.node.buffers import BufferPool
from coterie.node.sums import Packet, Summed
from coterie.node.training import Trainer

Taught = dict[int, tuple[str, Fields]]
"""What a lesson makes: by node, an architecture and its tensors."""

FLOOR = 0.1
"""Tensors of smaller numbers, such as biases that start at zero, are compared as if they were of this size."""
FACTOR = 100.0
"""A tensor that has grown by more in one training has exploded."""


@dataclass
class Before:
    """A node as it was before it heard its neighbours, to go back to if it does not bear what they said."""

    row: Tensor
    integers: Tensor
    optimiser: dict[str, Tensor]
    state: State
    notes: dict[str, Tensor]
    senders: set[int]

    @classmethod
    def of(cls, node: "Bearing", senders: Iterable[int]) -> "Before":
        """How it is now."""
        trainer, row = node.trainer, node.row
        optimiser = {name: tensor[row].clone() for name, tensor in trainer.optimiser_state.items()}
        now = trainer.matrix[row]
        whole = node.memory.numbers(now, now.dtype).copy_(now), trainer.integers[row].clone()
        return cls(*whole, optimiser, dict(node.state), dict(node.notes), set(senders))

    def restore(self, trainer: Trainer, row: int) -> None:
        """Put the model, its integers and its optimiser back; what training has summed up begins anew."""
        trainer.matrix[row], trainer.integers[row] = self.row, self.integers
        for name, tensor in self.optimiser.items():
            trainer.optimiser_state[name][row] = tensor
        if trainer.squares is not None:
            trainer.squares[row] = 0

    def ruined(self, trainer: Trainer, row: int) -> bool:
        """Whether the model or its optimiser is not finite any more, or a tensor of it has exploded."""
        layout = trainer.architecture.layout
        if not sound(*(tensor[row] for tensor in trainer.optimiser_state.values())):
            return True
        return not finite(trainer.matrix[row]) or exploded(layout, self.row[: layout.size], trainer.params[row])


class Bearing:
    """A node that goes on without what its neighbours said if it does harm, where somebody may be to blame for it."""

    trainer: Trainer
    classmates: dict[str, Trainer]
    """The trainers of all architectures that the configuration allows, by signature."""
    row: int
    state: State
    notes: dict[str, Tensor]
    blame: Callable[[Collection[int], str], None] | None = None
    """Told whose messages did harm, which is undone; None: nobody is hostile, and what goes wrong is an error."""
    share: float = 1.0
    """The most that a neighbour may weigh in an average with oneself."""
    influenced: bool = False
    """Whether neighbours have had a part in the model: if its training diverges, that may be their doing."""
    _before: Before | None = None
    """How the node was before it heard what it has not trained on yet."""

    @functools.cached_property
    def memory(self) -> BufferPool:
        """Where a model to go back to stands, round after round."""
        return BufferPool(1)

    def mark(self, senders: Iterable[int]) -> Before | None:
        """A copy of the node before messages of these senders change it; None where nobody can be to blame."""
        senders = set(senders)
        self.influenced = self.influenced or bool(senders)
        return None if self.blame is None else Before.of(self, senders)

    def remember(self, senders: Collection[int]) -> None:
        """Keep a copy of the node before these senders change it; an earlier one stays until training has gone well."""
        self._before = self._before or self.mark(senders)
        if self._before is not None:
            self._before.senders |= {*senders}

    def check(self, before: Before | None, trained: bool = True) -> None:
        """Raise if the node has been ruined since; if it has `trained`, it need not go back further any more."""
        if before is not None and (before.ruined(self.trainer, self.row) or spoilt(before.notes, self.notes)):
            raise FloatingPointError("the model is not finite any more, or has exploded")
        self._before = None if trained else self._before

    def undo(self, before: Before | None, error: Exception) -> None:
        """Go back, and say whose fault it is; a user's own mistake stays an error."""
        if before is not None and not isinstance(error, CoterieError):
            before.restore(self.trainer, self.row)
            self.state = before.state
            self.notes.clear()
            self.notes.update(before.notes)
        self.bear(sorted(before.senders) if before is not None else (), error)

    def bear(self, senders: Collection[int], error: Exception) -> None:
        """Go on without what these said."""
        if self.blame is None or isinstance(error, CoterieError):
            raise error
        self.blame(senders, f"{type(error).__name__}: {error}")

    def take(self, heard: Summed, packet: Packet, discount: float = 1.0, answer: bool = False) -> None:
        """Add a message to what was heard; one that the rule cannot take is left out."""
        try:
            heard.add(packet, discount, answer)
        except Exception as error:
            self.bear([packet.sender], error)

    def taught(self, made: Taught, handed: Mapping[int, Message]) -> Taught:
        """What a lesson has made of one's own model and those handed in, without what it has ruined.

        If one's own is ruined, the lesson has failed: that of a neighbour has spoilt all others.
        """
        if self.blame is None:
            return made
        whole = {}
        for node, (architecture, fields) in made.items():
            before = handed[node]["w"] if node in handed else self.trainer.params[self.row]
            layout = self.classmates[architecture].architecture.layout
            if sound(*fields.values()) and not exploded(layout, before, fields["w"]):
                whole[node] = architecture, fields
            elif node not in handed:
                raise FloatingPointError("the lesson has made a model that is not finite, or has exploded")
        return whole

    def learn(self, training: Callable[[], int]) -> int:
        """Train on what was heard; if that ruins the model, again from how it was before it heard anybody.

        If that does so, too, the model stays as it was: it may be brittle by what neighbours said long ago.
        """
        if self.blame is None or not self.influenced:
            return training()
        heard, self._before = self._before, None
        before = heard or self.mark(())
        batches = self._tried(training, before)
        if batches is None and heard is not None:
            batches = self._tried(training, before)
        return batches or 0

    def _tried(self, training: Callable[[], int], before: Before | None) -> int | None:
        """How many mini-batches were trained; None if that did harm, which is undone."""
        try:
            batches = training()
            self.check(before)
        except Exception as error:
            self.undo(before, error)
            return None
        return batches


def exploded(layout: Layout, before: Tensor, after: Tensor) -> bool:
    """Whether a tensor of a model has grown beyond all measure; also if it is not finite any more."""
    return not bool((spreads(layout, after) <= FACTOR * measure(layout, before)).all())


def spread(x: Tensor) -> float:
    """The root mean square of all numbers."""
    return float(torch.linalg.vector_norm(x)) / math.sqrt(max(x.numel(), 1))


def spreads(layout: Layout, x: Tensor) -> Tensor:
    """The root mean square of each tensor of a model, `[tensors]`."""
    return torch.tensor([spread(x[a:b]) for a, b in layout.spans])


def measure(layout: Layout, own: Tensor) -> Tensor:
    """How large one's own tensors are, `[tensors]`: each at least as the whole model, and no smaller than `FLOOR`."""
    return spreads(layout, own).clamp(min=max(FLOOR, spread(own)))


def spoilt(before: State, after: State) -> bool:
    """Whether some memory is not finite any more; what never was may be infinite on purpose."""
    changed = ((before.get(name), tensor) for name, tensor in after.items() if tensor is not before.get(name))
    return any(not sound(now) and (was is None or sound(was)) for was, now in changed)


def sound(*tensors: Tensor) -> bool:
    """Whether all numbers of all tensors are finite; integers always are."""
    return all(finite(tensor) for tensor in tensors if tensor.is_floating_point())

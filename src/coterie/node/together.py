"""Models of any architectures that learn from the same mini-batches at the same time, in a lesson."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.func import vmap

from coterie.datasets import Inputs
from coterie.lessons import Losses, Pupil
from coterie.node.architecture import Architecture
from coterie.node.cost import TRAINING
from coterie.node.training import Trainer
from coterie.optimisers import Optimiser
from coterie.randomness import generator, key

LARGE = 1 << 29
"""Bytes that the forward passes of all models may keep for the backward ones; if more, one model is at work at a time,
and passes forward twice."""


class _Single:
    """One model that learns: a module of its own, at a row of its own."""

    def __init__(self, architecture: Architecture, optimiser: Optimiser, row: Tensor) -> None:
        layout = architecture.layout
        self.signature, self.optimiser = architecture.signature, optimiser
        self.rows = row.clone().unsqueeze(0)
        mine = architecture.twin(row.device)
        integers = torch.zeros(mine.integers, dtype=torch.int64, device=row.device)
        mine.point(self.rows[0, : layout.size], self.rows[0, layout.size :], integers)
        self.module = mine.train()
        self.tensors = [p for _, p in mine.parameters]
        self.draws = mine.draws
        flat = {slot: torch.zeros(layout.size, device=row.device) for slot in optimiser.slots}
        flat |= {"weights": layout.weights.to(row.device)} if optimiser.spares else {}
        self.slots = [
            {slot: x[a:b].view(shape) for slot, x in flat.items()}
            for (a, b), shape in zip(layout.spans, layout.shapes, strict=True)
        ]

    def forward(self, x: Inputs) -> Tensor:
        """What the model says, `[1, B, C]`."""
        outputs: Tensor = self.module(x)
        return outputs.unsqueeze(0)

    def step(self, outputs: Tensor, pull: Tensor, count: int) -> None:
        """A step down the gradient of what `pull` is the gradient by outputs of."""
        gradients = torch.autograd.grad(outputs, self.tensors, pull, materialize_grads=True)
        with torch.no_grad():
            for tensor, gradient, buffers in zip(self.tensors, gradients, self.slots, strict=True):
                self.optimiser.step(tensor.data, gradient, buffers, count)


class _Stack:
    """Several models of one architecture that learn: rows of one matrix, passed through one module together."""

    draws = False

    def __init__(self, architecture: Architecture, optimiser: Optimiser, rows: Tensor) -> None:
        self.architecture, self.optimiser, self.rows = architecture, optimiser, rows
        self.signature = architecture.signature
        self.slots = {slot: torch.zeros_like(rows) for slot in optimiser.slots}
        self.slots |= {"weights": architecture.layout.weights.to(rows.device)} if optimiser.spares else {}
        self.leaf = rows.detach().requires_grad_()
        architecture.train()

    def forward(self, x: Inputs) -> Tensor:
        """What the models say, `[m, B, C]`."""
        self.leaf = self.rows.detach().requires_grad_()
        outputs: Tensor = vmap(self.architecture.forward, in_dims=(0, None))(self.leaf, x)
        return outputs

    def step(self, outputs: Tensor, pull: Tensor, count: int) -> None:
        """A step for each."""
        (gradient,) = torch.autograd.grad(outputs, self.leaf, pull)
        with torch.no_grad():
            self.optimiser.step(self.rows, gradient, self.slots, count)


@dataclass(frozen=True)
class Together:
    """What a lesson's `data.learn` does, at one node."""

    architectures: Mapping[str, Architecture]
    """By signature, all there are."""
    own: Trainer
    node: int
    round: int
    threads: int = 1
    """How many models may be at work at a time."""
    stacked: Collection[str] = ()
    """The signatures of architectures whose models learn faster stacked than one after the other."""
    passes: dict[str, int] = field(default_factory=dict)
    """Signature -> how many times a sample has passed forward through such a model; a backward pass counts for two."""

    def __call__(
        self, pupils: Mapping[int, Pupil], losses: Losses, epochs: int, learners: Collection[int] | None = None
    ) -> dict[int, Tensor]:
        """The models of all learners after so many epochs on this node's data."""
        wanted = {*pupils} if learners is None else {*learners}
        units = self._units(pupils, wanted)
        order = [n for nodes, _ in units for n in nodes]
        place = torch.tensor([order.index(n) for n in pupils])
        seed = self.own.roster.seed, self.node, self.round
        course = _Course([u for _, u in units], [not wanted.isdisjoint(nodes) for nodes, _ in units], place, seed)
        with _mapping(1 if any(u.draws for u in course.units) else min(self.threads, len(units))) as each:
            for count, (x, y) in enumerate(self._batches(epochs), 1):
                course.step(x, y, losses, count, each)
                for nodes, unit in units:
                    learns = not wanted.isdisjoint(nodes)
                    times = (TRAINING + course.large if learns else 1) * len(nodes) * len(y)
                    self.passes[unit.signature] = self.passes.get(unit.signature, 0) + times
        found = {n: row for nodes, unit in units for n, row in zip(nodes, unit.rows, strict=True)}
        return {n: found[n] for n in pupils if n in wanted}

    def _units(self, pupils: Mapping[int, Pupil], wanted: Collection[int]) -> list[tuple[list[int], Any]]:
        """Models that pass forward together, with whose they are: all of a unit learn, or none does."""
        optimiser: Optimiser = self.own.optimiser
        alike: dict[tuple[str, bool], list[int]] = {}
        for node, pupil in pupils.items():
            alike.setdefault((pupil.architecture, node in wanted), []).append(node)
        units: list[tuple[list[int], Any]] = []
        for (signature, _), nodes in alike.items():
            architecture = self.architectures[signature]
            plain = not architecture.buffers.size and not architecture.draws
            if signature in self.stacked and len(nodes) > 1 and plain:
                rows = torch.stack([pupils[n].params for n in nodes])
                units.append((nodes, _Stack(architecture, optimiser, rows)))
            else:
                units += [([n], _Single(architecture, optimiser, pupils[n].params)) for n in nodes]
        return units

    def _batches(self, epochs: int) -> Iterator[tuple[Inputs, Tensor]]:
        roster, samples = self.own.roster, self.own.samples
        own, size = roster.train[self.node], roster.training.batch_size
        for epoch in range(epochs):
            order = generator(roster.seed, "lesson", self.node, self.round, epoch).permutation(own)
            for start in range(0, len(order), size):
                where = torch.as_tensor(order[start : start + size])
                yield samples.inputs(where), samples.targets(where)


class _Course:
    """The steps of some models, all from the same outputs."""

    def __init__(self, units: list[Any], learning: list[bool], place: Tensor, seed: tuple[int, int, int]) -> None:
        self.units, self.learning, self.place, self.seed = units, learning, place, seed
        self.large = False
        """Whether one model is at work at a time."""

    def step(self, x: Inputs, y: Tensor, losses: Losses, count: int, each: "_Each") -> None:
        """One mini-batch: all outputs first, then what each model is to change, then all steps."""
        if count == 1:
            each = _in_turn  # what is kept is counted by thread
        kept = _Kept()
        with kept if count == 1 else contextlib.nullcontext():
            said = each(lambda unit: self._say(unit, x, count, not self.large), len(self.units))
        answers = torch.cat([outputs.detach() for outputs in said])[self.place].requires_grad_()
        (pull,) = torch.autograd.grad(losses(answers, y).sum(), answers)
        back = torch.empty_like(pull)
        back[self.place] = pull
        pulls = back.split([len(outputs) for outputs in said])
        self.large = self.large or kept.bytes > LARGE

        def learn(unit: int) -> None:
            if self.learning[unit]:
                outputs = said[unit] if said[unit].requires_grad else self._say(unit, x, count, True)
                self.units[unit].step(outputs, pulls[unit], count)

        each(learn, len(self.units))

    def _say(self, unit: int, x: Inputs, count: int, keep: bool) -> Tensor:
        """What a model says to a mini-batch; what its backward pass needs is kept, if it is to learn from this pass."""
        if self.units[unit].draws:
            seed, *who = self.seed
            torch.manual_seed(key(seed, "lesson dropout", *who, count, unit) >> 1)
        with torch.set_grad_enabled(keep and self.learning[unit]):
            outputs: Tensor = self.units[unit].forward(x)
        return outputs


_Each = Callable[[Callable[[int], Any], int], list[Any]]


def _in_turn(what: Callable[[int], Any], count: int) -> list[Any]:
    return [what(unit) for unit in range(count)]


@contextlib.contextmanager
def _mapping(threads: int) -> Iterator[_Each]:
    """What does something for each of so many units, several at a time."""
    if threads == 1:
        yield _in_turn
        return
    with ThreadPoolExecutor(threads, "lesson", torch.set_num_threads, (1,)) as pool:
        yield lambda what, count: list(pool.map(what, range(count)))


class _Kept(saved_tensors_hooks):
    """Counts the bytes that forward passes keep for backward ones, parameters left out."""

    def __init__(self) -> None:
        self.bytes = 0
        super().__init__(self._count, lambda tensor: tensor)

    def _count(self, tensor: Tensor) -> Tensor:
        if not tensor.is_leaf:
            self.bytes += tensor.untyped_storage().nbytes()
        return tensor.detach()  # the tensor itself would hold its own history, and never be freed

"""What lessons of a node and exercises of its protocol see and do, in the process where the node's model is."""

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from coterie.contract import Fields, Message
from coterie.datasets import Inputs
from coterie.initialisers import Origin
from coterie.initialisers.default import default
from coterie.job import Samples
from coterie.lessons import Classroom, Lesson, Loss, Pupil, Said
from coterie.node.architecture import Architecture, build
from coterie.node.cost import TRAINING, measured
from coterie.node.measures import Steps
from coterie.node.sums import counterweight
from coterie.node.together import Together
from coterie.node.training import Trainer


@dataclass(frozen=True)
class Schoolhouse:
    """What a process needs for lessons and exercises: all architectures there are, and how it computes best."""

    architectures: dict[str, Architecture] = field(default_factory=dict)
    """By signature."""
    threads: int = 1
    """How many models may learn at a time."""
    stacked: Collection[str] = ()
    """The signatures of architectures whose models learn faster stacked than one after the other."""
    costs: dict[str, int] = field(default_factory=dict)
    """Signature -> floating-point operations of a forward pass for one sample, as far as they were asked for."""

    def flops(self, signature: str, samples: Samples) -> int:
        """The floating-point operations of a forward pass for one sample."""
        if signature not in self.costs:
            self.costs[signature] = measured(self.architectures[signature].module, samples).flops
        return self.costs[signature]

    def spent(self, data: Classroom, samples: Samples) -> int:
        """The floating-point operations of all that was learnt in a classroom."""
        assert isinstance(data.learn, Together)
        return sum(count * self.flops(signature, samples) for signature, count in data.learn.passes.items())

    def pupil(self, signature: str, params: Tensor, size: float, labels: Tensor | None = None) -> Pupil:
        """A model, of a node with so many samples, as lessons and exercises see it."""
        architecture = self.architectures[signature]
        layout, buffers = architecture.layout, architecture.buffers

        def forward(p: Tensor, x: Inputs) -> Tensor:
            return architecture.forward(p[: layout.size], x)

        return Pupil(signature, params, size, forward, layout, buffers, labels)

    def classroom(self, own: Trainer, row: int, round: int, notes: dict[str, Tensor], turn: int = 0) -> Classroom:
        """A node's own data."""
        node, samples = int(own.nodes[row]), own.samples
        mine = torch.as_tensor(own.roster.train[node])
        learn = Together(self.architectures, own, node, round, self.threads, self.stacked)
        about = (own.roster.seed, round, node, notes, turn, own.roster.rounds)
        return Classroom(samples.inputs(mine), samples.targets(mine), *about, own.supervise(row), learn)

    def teach(
        self,
        lesson: Lesson,
        own: Trainer,
        row: int,
        heard: Mapping[int, tuple[str, Message]],
        data: Classroom,
        share: float = 1.0,
    ) -> dict[int, tuple[str, Fields]]:
        """Apply a lesson to a node's own model and those heard, each with its architecture.

        Gives what each goes home with, as a message has it: trainable parameters and float buffers. No neighbour has
        more than this `share` of an average with one's own.
        """
        me, mine = own.me(row, data.round), own.architecture.signature
        alike = [float(message.size) for signature, message in heard.values() if signature == mine]
        size = float(counterweight(me.size, alike, share))
        pupils = {data.node: self.pupil(mine, own.matrix[row].clone(), size, me.labels)}
        for sender, (signature, message) in sorted(heard.items()):
            whole = torch.cat([message[f] for f in ("w", "buffers") if f in message])
            pupils[sender] = self.pupil(signature, whole, float(message.size), message.fields.get("labels"))
        found: dict[int, tuple[str, Fields]] = {}
        for node, params in lesson.teach(dict(sorted(pupils.items())), data).items():
            w, buffers = params.split([pupils[node].layout.size, pupils[node].buffers.size])
            found[node] = pupils[node].architecture, {"w": w} | ({"buffers": buffers} if len(buffers) else {})
        return found


class RowStudent:
    """One node in an exercise."""

    def __init__(
        self,
        trainer: Trainer,
        row: int,
        round: int,
        heard: dict[int, Message],
        notes: dict[str, Tensor],
        to: list[int],
        school: Schoolhouse,
        steps: Steps | None = None,
    ) -> None:
        self.trainer, self.row, self.round, self.heard, self.notes, self.to = trainer, row, round, heard, notes, to
        self.school, self.steps, self.batches = school, steps, 0
        self.node, self.seed = int(trainer.nodes[row]), trainer.roster.seed
        self.classes, self.shape = trainer.samples.classes, trainer.samples.shape

    @functools.cached_property
    def data(self) -> Classroom:
        return self.school.classroom(self.trainer, self.row, self.round, self.notes)

    @property
    def pupil(self) -> Pupil:
        me = self.trainer.me(self.row, 0)
        signature = self.trainer.architecture.signature
        return self.school.pupil(signature, self.trainer.matrix[self.row], float(me.size), me.labels)

    def another(self, make: Callable[..., nn.Module], note: str) -> Pupil:
        samples, roster = self.trainer.samples, self.trainer.roster
        made = build(note, make, samples.shape, samples.answers, roster.device)
        self.school.architectures.setdefault(made.signature, made)
        if note not in self.notes:
            row = torch.zeros(made.width, device=roster.device)
            default(made.module, Origin(roster.seed, -1, 1.0))
            made.read(row, torch.zeros(made.integers, dtype=torch.int64, device=roster.device))
            self.notes[note] = row
        return self.school.pupil(made.signature, self.notes[note], float(self.trainer.me(self.row, 0).size))

    @property
    def flops(self) -> int:
        """The floating-point operations of what it has trained and learnt so far."""
        samples, trained = self.trainer.samples, self.trainer.roster.seen(self.node, self.round, self.batches)
        own = TRAINING * trained * self.school.flops(self.trainer.architecture.signature, samples)
        return own + self.school.spent(self.data, samples)

    def look(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        self.trainer.point(self.row)
        self.trainer.architecture.module.eval()
        with torch.no_grad():
            return self.trainer.architecture.look(inputs)

    def train(self, loss: Loss) -> None:
        if self.steps:
            self.steps.before_training(self.trainer.params[self.row])
        self.batches += self.trainer.train_row(self.row, self.round, loss)
        if self.steps:
            self.steps.after_training(self.trainer.params[self.row])


def exercise(protocol: Any, name: str, student: RowStudent) -> list[tuple[Fields, list[int]]]:
    """Carry out an exercise; what it says, each with all who are told the same."""
    said: Said = getattr(protocol, name)(student)
    distinct: dict[int, tuple[Fields, list[int]]] = {}
    for to in student.to:
        if fields := said.get(to):
            distinct.setdefault(id(fields), (fields, []))[1].append(to)
    return list(distinct.values())

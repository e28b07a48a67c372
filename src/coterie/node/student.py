"""A node at its desk: what an exercise of its protocol sees and does, in the process where the node's model is."""

from typing import Any

import torch
from torch import Tensor

from coterie.contract import Fields, Message
from coterie.datasets import Inputs
from coterie.lessons import Classroom, Lesson, Loss, Pupil, Said
from coterie.node.measures import Steps
from coterie.node.training import Trainer


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
        steps: Steps | None = None,
    ) -> None:
        self.trainer, self.row, self.round, self.heard, self.notes, self.to = trainer, row, round, heard, notes, to
        self.steps, self.batches = steps, 0
        self.node, self.seed = int(trainer.nodes[row]), trainer.roster.seed
        self.classes, self.shape = trainer.samples.classes, trainer.samples.shape

    @property
    def data(self) -> Classroom:
        return classroom(self.trainer, self.node, self.round, self.notes)

    @property
    def pupil(self) -> Pupil:
        return pupil(self.trainer, self.trainer.matrix[self.row], float(self.trainer.me(self.row, 0).size))

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


def pupil(trainer: Trainer, params: Tensor, size: float) -> Pupil:
    """A model of a trainer's architecture, of a node with so many samples, as lessons and exercises see it."""
    architecture, width = trainer.architecture, trainer.architecture.layout.size
    return Pupil(architecture.signature, params, size, lambda p, x: architecture.forward(p[:width], x))


def classroom(trainer: Trainer, node: int, round: int, notes: dict[str, Tensor]) -> Classroom:
    """A node's own data, as lessons and exercises see them."""
    samples, own = trainer.samples, torch.as_tensor(trainer.roster.train[node])
    return Classroom(samples.inputs(own), samples.targets(own), trainer.roster.seed, round, node, notes)


def teach(lesson: Lesson, pupils: dict[int, Pupil], data: Classroom, widths: dict[str, int]) -> dict[int, Fields]:
    """Apply a lesson; what each pupil goes home with, as a message has it: trainable parameters and float buffers."""
    fields: dict[int, Fields] = {}
    for node, params in lesson.teach(pupils, data).items():
        width = widths[pupils[node].architecture]
        fields[node] = {"w": params[:width]} | ({"buffers": params[width:]} if len(params) > width else {})
    return fields


def exercise(protocol: Any, name: str, student: RowStudent) -> list[tuple[Fields, list[int]]]:
    """Carry out an exercise; what it says, each with all who are told the same."""
    said: Said = getattr(protocol, name)(student)
    distinct: dict[int, tuple[Fields, list[int]]] = {}
    for to in student.to:
        if fields := said.get(to):
            distinct.setdefault(id(fields), (fields, []))[1].append(to)
    return list(distinct.values())

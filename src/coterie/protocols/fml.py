"""Federated mutual learning: a small model travels, and teaches those that stay at home."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.lessons import Lesson, Said, Student
from coterie.lessons.average import Average
from coterie.models import Model
from coterie.models.cnn import cnn
from coterie.protocols import Exercise, Round, Send
from coterie.protocols._gathering import Packets
from coterie.protocols.wandering import Wandering

MEME = "meme"


@dataclass(frozen=True)
class FML(Wandering):
    """Every node has a private model and a small one of common architecture, the meme, which learn from each other on
    its data; only memes travel, and the aggregator averages them.

        private, meme:  ½ L(z, y) + ½ KL(p_other ‖ p);   at the aggregator:  meme ← Σ_i |D_i| meme_i / Σ_i |D_i|

    The role of aggregator wanders as in `wandering`, with the same settings.

    Reference: Shen et al., Federated Mutual Learning, 2020
    """

    lesson: Lesson = Average()
    meme: Model = cnn
    epochs: int = 1

    local, models = False, (MEME,)

    def says(self, shape: Any, classes: int) -> dict[str, dict[str, int]]:
        """Memes, to the aggregator and back."""
        with torch.random.fork_rng(devices=[]):
            meme = self.meme(shape, classes)
        travels = [*meme.parameters(), *(b for b in meme.buffers() if b.is_floating_point())]
        size = sum(tensor.numel() for tensor in travels)
        return {tag: {MEME: size} for tag in ("model", "back")}

    def _train(self) -> Round:
        yield Exercise("learn", trains=True)

    def _offer(self, parent: np.ndarray) -> Round:
        told = yield Exercise("tell", to=parent)
        yield Send(parent, "model", told[int(parent[0])])

    def _teach(self, models: Packets, turn: int) -> Any:
        return (yield Exercise("average", models, to=np.array([*models], np.int64)))

    def _take(self, packet: Any, turn: int) -> Round:
        yield Exercise("home", {-1: packet})

    # The exercises.

    def learn(self, student: Student) -> Said:
        """Let one's private model and the meme learn from each other."""
        both = {0: student.pupil, 1: student.another(self.meme, MEME)}
        data = student.data

        def losses(outputs: Tensor, targets: Tensor) -> Tensor:
            logs = F.log_softmax(outputs, -1)
            others = torch.flip(logs.detach().exp(), [0])
            return 0.5 * data.supervise(outputs, targets).mean(-1) - 0.5 * (others * logs).sum(-1).mean(-1)

        learnt = data.learn(both, losses, self.epochs)
        student.pupil.params.copy_(learnt[0])
        student.notes[MEME] = learnt[1]
        return {}

    def tell(self, student: Student) -> Said:
        """One's meme."""
        return {to: {MEME: student.notes[MEME]} for to in student.to}

    def average(self, student: Student) -> Said:
        """The average of all memes, weighted by data, one's own included."""
        own = student.pupil.size
        memes = [(student.notes[MEME], own), *((m[MEME], float(m.size)) for m in student.heard.values() if MEME in m)]
        mean = sum((meme * size for meme, size in memes), torch.zeros_like(memes[0][0])) / sum(s for _, s in memes)
        student.notes[MEME] = mean
        said = {MEME: mean}
        return dict.fromkeys(student.to, said)

    def home(self, student: Student) -> Said:
        """Take the meme that came back."""
        for message in student.heard.values():
            student.notes[MEME] = message[MEME]
        return {}

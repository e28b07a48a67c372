"""Nodes make anchors of their data, share them with their neighbours, and learn from each other's logits on them."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.contract import Fields, Rule
from coterie.errors import ConfigError
from coterie.lessons import Look, Said, Student
from coterie.protocols import Exercise, Place, Protocol, Receive, Round, Send
from coterie.protocols._anchors import contrast, distil, taught
from coterie.randomness import generator


@dataclass(frozen=True)
class DESA(Protocol):
    """Neighbours share made-up samples (anchors) and exchange logits on them; models never travel and may all differ.

        once:  A_i ← distil(D_i);   round:  z_i(A_i), z_i(A_j) ↔ z_j(A_j), z_j(A_i);   w_i ← train(w_i) on
        CE(D_i ∪ A) + contrast·SupCon(D_i, A) + teaching·(0.1·CE(A) + 0.9·T²·KL(z̄, z_i(A))),   A = A_i ∪ {A_j}

    Each node distils `ipc` samples of every class it holds, in `steps` steps against random nets of this `width`. z̄ is
    the mean of the others' logits heard on an anchor, T the `temperature`. A mini-batch takes as many anchors as it has
    real samples. Anchors spread one hop, along links that go both ways, and again to whom turns out not to have them.
    They look like the data they are made of, and they leave the node. Neither rule nor objective is used.

    Reference: Huang et al., Overcoming Data and Model Heterogeneities in Decentralized Federated Learning via Synthetic
    Anchors, 2024
    """

    ipc: int = 50
    steps: int = 1000
    width: int = 32
    contrast: float = 1.0
    teaching: float = 1.0
    temperature: float = 20.0

    local, tags, samples = True, ("anchors", "logits"), ("anchors",)

    def __post_init__(self) -> None:
        if min(self.ipc, self.width) < 1 or self.steps < 0 or self.temperature <= 0:
            raise ValueError("ipc and width are at least 1, steps at least 0, and temperature is above 0")

    def says(self, shape: Any, classes: int) -> dict[str, dict[str, int]]:
        """One field for each class: absent classes are not sent."""
        if not classes or not all(isinstance(size, int) for size in shape):
            raise _unfit(shape, classes)
        return {
            "anchors": {f"{c}": self.ipc * prod(shape) for c in range(classes)},
            "logits": {f"{whose} {c}": self.ipc * classes for whose in ("mine", "yours") for c in range(classes)},
        }

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        partners = np.intersect1d(place.neighbours, place.audience)
        heard = None
        for name, tag in (("offer", "anchors"), ("tell", "logits")):
            for partner, packet in (yield Exercise(name, heard, partners)).items():
                yield Send(np.array([partner]), tag, packet)
            heard = yield Receive(partners, tag)
        yield Exercise("learn", heard, partners, trains=True)

    # The exercises. A node's notes: `anchors n` and their `classes n` of each node n at hand, and who `holds` its own.

    def offer(self, student: Student) -> Said:
        """One's own anchors, made in the first round, to those who are not known to have them."""
        notes, own = student.notes, student.node
        if "holds" not in notes:
            data = student.data
            if not student.classes or not isinstance(data.inputs, Tensor) or not data.inputs.is_floating_point():
                raise _unfit(student.shape, student.classes)
            made = distil(data.inputs, data.targets, self.ipc, self.steps, self.width, student.seed, own)
            self._note(student, own, {str(c): x for c, x in made.items()})
            notes["holds"] = torch.empty(0, dtype=torch.int64)
        mine = self._by_class(student, own, notes[f"anchors {own}"])
        return dict.fromkeys(sorted({*student.to} - {*notes["holds"].tolist()}), mine)

    def tell(self, student: Student) -> Said:
        """To each partner one's logits on one's own anchors, and on the partner's."""
        for sender, message in student.heard.items():
            self._note(student, sender, message.fields)
        mine = self._logits(student, student.node, "mine")
        return {partner: mine | self._logits(student, partner, "yours") for partner in student.to}

    def learn(self, student: Student) -> Said:
        """Train on one's own data, all anchors at hand, and the logits heard on them."""
        notes, heard = student.notes, student.heard
        holding = {j for j, said in heard.items() if any(name.startswith("yours") for name in said.fields)}
        holders = {
            *notes["holds"].tolist()
        } - heard.keys() | holding  # who has lost them, or missed them, gets them again
        notes["holds"] = torch.tensor(sorted(holders), dtype=torch.int64)
        at_hand = [n for n in (student.node, *student.to) if f"anchors {n}" in notes]
        x = torch.cat([notes[f"anchors {n}"] for n in at_hand])
        y = torch.cat([notes[f"classes {n}"].repeat_interleave(self.ipc) for n in at_hand])
        told = torch.cat([self._told(student, n) for n in at_hand])
        draw = generator(student.seed, "anchor batches", student.node, student.round)

        def loss(look: Look, inputs: Tensor, targets: Tensor) -> Tensor:
            real = len(targets)
            chosen = torch.as_tensor(draw.choice(len(y), min(len(y), real), replace=False)).to(y.device)
            features, logits = look(torch.cat([inputs, x[chosen]]))
            total = F.cross_entropy(logits, torch.cat([targets, y[chosen]]))
            total = total + self.contrast * contrast(features[:real], targets, features[real:], y[chosen])
            return total + self.teaching * taught(logits[real:], y[chosen], told[chosen], self.temperature)

        student.train(loss)
        return {}

    def forget(self, notes: dict[str, Tensor], node: int) -> set[int]:
        """Strike the others' anchors out: those who are there will send theirs again."""
        owners = {int(name.split()[1]) for name in notes if name.startswith("anchors ")} - {node}
        for owner in owners:
            del notes[f"anchors {owner}"], notes[f"classes {owner}"]
        return owners

    def _note(self, student: Student, node: int, fields: Fields) -> None:
        classes = sorted(map(int, fields))
        student.notes[f"anchors {node}"] = torch.cat([fields[str(c)].view(-1, *student.shape) for c in classes])
        student.notes[f"classes {node}"] = torch.tensor(classes).to(student.notes[f"anchors {node}"].device)

    def _by_class(self, student: Student, node: int, rows: Tensor, prefix: str = "") -> Fields:
        """A row for each anchor of a node, as one field for each class."""
        classes = student.notes[f"classes {node}"].tolist()
        return {f"{prefix}{c}": part.flatten() for c, part in zip(classes, rows.split(self.ipc), strict=True)}

    def _logits(self, student: Student, node: int, whose: str) -> Fields:
        if f"anchors {node}" not in student.notes:
            return {}
        return self._by_class(student, node, student.look(student.notes[f"anchors {node}"])[1], f"{whose} ")

    def _told(self, student: Student, node: int) -> Tensor:
        """The mean of the others' logits on a node's anchors; NaN where none were heard."""
        own = node == student.node
        heard = [said for sender, said in student.heard.items() if own or sender == node]
        nothing = student.notes[f"anchors {node}"].new_full((self.ipc * student.classes,), torch.nan)
        names = [f"{'yours' if own else 'mine'} {c}" for c in student.notes[f"classes {node}"].tolist()]
        means = [torch.stack([nothing, *(said[name] for said in heard if name in said)]).nanmean(0) for name in names]
        return torch.cat(means).view(-1, student.classes)


def _unfit(shape: Any, classes: int) -> ConfigError:
    """The error for data of which no anchors can be made."""
    return ConfigError(
        "protocol desa makes samples of its own",
        expected="samples of one tensor of floats, with class labels",
        got=f"samples {shape}, {classes or 'no'} classes",
        cure="Choose another protocol.",
    )

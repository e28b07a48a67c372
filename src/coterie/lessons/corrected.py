"""Mutual learning in which teachers' answers are freed of what they have seen most."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.lessons import Pupil
from coterie.lessons.mutual import Mutual


@dataclass(frozen=True)
class Corrected(Mutual):
    """Mutual learning in which what a teacher says is corrected by the label shares of its node's data.

        p_q = softmax(z_q − strength · log β_q),   β_q = (1 − floor) · label shares of q + floor / C

    A positive `strength` takes a teacher's prior off, as for models that cross-entropy has taught it; a negative one
    has each teacher speak of the classes that it has seen. All else is as in `mutual`. Models travel with the label
    shares of their nodes.

    Reference: ours, after Khalil et al., DFML: Decentralized Federated Mutual Learning, 2024
    """

    strength: float = 1.0
    floor: float = 0.1

    informed = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.floor <= 1:
            raise ValueError(f"floor is above 0 and at most 1, not {self.floor}")

    def answers(self, logs: Tensor, pupils: dict[int, Pupil]) -> Tensor:
        shares = torch.stack([pupil.labels.to(logs) for pupil in pupils.values() if pupil.labels is not None])
        priors = (1 - self.floor) * shares + self.floor / shares.shape[-1]
        return F.softmax(logs - self.strength * priors.log()[:, None], -1)

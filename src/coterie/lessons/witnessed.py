"""Mutual learning in which only those teach who have seen what is taught."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.lessons import Classroom, Lesson, Pupil


@dataclass(frozen=True)
class Witnessed(Lesson):
    """All models learn from the aggregator's data, and of each sample from those whose nodes hold samples of its class.

        loss_n = (1 − α) L(z_n, y) + α Σ_{q≠n} s_q(y) KL(p_q ‖ p_n),   s_q(y) = |D_q(y)| / Σ_u |D_u(y)|, u ≠ n

    |D_q(y)| is how many samples of class y the node of model q trains on. Where no teacher has any, supervision is all
    there is. Models travel with the label shares of their nodes.

    Reference: ours, after Khalil et al., DFML: Decentralized Federated Mutual Learning, 2024
    """

    epochs: int = 10
    alpha: float = 0.5

    informed = True

    def __post_init__(self) -> None:
        if self.epochs < 1 or not 0 <= self.alpha <= 1:
            raise ValueError(f"epochs is at least 1 and alpha from 0 to 1, not {self.epochs} and {self.alpha}")

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        seen = torch.stack([_counts(pupil) for pupil in pupils.values()])

        def losses(outputs: Tensor, targets: Tensor) -> Tensor:
            logs = F.log_softmax(outputs, -1)
            held = seen.to(outputs)[:, targets].expand(len(pupils), -1, -1)  # [student, teacher, sample]
            held = held * (1 - torch.eye(len(pupils), device=held.device))[..., None]
            shares = held / held.sum(1, keepdim=True).clamp(min=1e-9)
            taught = torch.einsum("nqb,qbc->nbc", shares, logs.detach().exp())
            weight = self.alpha * (held.sum(1) > 0)
            supervised = (1 - weight) * data.supervise(outputs, targets)
            return (supervised - weight * (taught * logs).sum(-1)).mean(-1)

        return data.learn(pupils, losses, self.epochs)


def _counts(pupil: Pupil) -> Tensor:
    """How many samples of each class a model's node has; those of one that does not say count for nothing."""
    return torch.zeros(0) if pupil.labels is None else pupil.labels.cpu() * pupil.size

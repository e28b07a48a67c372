"""The lesson of mutual learning: all models learn from the aggregator's data and from each other."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.lessons import PEAK, Classroom, Homecoming, Lesson, Pupil
from coterie.lessons._schedule import Schedule, ScheduleShape

TOLERANCE = 1e-6
"""By how much a weight may miss the one at which a model was kept and still count as equal."""


@dataclass(frozen=True)
class Mutual(Lesson):
    """All models, whatever their architectures, learn from the aggregator's data and from each other's answers to them.

        loss_n = (1 − α) L(z_n, y) + α Σ_{q≠n} Φ_q / Σ_{u≠n} Φ_u · KL(p_q ‖ p_n),   p = softmax(z)

    L is the run's objective with the aggregator's label shares, Φ a model's number of parameters (`weights` "equal":
    all alike), α the weight of distillation: cosine cycles from `low` to `high` of a growing `period`, half cycles,
    fixed at `high`, or falling from it. All take `epochs` epochs on the aggregator's data. `varies` says what α weighs:
    it goes between both parts, or one has its weight (1 − α or α) and the other 1, or both have α. With `learners`
    "own" only the aggregator's model learns. With `samples` "wsl" a teacher counts for less where it is worse than the
    student: 1 − exp(−CE_n / CE_q). Each node keeps the model of a high α (its peak) beside the present one: by the
    `peaks` "rule" that of the highest α it came home with since the first maximum, by "top" that of each of a cycle's
    `top` highest.

    Reference: Khalil et al., DFML: Decentralized Federated Mutual Learning, 2024
    """

    epochs: int = 10
    schedule: ScheduleShape = "cycle"
    low: float = 0.0
    high: float = 0.9
    period: int = 10
    growth: int = 10
    varies: Literal["between", "supervision", "distillation", "both"] = "between"
    weights: Literal["size", "equal"] = "size"
    samples: Literal["equal", "wsl"] = "equal"
    learners: Literal["all", "own"] = "all"
    peaks: Literal["rule", "top", "none"] = "rule"
    top: int = 1

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.top < 1:
            raise ValueError(f"epochs and top are at least 1, not {self.epochs} and {self.top}")
        _ = self._schedule

    @property
    def _schedule(self) -> Schedule:
        return Schedule(self.schedule, self.low, self.high, self.period, self.growth)

    def cycles(self, rounds: int) -> list[int]:
        """A turn a round: where rounds fail, turns lag behind them."""
        return [turn + 1 for turn in self._schedule.starts(rounds)]

    @property
    def keeps(self) -> bool:
        return self.peaks != "none"

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        alpha = self._schedule.alpha(data.turn, data.rounds)
        supervision, distillation = {
            "between": (1 - alpha, alpha),
            "supervision": (1 - alpha, 1.0),
            "distillation": (1.0, alpha),
            "both": (alpha, alpha),
        }[self.varies]
        trust = self.trust(pupils)

        def losses(outputs: Tensor, targets: Tensor) -> Tensor:
            total = supervision * data.supervise(outputs, targets).mean(-1)
            if distillation == 0 or len(pupils) < 2:
                return total
            logs = F.log_softmax(outputs, -1)
            answers = self.answers(logs.detach(), pupils)
            return total + distillation * self.divergence(logs, answers, targets, trust.to(outputs))

        own = None if self.learners == "all" else [data.node]
        return data.learn(pupils, losses, self.epochs, own)

    def trust(self, pupils: dict[int, Pupil]) -> Tensor:
        """How much each model (row) learns from each other one (column): rows sum to 1, the diagonal is 0."""
        sizes = [float(p.layout.size) if self.weights == "size" else 1.0 for p in pupils.values()]
        counts = torch.tensor(sizes).expand(len(sizes), -1) * (1 - torch.eye(len(sizes)))
        return counts / counts.sum(1, keepdim=True).clamp(min=1)

    def answers(self, logs: Tensor, pupils: dict[int, Pupil]) -> Tensor:
        """What each model says as a teacher: p_q, from the logarithms of what it says as a student."""
        return logs.exp()

    def divergence(self, logs: Tensor, answers: Tensor, targets: Tensor, trust: Tensor) -> Tensor:
        """Σ_q trust_nq KL(p_q ‖ p_n) of each model n, up to what does not depend on it: p_q are `answers`.

        As p_n enters by its logarithm alone, all teachers of a student are one mixed target.
        """
        if self.samples == "wsl":
            errors = -logs.detach()[..., torch.arange(len(targets)), targets].clamp(max=-TOLERANCE)
            bias = 1 - torch.exp(-errors[:, None] / errors[None])
            mixed = torch.einsum("nq,nqb,qbc->nbc", trust, bias, answers)
        else:
            mixed = torch.einsum("nq,qbc->nbc", trust, answers)
        return -(mixed * logs).sum(-1).mean(-1)

    def home(self, home: Homecoming) -> None:
        alpha, kept = self._schedule.alpha(home.turn, home.rounds), home.notes.get(f"{PEAK} weight")
        if kept is None or home.turn <= self._schedule.first_peak:
            high = True
        elif self.peaks == "top":
            high = self._schedule.among_highest(home.turn, self.top)
        else:
            high = alpha >= float(kept) - TOLERANCE
        if high:
            home.notes.update({PEAK: home.params.clone(), f"{PEAK} weight": torch.tensor([alpha])})

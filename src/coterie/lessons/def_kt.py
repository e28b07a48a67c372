"""The lesson of Def-KT."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.contract import Layout
from coterie.errors import ConfigError
from coterie.lessons import Classroom, Lesson, Pupil


@dataclass(frozen=True)
class DefKT(Lesson):
    """The receiver's model and the one that came learn from its data and from each other; it goes on with the latter.

        loss_n = L(z_n, y) + KL(p_other ‖ p_n);   the receiver's model ← the one that came, the sender keeps its own

    Of several that came, the first by number is taken. It wants models of one architecture.

    Reference: Li et al., Decentralized Federated Learning via Mutual Knowledge Transfer, 2021
    """

    epochs: int = 10

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs is at least 1, not {self.epochs}")

    def suits(self, layouts: Mapping[str, Layout]) -> None:
        if len(layouts) > 1:
            cure = "Give all nodes one model, or choose a lesson that takes any: mutual."
            raise ConfigError("lesson def_kt hands models over", expected="one model", got=len(layouts), cure=cure)

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        came = min(node for node in pupils if node != data.node)

        def losses(outputs: Tensor, targets: Tensor) -> Tensor:
            logs = F.log_softmax(outputs, -1)
            others = torch.flip(logs.detach().exp(), [0])
            return data.supervise(outputs, targets).mean(-1) - (others * logs).sum(-1).mean(-1)

        learnt = data.learn({n: pupils[n] for n in (data.node, came)}, losses, self.epochs)
        return {data.node: learnt[came]}

"""The lesson of federated dropout."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.contract import Layout
from coterie.lessons import Classroom, Lesson, Pupil
from coterie.lessons._slices import averaged, check_widths
from coterie.randomness import torch_generator


@dataclass(frozen=True)
class FederatedDropout(Lesson):
    """As in HeteroFL, but a narrow model has units that are drawn anew for each node and round.

        units of a layer with k of J:  k of {0, …, J−1}, drawn without repetition, in ascending order

    Reference: Caldas et al., Expanding the Reach of Federated Learning by Reducing Client Resource Requirements, 2018
    """

    def suits(self, layouts: Mapping[str, Layout]) -> None:
        check_widths("federated_dropout", layouts)

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        def units(node: int, whole: int, own: int) -> Tensor:
            rng = torch_generator(data.seed, "units", node, data.round, whole, own)
            return torch.randperm(whole, generator=rng)[:own].sort().values

        return averaged(pupils, units)

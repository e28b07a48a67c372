"""The lesson of FedRolex."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from coterie.contract import Layout
from coterie.lessons import Classroom, Lesson, Pupil
from coterie.lessons._slices import averaged, check_widths


@dataclass(frozen=True)
class FedRolex(Lesson):
    """As in HeteroFL, but the units that a narrow model has roll on by one with every turn t.

        units of a layer with k of J:  {t mod J, …, (t + k − 1) mod J}

    In `ascending` order a model of full width has all units where they are, and only narrower ones shift. Taken as they
    roll, all models shift alike, which is HeteroFL again.

    Reference: Alam et al., FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model Extraction, 2022
    """

    order: Literal["ascending", "rolled"] = "ascending"

    def suits(self, layouts: Mapping[str, Layout]) -> None:
        check_widths("fedrolex", layouts)

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        def units(node: int, whole: int, own: int) -> Tensor:
            rolled = (data.turn + torch.arange(own)) % whole
            return rolled.sort().values if self.order == "ascending" else rolled

        return averaged(pupils, units)

"""The lesson of HeteroFL."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.contract import Layout
from coterie.lessons import Classroom, Lesson, Pupil
from coterie.lessons._slices import averaged, check_widths


@dataclass(frozen=True)
class HeteroFL(Lesson):
    """A narrow model is the first units of each layer of the widest; a unit is averaged over the models that have it.

        units of a layer with k of J:  {0, …, k−1}

    Running statistics of norms are averaged over models of one width alone.

    Reference: Diao et al., HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous
    Clients, 2021
    """

    def suits(self, layouts: Mapping[str, Layout]) -> None:
        check_widths("heterofl", layouts)

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        return averaged(pupils, lambda node, whole, own: torch.arange(own))

"""The lesson of FedAvg."""

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.lessons import Classroom, Lesson, Pupil


@dataclass(frozen=True)
class Average(Lesson):
    """Everyone gets the average of the models of equal architecture, weighted by their data.

        w ← Σ_i |D_i| w_i / Σ_i |D_i|

    Reference: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017
    """

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        alike: dict[str, list[int]] = defaultdict(list)
        for node in sorted(pupils):
            alike[pupils[node].architecture].append(node)
        taught: dict[int, Tensor] = {}
        for nodes in alike.values():
            sizes = torch.tensor([pupils[n].size for n in nodes])
            shares = (sizes / sizes.sum()).tolist()
            mean = torch.zeros_like(pupils[nodes[0]].params)
            for node, share in zip(nodes, shares, strict=True):
                mean.add_(pupils[node].params, alpha=share)
            taught |= dict.fromkeys(nodes, mean)
        return taught

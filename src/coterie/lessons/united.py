"""Mutual learning between the averages of equal architectures."""

from dataclasses import dataclass, replace

from torch import Tensor

from coterie.lessons import Classroom, Pupil
from coterie.lessons.average import Average
from coterie.lessons.mutual import Mutual


@dataclass(frozen=True)
class United(Mutual):
    """Models of equal architecture are averaged first, and then one of each architecture learns as in `mutual`.

        w_n ← Σ_i |D_i| w_i / Σ_i |D_i| over the models of n's architecture;  {w} ← mutual ({one of each})

    All nodes of an architecture go home with the same model, so they should begin with the same: `initialiser =
    "common"`. A lesson computes less than `mutual` where architectures are alike.

    Reference: ours, after Khalil et al., DFML: Decentralized Federated Mutual Learning, 2024
    """

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        means, first = Average().teach(pupils, data), dict[str, int]()
        for node in (data.node, *pupils):  # the aggregator's own model is the one of its architecture
            first.setdefault(pupils[node].architecture, node)
        one_of_each = {n: replace(p, params=means[n]) for n, p in pupils.items() if n in first.values()}
        learnt = super().teach(one_of_each, data)
        taught = {n: first[p.architecture] for n, p in pupils.items()}
        return {n: learnt[by] if by in learnt else means[n] for n, by in taught.items()}

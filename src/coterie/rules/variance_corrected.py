"""Averaging that leaves weights as large as they were."""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from coterie.contract import Fields, Inbox, Layout, Me, Message, Range, Rule, State, Term


@dataclass(frozen=True)
class VarianceCorrected(Rule):
    """DecAvg, with the spread of each weight tensor scaled back to what averaging unlike models takes from it.

        w̄_i = Σ_j p_ij w_j,   p_ij = ω_ij |D_j| / Σ_k ω_ik |D_k|,   j and k over N_i ∪ {i}
        δ(w) = w less the mean of each unit's incoming weights;   r(w) = root mean square of δ(w) over a tensor
        w_i ← w̄_i + (s − 1) δ(w̄_i),   s = min(√(1 + |N_i|), √(Σ_j p_ij r(w_j)²) / r(w̄_i))   for each tensor

    Of independent models s is 1/√Σp², what averaging shrinks them by, and that is at most √(1 + |N_i|); of models that
    agree it is 1, so the correction ends by itself and nothing need be known of the network. Units' means are averaged
    only: they hold what all nodes learn alike at first, which averaging keeps and a factor would blow up. So are
    tensors of one dimension (biases, norms). A message is longer by one number for each tensor. After round `until`, if
    one is named, models are averaged only.

    Reference: ours. That averaging takes the variance of unlike weights away, and the cure of restoring it, are known:
    Tian, Kitsak, Al-Ars, Hofstee, Vanishing Variance Problem in Fully Decentralized Neural-Network Systems, 2024, whose
    form is `variance_restored`. Ours leaves units' means alone and bounds the factor
    """

    span = "model"
    until: Annotated[int, Ge(1)] | None = None

    def own_weight(self, size: Tensor, near: Tensor, count: Tensor) -> None:
        return None  # merging shrinks nothing

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        return {"w": params, "r": _spreads(me.layout, _deviations(me.layout, params))}

    def ranges(self, round: int) -> dict[str, Range]:
        return {**super().ranges(round), "r": Range(least=0.0, scale=1.0)}

    def lift(self, message: Message) -> dict[str, Term]:
        return {"w": Term(message["w"], message.size), "r²": Term(message["r"].square(), message.size)}

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        average = inbox.mean("w", own=True)
        deviations = _deviations(me.layout, average)
        left = _spreads(me.layout, deviations)
        scale = torch.where(left > 0, inbox.mean("r²", own=True).sqrt() / left, 1.0)
        scale = torch.minimum(scale, (1 + inbox.count).sqrt())  # models that cancel out leave noise: not to be blown up
        if self.until is not None and me.round > self.until:
            scale = torch.ones_like(scale)
        widths = torch.tensor([b - a for a, b in me.layout.spans], device=scale.device)
        return average + (scale - 1).repeat_interleave(widths, dim=-1) * deviations, state


def _deviations(layout: Layout, x: Tensor) -> Tensor:
    """Weights less the mean of those that lead to the same unit; zero in tensors of one dimension."""
    found = torch.zeros_like(x)
    for shape, (a, b) in zip(layout.shapes, layout.spans, strict=True):
        if len(shape) >= 2:
            weights = x[..., a:b].unflatten(-1, (shape[0], -1))
            found[..., a:b] = (weights - weights.mean(-1, keepdim=True)).flatten(-2)
    return found


def _spreads(layout: Layout, deviations: Tensor) -> Tensor:
    """The root mean square of each tensor, `[..., tensors]`."""
    return torch.stack([deviations[..., a:b].square().mean(-1).sqrt() for a, b in layout.spans], dim=-1)

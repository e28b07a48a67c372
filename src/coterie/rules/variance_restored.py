"""Averaging whose tensors are given back the variance that they had."""

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.contract import Fields, Inbox, Layout, Me, Message, Range, Rule, State, Term


@dataclass(frozen=True)
class VarianceRestored(Rule):
    """DecAvg, with each whole tensor rescaled about its mean to the mean variance of those that went into it.

        w̄_i = Σ_j p_ij w_j,   p_ij = ω_ij |D_j| / Σ_k ω_ik |D_k|,   j and k over N_i ∪ {i}
        w_i ← m(w̄_i) + (w̄_i − m(w̄_i)) · √(Σ_j p_ij Var(w_j) / Var(w̄_i))   for each tensor, m its mean

    Unlike `variance_corrected` it has no bound on the factor, and scales what units have in common, too.

    Reference: Tian, Kitsak, Al-Ars, Hofstee, Vanishing Variance Problem in Fully Decentralized Neural-Network Systems,
    2024
    """

    span = "model"

    def own_weight(self, size: Tensor, near: Tensor, count: Tensor) -> None:
        return None  # merging shrinks nothing

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        return {"w": params, "deviation": _variances(me.layout, params).sqrt()}

    def ranges(self, round: int) -> dict[str, Range]:
        return {**super().ranges(round), "deviation": Range(least=0.0, scale=1.0)}

    def lift(self, message: Message) -> dict[str, Term]:
        return {"w": Term(message["w"], message.size), "variance": Term(message["deviation"].square(), message.size)}

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        average = inbox.mean("w", own=True)
        left = _variances(me.layout, average)
        scale = torch.where(left > 0, (inbox.mean("variance", own=True) / left).sqrt(), 1.0)
        means = torch.stack([average[..., a:b].mean(-1) for a, b in me.layout.spans], dim=-1)
        widths = torch.tensor([b - a for a, b in me.layout.spans], device=scale.device)
        middle = means.repeat_interleave(widths, dim=-1)
        return middle + (average - middle) * scale.repeat_interleave(widths, dim=-1), state


def _variances(layout: Layout, x: Tensor) -> Tensor:
    """The variance of each tensor about its own mean, `[..., tensors]`."""
    return torch.stack([x[..., a:b].var(-1, correction=0) for a, b in layout.spans], dim=-1)

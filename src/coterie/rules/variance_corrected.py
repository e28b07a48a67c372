"""Averaging that leaves weights as large as they were."""

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.contract import Fields, Inbox, Layout, Me, Message, Rule, State, Term


@dataclass(frozen=True)
class VarianceCorrected(Rule):
    """DecAvg, with each weight tensor scaled back to the size that averaging unlike models takes from it.

        w̄_i = Σ_j p_ij w_j,   p_ij = ω_ij |D_j| / Σ_k ω_ik |D_k|,   j and k over N_i ∪ {i}
        w_i ← s·w̄_i,   s = min(√(1 + |N_i|), √(Σ_j p_ij r(w_j)²) / r(w̄_i))   for each tensor, r its root mean square

    Of independent models s is 1/√Σp², what averaging shrinks them by, and that is at most √(1 + |N_i|); of models that
    agree it is 1, so the correction ends by itself and nothing need be known of the network. Tensors of one dimension
    (biases, norms) are averaged only: no signal is multiplied by biases, so none fades with them. A message is longer
    by one number for each tensor.

    Reference: ours; the cause is that of Badie-Modiri et al., Initialisation and Network Effects in Decentralised
    Federated Learning, which corrects the start instead
    """

    span = "model"

    def own_weight(self, size: Tensor, near: Tensor, count: Tensor) -> None:
        return None  # merging shrinks nothing

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        return {"w": params, "r": _root_mean_squares(me.layout, params)}

    def lift(self, message: Message) -> dict[str, Term]:
        return {"w": Term(message["w"], message.size), "r²": Term(message["r"].square(), message.size)}

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        average = inbox.mean("w", own=True)
        left = _root_mean_squares(me.layout, average)
        scale = torch.where(left > 0, inbox.mean("r²", own=True).sqrt() / left, 1.0)
        scale = torch.minimum(scale, (1 + inbox.count).sqrt())  # models that cancel out leave noise: not to be blown up
        matrix = torch.tensor([len(shape) >= 2 for shape in me.layout.shapes], device=scale.device)
        widths = torch.tensor([b - a for a, b in me.layout.spans], device=scale.device)
        return average * torch.where(matrix, scale, 1.0).repeat_interleave(widths, dim=-1), state


def _root_mean_squares(layout: Layout, x: Tensor) -> Tensor:
    """How large the numbers of each tensor are, `[..., tensors]`."""
    return torch.stack([x[..., a:b].square().mean(-1).sqrt() for a, b in layout.spans], dim=-1)

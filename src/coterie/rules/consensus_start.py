"""A start that is agreed by merging, and rescaled by what merging took."""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from coterie.contract import Fields, Inbox, Layout, Me, Message, Range, Rule, State, Term


@dataclass(frozen=True)
class ConsensusStart(Rule):
    """DecAvg after a consensus of the untrained models, each tensor of which is rescaled once to its first spread.

        u_i ← Σ_j p_ij u_j over those who have not begun, from one's own start, until r(u_i) has fallen by less than
        `fall` in each of `rest` rounds;   then w_i ← u_i · r(u_i, first) / r(u_i) for each tensor, and DecAvg

    What is trained until then is thrown away. Who hears somebody that has begun begins with the average of those, so
    that beginning spreads from neighbour to neighbour, and a late joiner takes over what the others have.

    Reference: ours, after Badie-Modiri et al., Initialisation and Network Effects in Decentralised Federated Learning
    """

    span = "model"
    fall: Annotated[float, Gt(0)] = 0.01
    rest: Annotated[int, Ge(1)] = 2

    def own_weight(self, size: Tensor, near: Tensor, count: Tensor) -> None:
        return None  # what merging takes is measured

    def init(self, me: Me, params: Tensor) -> State:
        spread = _spreads(me.layout, params)
        nothing = torch.zeros_like(me.size)
        return {
            "u": params.clone(),
            "first": spread,
            "last": _total(spread),
            "rested": nothing,
            "begun": nothing.clone(),
        }

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        begun = state["begun"]
        return {"w": torch.where(begun > 0, params, state["u"]), "begun": begun}

    def ranges(self, round: int) -> dict[str, Range]:
        return {**super().ranges(round), "begun": Range(least=0.0, norm=1.0)}

    def lift(self, message: Message) -> dict[str, Term]:
        begun = message["begun"]
        return {
            "w": Term(message["w"], message.size * begun),
            "u": Term(message["w"], message.size * (1 - begun)),
            "going": Term(message.size * begun),
            "waiting": Term(message.size * (1 - begun)),
        }

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        going = inbox.sum("going", own=True)
        w = inbox.sum("w", own=True) / going.clamp(min=1e-30)
        waiting = inbox.sum("u", own=True) / inbox.sum("waiting", own=True).clamp(min=1e-30)
        u = torch.where(state["begun"] > 0, state["u"], waiting)
        spread = _spreads(me.layout, u)
        total = _total(spread)
        rested = torch.where(total > (1 - self.fall) * state["last"], state["rested"] + 1, 0.0)
        widths = torch.tensor([b - a for a, b in me.layout.spans], device=u.device)
        scale = torch.where(spread > 0, state["first"] / spread, 1.0).repeat_interleave(widths, dim=-1)
        begins = rested >= self.rest
        new = torch.where(going > 0, w, torch.where(begins, u * scale, u))
        begun = ((going > 0) | begins).to(params.dtype)
        return new, {**state, "u": u, "last": total, "rested": rested, "begun": begun}


def _spreads(layout: Layout, x: Tensor) -> Tensor:
    """The root mean square of each tensor, `[..., tensors]`."""
    return torch.stack([x[..., a:b].square().mean(-1).sqrt() for a, b in layout.spans], dim=-1)


def _total(spreads: Tensor) -> Tensor:
    return spreads.square().sum(-1, keepdim=True).sqrt()

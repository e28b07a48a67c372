"""Averaging weighted by second-order information."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from coterie.contract import Data, Fields, Inbox, Me, Message, Range, Rule, State, Term
from coterie.errors import ConfigError

PLAY = 4.0
"""By what factor a neighbour's Ĥ may be longer than one look at the data in each round makes it."""


@dataclass(frozen=True)
class DecHW(Rule):
    """Every parameter averaged with the weights that the Gauss–Newton diagonal gives it.

        h_i = Σ_batches (∂ loss/∂w)²,  h_i ← h_i / ‖h_i‖₂,  Ĥ_i ← Ĥ_i + β h_i   (Ĥ_i ← h_i at first)
        w_in ← Σ_{j∈N_i∪{i}} ω_ij Ĥ_jn w_jn / Σ_{j∈N_i∪{i}} ω_ij Ĥ_jn;   by data size where the sum of Ĥ is zero

    Settings: `theta` rounds of exchanging Ĥ, after which weights come from the data sizes (DecHW*); `accumulate`, which
    is that sum, or exponential, Ĥ_i ← (1 − β) Ĥ_i + β h_i, or none, Ĥ_i ← h_i; `batch_size` and at most `batches`
    batches for the diagonal. It tells ‖h_i‖₂ before the division (`h_norm`) and the element of Ĥ_i at `trace`, the
    middle of the vector if none is named (`h_element`).

    Reference: Ahmad et al., DecHW: Heterogeneous Decentralized Federated Learning Exploiting Second-Order Information
    """

    observes = True
    beta: float = 1.0
    theta: int | None = None
    accumulate: Literal["sum", "exponential", "none"] = "sum"
    batch_size: int = 100
    batches: int | None = None
    trace: int | None = None

    def __post_init__(self) -> None:
        if self.theta is not None and self.theta < 0:
            raise ValueError(f"theta must be at least 0, not {self.theta}")
        if self.beta < 0 or (self.accumulate == "exponential" and self.beta > 1):
            raise ValueError(f"beta must be at least 0, and at most 1 if accumulate is exponential, not {self.beta}")
        if self.batch_size < 1 or (self.batches is not None and self.batches < 1):
            raise ValueError(f"batch_size and batches must be at least 1, not {self.batch_size} and {self.batches}")

    def _exchanges(self, round: int) -> bool:
        return self.theta is None or round <= self.theta

    def init(self, me: Me, params: Tensor) -> State:
        if self.trace is not None and not 0 <= self.trace < params.shape[-1]:
            raise ConfigError("rule.trace", expected=f"0 to {params.shape[-1] - 1}", got=self.trace)
        nothing = torch.zeros_like(me.size)
        return {"h": torch.zeros_like(params), "seen": nothing, "norm": nothing.clone()}

    def observe(self, me: Me, params: Tensor, state: State, data: Data) -> State:
        if not self._exchanges(me.round):
            return state
        h = self._diagonal(params, data)
        norm = h.norm(dim=-1, keepdim=True)
        h.div_(torch.where(norm > 0, norm, 1.0))
        if self.accumulate != "none":
            kept = 1.0 if self.accumulate == "sum" else 1 - self.beta
            h = torch.where(state["seen"] > 0, kept * state["h"] + self.beta * h, h)
        return {"h": h, "seen": torch.ones_like(state["seen"]), "norm": norm}

    def _diagonal(self, params: Tensor, data: Data) -> Tensor:
        h = torch.zeros_like(params)
        for gradient in data.grads(params, self.batch_size, self.batches):
            h.addcmul_(gradient, gradient)
        return h

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        return {"w": params, "h": state["h"]} if self._exchanges(me.round) else {"w": params}

    def ranges(self, round: int) -> dict[str, Range]:
        longest = 1 + self.beta * round if self.accumulate == "sum" else 1.0  # what is added each time has length one
        return {**super().ranges(round), "h": Range(least=0.0, norm=PLAY * longest)}

    def lift(self, message: Message) -> dict[str, Term]:
        terms = {"w": Term(message["w"], message.size)}
        if "h" in message:
            terms |= {"h": Term(message["h"]), "hw": Term(message["h"] * message["w"])}
        return terms

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        average = inbox.mean("w", own=True)
        if "h" not in inbox or not self._exchanges(me.round):  # of a late message, when one's own has none any more
            return average, state
        curvature = inbox.sum("h", own=True)
        return torch.where(curvature > 0, inbox.sum("hw", own=True) / curvature, average), state

    def tell(self, me: Me, params: Tensor, state: State) -> dict[str, Tensor]:
        at = params.shape[-1] // 2 if self.trace is None else self.trace
        return {"h_norm": state["norm"], "h_element": state["h"][..., at : at + 1]}

"""Consensus-based federated averaging with gradients from the neighbours."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.contract import Data, Fields, Inbox, Me, Message, Range, State, Term
from coterie.rules.cfa import CFA


@dataclass(frozen=True)
class CFAGE(CFA):
    """CFA, then a step down the gradients that the neighbours took of their own data at one's model of last round.

        w_i ← w_i + ε Σ_{j∈N_i} p_ij (w_j − w_i) − step·G_i      (ε, p_ij as in CFA)
        G_i ← ρ Σ_{j∈N_i} ω_ij ∇L_j(w_i) + (1 − ρ) G_i           (of the w_i sent in this round; G_i = 0 at first)

    Each neighbour answers a model with one gradient of as many parameters, so messages are twice as long as CFA's and
    the work of a round grows with the number of links. A gradient is that of one mini-batch of `batch_size` samples,
    another one in every round. The sum is smoothed where it arrives, which is the same as smoothing every summand.

    Reference: Savazzi et al., Federated Learning with Cooperating Devices, 2020, the faster variant; baseline of
    Valerio et al., Coordination-free Decentralised Federated Learning on Complex Networks, 2023
    """

    answers = True
    rho: float = 0.99
    step: float = 0.0015
    batch_size: int = 100

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {self.batch_size}")
        if not 0 <= self.rho <= 1:
            raise ValueError(f"rho must be from 0 to 1, not {self.rho}")
        if not 0 <= self.step < math.inf:
            raise ValueError(f"step must be at least 0, not {self.step}")

    def init(self, me: Me, params: Tensor) -> State:
        return {"g": torch.zeros_like(params)}

    def answer(self, me: Me, theirs: Message, data: Data) -> Fields:
        return {"gradient": next(iter(data.grads(theirs["w"], self.batch_size, batches=1, first=me.round - 1)))}

    def ranges(self, round: int) -> dict[str, Range]:
        return {**super().ranges(round), "gradient": Range(scale=abs(self.step * self.rho))}

    def lift(self, message: Message) -> dict[str, Term]:
        if "gradient" in message:
            return {"g": Term(message["gradient"])}
        return {"w": Term(message["w"], message.size)}

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        consensus, _ = super().merge(me, params, state, inbox)
        fresh = inbox.sum("g") if "g" in inbox else torch.zeros_like(params)
        return consensus - self.step * state["g"], {"g": self.rho * fresh + (1 - self.rho) * state["g"]}

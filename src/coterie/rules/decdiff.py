"""A bounded step towards the neighbours' average."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from coterie.contract import Inbox, Me, Rule, State


@dataclass(frozen=True)
class DecDiff(Rule):
    """A step towards the neighbours' average whose length stays below one, in each tensor or in the whole model.

        w̄_i = Σ_{j∈N_i} ω_ij |D_j| w_j / Σ_{j∈N_i} ω_ij |D_j|
        w_i ← w_i + (w̄_i − w_i) / (‖w̄_i − w_i‖₂ + s)

    Reference: Valerio et al., Coordination-free Decentralised Federated Learning on Complex Networks, 2023, Eq. 5
    """

    span = "model"
    s: float = 1.0
    norm: Literal["tensor", "model"] = "tensor"

    def __post_init__(self) -> None:
        if not 0 < self.s < math.inf:
            raise ValueError(f"s must be above 0, not {self.s}")

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        def step(d: Tensor) -> Tensor:
            length: Tensor = torch.linalg.vector_norm(d, dim=-1, keepdim=True)
            return d / (length + self.s)

        difference = inbox.mean("w") - params
        return params + (me.layout.map(step, difference) if self.norm == "tensor" else step(difference)), state

    def own_weight(self, size: Tensor, near: Tensor, count: Tensor) -> None:
        return None  # steps of length one hardly shrink a model, and take as long to come back from a blown-up one

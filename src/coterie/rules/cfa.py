"""Consensus-based federated averaging."""

from dataclasses import dataclass

from torch import Tensor

from coterie.contract import Inbox, Me, Rule, State


@dataclass(frozen=True)
class CFA(Rule):
    """A step of size ε = 1/(neighbours heard) from one's own model towards the neighbours' average.

        w_i ← w_i + ε Σ_{j∈N_i} p_ij (w_j − w_i),   p_ij = ω_ij |D_j| / Σ_{k∈N_i} ω_ik |D_k|

    Reference: Savazzi et al., Federated Learning with Cooperating Devices, 2020; baseline of Valerio et al., 2023
    """

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        return params + (inbox.mean("w") - params) / inbox.count, state

    def own_weight(self, size: Tensor, near: Tensor, count: Tensor) -> Tensor:
        return (count - 1).clamp(min=0) * near / size  # one's own share is 1 − 1/count

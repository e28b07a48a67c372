"""No exchange."""

from dataclasses import dataclass

from torch import Tensor

from coterie.contract import Fields, Me, Rule, State


@dataclass(frozen=True)
class Isolation(Rule):
    """Every node trains alone: nothing is sent, so nothing is merged.

    Reference: Valerio et al., Coordination-free Decentralised Federated Learning on Complex Networks, 2023
    """

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        return {}

    def own_weight(self, size: Tensor, near: Tensor, count: Tensor) -> None:
        return None  # nothing is merged

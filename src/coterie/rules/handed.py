"""The average of what is handed on."""

from dataclasses import dataclass

from torch import Tensor

from coterie.contract import Inbox, Me, Rule, State


@dataclass(frozen=True)
class Handed(Rule):
    """The average of what was heard, weighted by data, without one's own model: what the aggregate relay begins with.

        w_k ← (s_{k−1} w_{k−1} + s_{k−2} w_{k−2}) / (s_{k−1} + s_{k−2})

    Reference: Jiang et al., Performance Analysis of Decentralized Federated Learning Deployments
    """

    replaces = True

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        return inbox.mean("w"), state

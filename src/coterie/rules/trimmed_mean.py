"""A robust average: the mean of each coordinate without its extremes."""

import math
from dataclasses import dataclass

from torch import Tensor

from coterie.contract import Inbox, Me, Rule, State


@dataclass(frozen=True)
class TrimmedMean(Rule):
    """The mean of each coordinate over oneself and the neighbours, after leaving out a share at both ends.

        w_in ← mean of the sorted w_jn, j∈N_i∪{i}, without the first and last ⌊share·(|N_i|+1)⌋

    Reference: Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, 2018
    """

    raw = True
    share: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.share < 0.5:
            raise ValueError(f"share must be at least 0 and below 0.5, not {self.share}")

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        ordered = inbox.rows("w", own=True).sort(dim=-2).values
        k = ordered.shape[-2]
        cut = math.floor(round(self.share * k, 9))  # 0.29 of 100 is 29, whatever the float says
        return ordered[..., cut : k - cut, :].mean(dim=-2), state

"""A robust average: the mean of each coordinate without its extremes."""

import math
from dataclasses import dataclass

from torch import Tensor

from coterie.contract import Inbox, Me, Rule, State


@dataclass(frozen=True)
class TrimmedMean(Rule):
    """The mean of each coordinate over oneself and the neighbours, after leaving out a share at both ends.

        w_in ← mean of the sorted w_jn, j∈N_i∪{i}, without the first and last b
        b = ⌊share·(|N_i|+1)⌋, and at least 1 from three neighbours on unless share is 0

    Of the neighbours heard it bears b liars, whatever they say: every coordinate stays between honest ones. With a
    share of 0.2:

        neighbours   1–2   3–8   9–13   14–18   19–23   n
        liars         0     1     2       3       4     ⌊(n+1)/5⌋

    Reference: Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, 2018
    """

    raw = robust = True
    share: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.share < 0.5:
            raise ValueError(f"share must be at least 0 and below 0.5, not {self.share}")

    def borne(self, neighbours: int) -> int:
        """How many liars among so many neighbours the average bears: as many as are left out at each end."""
        cut = math.floor(round(self.share * (neighbours + 1), 9))  # 0.29 of 100 is 29, whatever the float says
        return max(cut, int(self.share > 0 and neighbours >= 3))

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        ordered = inbox.rows("w", own=True).sort(dim=-2).values
        k = ordered.shape[-2]
        cut = self.borne(k - 1)
        return ordered[..., cut : k - cut, :].mean(dim=-2), state

"""A robust average: the median of each coordinate."""

from dataclasses import dataclass

from torch import Tensor

from coterie.contract import Inbox, Me, Rule, State


@dataclass(frozen=True)
class Median(Rule):
    """The median of each coordinate over one's own model and the neighbours' (the mean of the middle two if even).

        w_in ← median_{j∈N_i∪{i}} w_jn

    Of n neighbours heard it bears ⌊n/2⌋ liars, whatever they say: every coordinate stays between honest ones. That is 1
    of 2 or 3 neighbours, 2 of 4 or 5, and none of 1.

    Reference: Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, 2018
    """

    raw = robust = True

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        ordered = inbox.rows("w", own=True).sort(dim=-2).values
        k = ordered.shape[-2]
        return (ordered[..., (k - 1) // 2, :] + ordered[..., k // 2, :]) / 2, state

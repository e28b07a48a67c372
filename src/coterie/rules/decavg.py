"""Weighted averaging over the neighbourhood."""

from dataclasses import dataclass

from coterie.contract import Rule


@dataclass(frozen=True)
class DecAvg(Rule):
    """The average of one's own model and the neighbours', weighted by data and links.

        w_i ← Σ_{j∈N_i∪{i}} ω_ij |D_j| w_j / Σ_{j∈N_i∪{i}} ω_ij |D_j|

    From one common start this is DecAvg; when every node draws its own start it is what the papers call DecHetero.

    Reference: Valerio et al., Coordination-free Decentralised Federated Learning on Complex Networks, 2023, Eqs. 4, 6
    """

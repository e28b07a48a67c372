"""One start for all that nobody hands out."""

from dataclasses import replace

from torch import nn

from coterie.initialisers import Initialiser, Origin
from coterie.initialisers.he import he


def agreed(module: nn.Module, origin: Origin, *, base: Initialiser = he, gossip_rounds: int | None = None) -> None:
    """Every node makes the same draw from the base initialiser, by the smallest of the numbers that nodes have drawn.

        x_i ~ U{0, …, 2²⁴ − 1},   x_i ← min_{j ∈ N_i ∪ {i}} x_j before the first round;   W ~ base, seeded by x_i

    A number is four bytes, repeating it does no harm, and whoever has heard of everyone has the network's: after as
    many rounds as the network's diameter. They ask around for so many `gossip_rounds`, or until nobody learns anything
    new (a peer: for the diameter and 3 more, or 10 if it does not know the network). Weights are as the base draws them
    and averaging takes nothing from them, so nothing need be known of the network, merged first or clamped. Who joins
    later, and who hears nobody, begins with its own number.

    Reference: ours; a common start is that of McMahan et al., Communication-Efficient Learning of Deep Networks from
    Decentralized Data, 2017
    """
    base(module, replace(origin, seed=origin.number, node=-1) if origin.number is not None else origin)


vars(agreed)["asks"] = "number"
"""What nodes find out by gossip before the first round."""

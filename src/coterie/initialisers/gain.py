"""An uncoordinated start that survives averaging."""

from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import nn

from coterie.initialisers import Initialiser, Origin, weights
from coterie.initialisers.he import he


def gain(
    module: nn.Module,
    origin: Origin,
    *,
    base: Initialiser = he,
    factor: float = 1.0,
    estimate: Literal["exact", "gossip", "size", "degrees"] = "exact",
    assumed_nodes: Annotated[int, Ge(1)] | None = None,
    exponent: float | None = None,
    degree_samples: Annotated[int, Ge(1)] = 100,
    gossip_rounds: int | None = None,
    gossip_samples: int = 4000,
) -> None:
    """Every node's own draw from the base initialiser, its weights multiplied by what averaging will take away.

        W ← g·W,   g = factor / ‖v_steady‖₂,   v_steady the stationary vector of the network's averaging

    Biases are not scaled. What a node knows of g is `exact`, or an estimate: by `gossip`, for which it asks its
    neighbours before the first round, for so many `gossip_rounds` or until nobody learns anything new (a peer: for the
    network's diameter and 3 more, or 10 if it does not know the network), and of which no more is believed than the
    square root of the number of nodes, `assumed_nodes` where the network is not known; by `size`, n^exponent, the
    exponent that theory gives the network's family unless it is said; by the `degrees` that a random walk from it met.
    `assumed_nodes` and `exponent` may be wrong on purpose. Who joins later starts from the base. Needs models to be
    merged once before the first training, and the loss to be clamped.

    Reference: Badie-Modiri et al., Initialisation and Network Effects in Decentralised Federated Learning, Eqs. 3–5
    """
    base(module, origin)
    with torch.no_grad():
        for w in weights(module):
            w.mul_(origin.gain * factor)


vars(gain)["needs"] = {"merge_first": True, "clamp": 10.0}

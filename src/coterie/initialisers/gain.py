"""An uncoordinated start that survives averaging."""

from typing import Literal

import torch
from torch import nn

from coterie.initialisers import Origin, weights
from coterie.parts import find


def gain(
    module: nn.Module,
    origin: Origin,
    *,
    base: str = "he",
    factor: float = 1.0,
    estimate: Literal["exact", "gossip"] = "exact",
    gossip_rounds: int = 10,
    gossip_samples: int = 4000,
) -> None:
    """Every node's own draw from the base initialiser, its weights multiplied by what averaging will take away.

        W ← g·W,   g = factor / ‖v_steady‖₂,   v_steady the stationary vector of the network's averaging

    Biases are not scaled. With `estimate = "gossip"` each node uses an estimate of its own, for which it asks its
    neighbours during `gossip_rounds` before the first round. Needs models to be merged once before the first training,
    and the loss to be clamped.

    Reference: Badie-Modiri et al., Initialisation and Network Effects in Decentralised Federated Learning, Eqs. 3–5
    """
    find("initialisers", base).make()(module, origin)
    with torch.no_grad():
        for w in weights(module):
            w.mul_(origin.gain * factor)


gain.needs = {"start": "merge", "clamp": 10.0}  # type: ignore[attr-defined]

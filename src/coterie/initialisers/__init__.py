"""Initialisers: where parameters start. One file each; found by looking.

An initialiser fills one node's module in place, from the node's own generator. It may carry `needs`: settings of the
experiment without which it does not work, taken unless the user says otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn

from coterie.parts import Held


@dataclass(frozen=True)
class Origin:
    """What a node may know before the first round."""

    seed: int
    node: int
    gain: float
    """1/‖v_steady‖₂ of the network with its data sizes: how much averaging shrinks uncoordinated weights."""


Initialiser = Annotated[Callable[[nn.Module, Origin], None], Held("initialisers")]
"""An initialiser with its settings bound."""


def weights(module: nn.Module) -> list[Tensor]:
    """The tensors that multiply activations: two dimensions or more."""
    return [p for p in module.parameters() if p.ndim >= 2]


def zero_biases(module: nn.Module) -> None:
    """Set the biases of linear and convolutional layers to zero; normalisation layers keep theirs."""
    for layer in module.modules():
        bias = getattr(layer, "bias", None)
        if isinstance(bias, nn.Parameter) and getattr(layer, "weight", bias).ndim >= 2:
            nn.init.zeros_(bias)

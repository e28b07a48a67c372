"""Initialisers: where parameters start. One file each; found by looking.

An initialiser fills one node's module in place, from the node's own generator. It may carry `needs`: settings of the
experiment without which it does not work, taken unless the user says otherwise; and `asks`, "number", if nodes are to
agree on a number before the first round, each by talking to its neighbours.

What a model has frozen (`requires_grad` off) stays as the model part made it. A part of it that begins with weights of
its own, such as trained ones, says so by an attribute `given = True`, and stays as it is as well.
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
    number: int | None = None
    """What the nodes have agreed on, if they were to."""


Initialiser = Annotated[Callable[[nn.Module, Origin], None], Held("initialisers")]
"""An initialiser with its settings bound."""


def frozen(module: nn.Module) -> list[nn.Module]:
    """The outermost parts that have parameters and train none of them."""
    own = list(module.parameters())
    if own and not any(p.requires_grad for p in own):
        return [module]
    return [part for child in module.children() for part in frozen(child)]


def given(module: nn.Module) -> list[nn.Module]:
    """The parts that begin with weights of their own."""
    return [part for part in module.modules() if getattr(part, "given", False)]


def drawn(module: nn.Module) -> list[nn.Module]:
    """The layers that an initialiser fills: all but those that are frozen or given."""
    kept = {id(layer) for part in (*frozen(module), *given(module)) for layer in part.modules()}
    return [layer for layer in module.modules() if id(layer) not in kept]


def weights(module: nn.Module) -> list[Tensor]:
    """The tensors that multiply activations: two dimensions or more."""
    own = [p for layer in drawn(module) for p in layer.parameters(recurse=False) if p.ndim >= 2 and p.requires_grad]
    return list({id(p): p for p in own}.values())


def zero_biases(module: nn.Module) -> None:
    """Set the biases of linear and convolutional layers to zero; normalisation layers keep theirs."""
    for layer in drawn(module):
        bias = getattr(layer, "bias", None)
        if isinstance(bias, nn.Parameter) and bias.requires_grad and getattr(layer, "weight", bias).ndim >= 2:
            nn.init.zeros_(bias)

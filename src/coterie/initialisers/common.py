"""One start for all."""

from dataclasses import replace

from torch import nn

from coterie.initialisers import Origin
from coterie.parts import find


def common(module: nn.Module, origin: Origin, *, base: str = "default") -> None:
    """A coordinated start: every node makes the same draw from the base initialiser.

    Reference: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017
    """
    find("initialisers", base).make()(module, replace(origin, node=-1))

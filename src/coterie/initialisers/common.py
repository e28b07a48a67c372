"""One start for all."""

from dataclasses import replace

from torch import nn

from coterie.initialisers import Initialiser, Origin
from coterie.initialisers.default import default


def common(module: nn.Module, origin: Origin, *, base: Initialiser = default) -> None:
    """A coordinated start: every node makes the same draw from the base initialiser.

    Reference: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017
    """
    base(module, replace(origin, node=-1))

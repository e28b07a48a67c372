"""Any family, drawn again and again."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from coterie.errors import ConfigError
from coterie.network.graph import Graph
from coterie.topologies import ChangingTopology, Topology, topology
from coterie.topologies.er import ER


@dataclass(frozen=True)
class Resampled(ChangingTopology):
    """Resampled: the network of another family, `base`, drawn anew every so many rounds (`every`).

    Each network may fall apart; with `connect` it is drawn until it holds together.
    """

    base: Topology = ER()
    every: Annotated[int, Ge(1)] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", topology(self.base))
        if self.base.changes:
            expected = "a network that stays"
            raise ConfigError("topology.base changes by itself", expected=expected, got=type(self.base).__name__)

    @property
    def gain_exponent(self) -> float | None:
        """That of the family."""
        return self.base.gain_exponent

    def since(self, round: int) -> int:
        return round - (round - 1) % self.every

    def draw_round(self, nodes: int, rng: np.random.Generator, round: int) -> Graph:
        return self.base.draw(nodes, rng)

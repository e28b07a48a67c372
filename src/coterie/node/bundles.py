"""Messages of many rows: what nodes of one architecture say at the same time, as the simulator has it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie.job import Indices

NUMBER = 8
"""Bytes that a whole number counts for in a message."""


NONE = -1
"""The architecture of messages that are of none: whole numbers."""


@dataclass
class Bundle:
    """Messages sent together by nodes of one architecture, a row of each field for every message."""

    group: int
    fields: dict[str, Any]
    """Each field as a tensor [messages, F], or the name of a shared one: `params`, `buffers`, `state:…`."""
    sizes: np.ndarray
    """The senders' data sizes, [messages, 1]: an array, since a tensor costs far more to hand to another process."""
    round: int
    refused: Indices
    """Rows with numbers that are not finite: nobody accepts them."""
    numbers: list[tuple[int, ...]] = field(default_factory=list)
    """The whole numbers of each message, where they are what is said."""

    @property
    def aliases(self) -> bool:
        """Whether the fields are the nodes' live tensors, not copies."""
        return any(isinstance(f, str) for f in self.fields.values())

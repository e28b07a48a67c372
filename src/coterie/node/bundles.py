"""Messages of many rows: what nodes of one architecture say at the same time, as the simulator has it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

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


class Scattered:
    """A field whose rows lie in several tensors, one after the other: put together block by block, as it is read."""

    def __init__(self, pieces: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.pieces = list(pieces)
        """Tensors, and which of their rows."""
        self.shape = sum(len(at) for _, at in self.pieces), self.pieces[0][0].shape[1]

    def __getitem__(self, block: tuple[slice, slice]) -> Tensor:
        """Some columns of all rows."""
        rows, columns = block
        assert rows == slice(None)
        start, stop, _ = columns.indices(self.shape[1])
        found = self.pieces[0][0].new_empty(self.shape[0], stop - start)
        first = 0
        for tensor, at in self.pieces:
            torch.index_select(tensor[:, start:stop], 0, at, out=found[first : first + len(at)])
            first += len(at)
        return found

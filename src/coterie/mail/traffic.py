"""Messages and bytes on each link, added up in arrays between two moments at which they are told."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.network.graph import Graph

Indices = NDArray[np.int64]
PENDING, PARCELS = 1_000_000, 10_000
"""How many messages, in how many arrays, wait at most until they are added up."""
LISTED = 20_000
"""How many unequal links are listed; of more only sums are told."""


class Traffic:
    """What went along each link of a network of so many nodes since it was last told."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._links = self._messages = self._bytes = np.empty(0, np.int64)
        self._pending: list[tuple[Indices, Indices]] = []
        self._waiting = 0

    def add(self, sources: Indices, targets: Indices, sizes: Indices) -> None:
        """Count messages of these sizes in bytes."""
        self._pending.append((targets * self.nodes + sources, sizes))
        self._waiting += len(sources)
        if self._waiting > PENDING or len(self._pending) > PARCELS:
            self._sum()

    def _sum(self) -> None:
        new, sizes = (np.concatenate(column) for column in zip(*self._pending, strict=True))
        codes, where = np.unique(np.concatenate([self._links, new]), return_inverse=True)
        messages = np.concatenate([self._messages, np.ones(len(new), np.int64)])
        sizes = np.concatenate([self._bytes, sizes])
        self._links = codes
        self._messages = np.bincount(where, messages, len(codes)).astype(np.int64)
        self._bytes = np.bincount(where, sizes, len(codes)).astype(np.int64)
        self._pending, self._waiting = [], 0

    def take(self, graph: Graph | None) -> dict[str, Any]:
        """What there is to tell, after which counting begins anew: numbers for each link, or one for all alike.

        Of a network that changes (None) the links are always listed.
        """
        if self._pending:
            self._sum()
        links, messages, sizes = self._links, self._messages, self._bytes
        self._links = self._messages = self._bytes = np.empty(0, np.int64)
        told: dict[str, Any] = {"links": len(links), "messages": _same(messages), "bytes": _same(sizes)}
        alike = not isinstance(told["messages"], list) and not isinstance(told["bytes"], list)
        if alike and (
            not len(links) or (graph is not None and len(links) == len(graph.sources))
        ):  # nothing is sent but along arcs of the graph
            return told
        if len(links) > LISTED:
            return {"links": len(links), "all_messages": int(messages.sum()), "all_bytes": int(sizes.sum())}
        return told | {"sources": (links % self.nodes).tolist(), "targets": (links // self.nodes).tolist()}

    def state(self) -> dict[str, Tensor]:
        """What has not been told yet, for a checkpoint."""
        if self._pending:
            self._sum()
        kept = {"links": self._links, "messages": self._messages, "bytes": self._bytes}
        return {name: torch.from_numpy(values) for name, values in kept.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on with what a checkpoint has."""
        self._links, self._messages, self._bytes = (state[name].numpy() for name in ("links", "messages", "bytes"))


def _same(values: Indices) -> int | list[int]:
    """One number if all are that number, all of them else; 0 if there is none."""
    if not len(values) or (values == values[0]).all():
        return int(values[0]) if len(values) else 0
    return [int(value) for value in values]

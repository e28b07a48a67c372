"""The simulated post: who sent what to whom in this round, kept as arrays so that a thousand nodes cost no loop."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from coterie.engines._job import Indices
from coterie.graph import Graph
from coterie.protocols import Heard


@dataclass
class Batch:
    """Messages sent together by nodes of one architecture: fields `[k, F]`, or the names of shared tensors."""

    group: int
    fields: dict[str, Any]
    sizes: Tensor
    round: int
    refused: Indices
    """Rows with numbers that are not finite: nobody accepts them."""

    @property
    def aliases(self) -> bool:
        """Whether the fields are the nodes' live tensors, not copies."""
        return any(isinstance(f, str) for f in self.fields.values())


@dataclass(frozen=True)
class Packet:
    """One message in a node's hands."""

    batch: int
    row: int
    sender: int


class LocalHeard(Heard):
    """What a node heard, as indices into the post."""

    def __init__(self, post: "Post", mails: Indices) -> None:
        self.post, self.mails = post, mails

    def __len__(self) -> int:
        return len(self.mails)

    def __iter__(self) -> Iterator[int]:
        return iter(self.post.source[self.mails].tolist())

    def __getitem__(self, sender: int) -> Packet:
        for m in self.mails:
            if self.post.source[m] == sender:
                return Packet(int(self.post.batch[m]), int(self.post.row[m]), sender)
        raise KeyError(sender)


class Post:
    """All mail of one round."""

    def __init__(self, graph: Graph, active: np.ndarray | None) -> None:
        self.graph, self.active = graph, active
        self.codes = graph.targets * graph.nodes + graph.sources  # sorted: the graph's arcs are
        self.batches: list[Batch] = []
        empty = np.empty(0, np.int64)
        self.source, self.target, self.batch, self.row, self.tag = empty, empty, empty, empty, empty
        self.weight, self.open = np.empty(0), np.empty(0, bool)
        self._tags: dict[str, int] = {}

    def put(self, source: Indices, target: Indices, tag: str, batch: Indices, row: Indices) -> tuple[Indices, Indices]:
        """Post mail along arcs; gives source and target of what goes through (its link being up)."""
        code = target * self.graph.nodes + source
        at = np.searchsorted(self.codes, code)
        linked = at < len(self.codes)
        linked[linked] = self.codes[at[linked]] == code[linked]
        if not linked.all():
            a, b = int(source[~linked][0]), int(target[~linked][0])
            raise RuntimeError(f"the protocol sends from node {a} to node {b}, which are not linked")
        up = np.ones(len(code), bool) if self.active is None else self.active[at]
        source, target, batch, row, at = source[up], target[up], batch[up], row[up], at[up]
        for b in np.unique(batch):
            if len(self.batches[b].refused):
                good = ~((batch == b) & np.isin(row, self.batches[b].refused))
                source, target, batch, row, at = source[good], target[good], batch[good], row[good], at[good]
        self.source = np.concatenate([self.source, source])
        self.target = np.concatenate([self.target, target])
        self.batch = np.concatenate([self.batch, batch])
        self.row = np.concatenate([self.row, row])
        self.weight = np.concatenate([self.weight, self.graph.weights[at]])
        self.tag = np.concatenate([self.tag, np.full(len(source), self._tags.setdefault(tag, len(self._tags)))])
        self.open = np.concatenate([self.open, np.ones(len(source), bool)])
        return source, target

    def collect(self, receivers: list[int], wanted: list[Indices], tag: str, deadline: bool) -> list[LocalHeard | None]:
        """For each receiver what has come of what it wants; None if it should wait for more (there is no deadline yet)."""
        mails = np.flatnonzero(self.tag == self._tags.get(tag, -1))
        code = self.target[mails] * self.graph.nodes + self.source[mails]
        order = np.argsort(code, kind="stable")
        mails, code = mails[order], code[order]
        lengths = np.array([len(w) for w in wanted])
        asked = np.repeat(np.array(receivers), lengths) * self.graph.nodes + np.concatenate(wanted)
        at = np.minimum(np.searchsorted(code, asked), max(len(code) - 1, 0))
        here = code[at] == asked if len(code) else np.zeros(len(asked), bool)
        ends = np.cumsum(lengths)
        result: list[LocalHeard | None] = []
        for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True):
            came = here[start:end]
            result.append(LocalHeard(self, mails[at[start:end][came]]) if deadline or came.all() else None)
        return result

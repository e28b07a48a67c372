"""Messages that lie in the memories of several workers: how they are named, asked for, and sent from one to another."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from coterie.engines._worker import PackedMessage
from coterie.job import Indices
from coterie.node.bundles import Bundle


class FieldKind(NamedTuple):
    """What one field of a bundle is, without its numbers."""

    width: int
    dtype: torch.dtype
    live: bool = False
    """Whether it shows the rows as they are now, at some worker."""


class Run(NamedTuple):
    """Some messages of one bundle, by their numbers in it."""

    key: int
    ids: Indices


class Move(NamedTuple):
    """Messages of one bundle that go from one worker to another; both are told of it."""

    run: Run
    group: int
    peer: int
    kinds: dict[str, FieldKind]

    @property
    def bytes(self) -> int:
        """What they take on the wire."""
        return len(self.run.ids) * sum(k.width * k.dtype.itemsize for k in self.kinds.values())


@dataclass
class SpreadBundle(Bundle):
    """A bundle as the scheduler has it while its messages lie at workers: who holds each, under which name."""

    keys: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    ids: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    owners: Indices = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def aliases(self) -> bool:
        return any(kind.live for kind in self.fields.values())

    def runs(self, messages: Indices) -> list[Run]:
        """These messages, in their order, as runs of one bundle each."""
        keys, ids = self.keys[messages], self.ids[messages]
        cuts = np.flatnonzero(np.diff(keys)) + 1
        return [Run(int(k[0]), i) for k, i in zip(np.split(keys, cuts), np.split(ids, cuts), strict=True) if len(k)]


class Reference(NamedTuple):
    """One message, for a worker that will have it by the time it reads this."""

    key: int
    id: int


@dataclass(frozen=True)
class Addressed:
    """One message that is to be handed to a worker: of which bundle, and which of it."""

    bundle: SpreadBundle
    message: int


@dataclass(frozen=True)
class Made:
    """What came of a worker's operation and stays there: a bundle's name, its fields, and which messages are void."""

    key: int
    worker: int
    kinds: dict[str, FieldKind]
    refused: Indices


@dataclass
class Request:
    """What one worker is asked for: an operation, and the messages that it sends and gets for it."""

    name: str
    args: tuple[Any, ...]
    sends: list[Move] = field(default_factory=list)
    gets: list[Move] = field(default_factory=list)
    folds: list["Fold"] = field(default_factory=list)
    """What it adds up first, to send sums in place of rows."""
    early: list[Move] = field(default_factory=list)
    """Models of its rows that it sends as soon as these are trained: the numbers are those of rows."""


class Fold(NamedTuple):
    """Averages of messages that a worker holds, to be a bundle of their own: weights [new messages, old messages]."""

    key: int
    of: Run
    weights: Any


def far(bundle: SpreadBundle, messages: Indices, worker: int) -> Indices:
    """Those of these messages that lie elsewhere."""
    found: Indices = messages[bundle.owners[messages] != worker]
    return found


class Delivery:
    """The requests to all workers for one operation, and which messages each of them has already."""

    def __init__(self, count: int, present: dict[tuple[int, int], Indices]) -> None:
        self.requests: list[Request | None] = [None] * count
        self.present = present

    def ask(self, worker: int, name: str, *args: Any) -> Request:
        """Ask a worker for an operation, once."""
        request = self.requests[worker] or Request(name, args)
        request.name, request.args = name, args
        self.requests[worker] = request
        return request

    def need(self, worker: int, bundle: SpreadBundle, messages: Indices) -> None:
        """Have these messages of a bundle at a worker: what it has not yet is sent by those who have it."""
        missing = far(bundle, np.unique(messages), worker)
        for key in np.unique(bundle.keys[missing]).tolist():
            some = missing[bundle.keys[missing] == key]
            known = self.present.get((key, worker), np.empty(0, np.int64))
            some = some[~np.isin(bundle.ids[some], known)]
            self.present[key, worker] = np.union1d(known, bundle.ids[some])
            for owner in np.unique(bundle.owners[some]).tolist():
                run = Run(key, np.sort(bundle.ids[some[bundle.owners[some] == owner]]))
                self._move(owner, worker, run, bundle)

    def _move(self, source: int, target: int, run: Run, bundle: SpreadBundle) -> None:
        for worker, peer, side in ((source, target, "sends"), (target, source, "gets")):
            request = self.requests[worker] or Request("nothing", ())
            self.requests[worker] = request
            getattr(request, side).append(Move(run, bundle.group, peer, bundle.fields))

    def fold(self, worker: int, fold: Fold) -> None:
        """Have a worker take averages of messages that it holds."""
        request = self.requests[worker] or Request("nothing", ())
        self.requests[worker] = request
        request.folds.append(fold)

    def send_early(self, source: int, target: int, bundle: SpreadBundle, messages: Indices, rows: Indices) -> None:
        """Have messages sent that are the models of these rows, as soon as these are trained."""
        key = int(bundle.keys[0])
        known = self.present.get((key, target), np.empty(0, np.int64))
        self.present[key, target] = np.union1d(known, messages)
        for worker, peer, side, ids in ((source, target, "early", rows[messages]), (target, source, "gets", messages)):
            request = self.requests[worker] or Request("nothing", ())
            self.requests[worker] = request
            getattr(request, side).append(Move(Run(key, ids), bundle.group, peer, bundle.fields))

    @property
    def bytes(self) -> int:
        """What is sent for all of it."""
        return sum(move.bytes for _, _, move in self.moves())

    def moves(self) -> Iterator[tuple[int, int, Move]]:
        """Who sends what to whom."""
        for worker, request in enumerate(self.requests):
            for move in [*request.sends, *request.early] if request else ():
                yield worker, move.peer, move

    def reference(self, worker: int, message: PackedMessage) -> Any:
        """A message by name for a worker, who will have it."""
        named: Any
        named, size, number = message
        self.need(worker, named.bundle, np.array([named.message]))
        at = Reference(int(named.bundle.keys[named.message]), int(named.bundle.ids[named.message]))
        return at, size, number


def columns_used(arcs: Any) -> Indices:
    """The columns of a sparse matrix in which something stands."""
    found: Indices = np.unique(arcs.indices).astype(np.int64)
    return found


def picked(runs: list[Run], places: Indices) -> list[Run]:
    """Those of the messages of some runs that stand at these places, which ascend."""
    found, start = [], 0
    for run in runs:
        here = places[(places >= start) & (places < start + len(run.ids))] - start
        start += len(run.ids)
        if len(here):
            found.append(Run(run.key, run.ids[here]))
    return found

"""What one worker of a cluster holds of bundles: its own messages, and those that came from others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from coterie.engines._matrices import Matrices
from coterie.engines._moves import FieldKind, Fold, Made, Move, Run
from coterie.engines._wire import Coming, Wire
from coterie.job import Indices
from coterie.node.bundles import Bundle, Scattered
from coterie.node.distances import weighted
from coterie.node.merging import HeardBundle

NOBODY: Indices = np.empty(0, np.int64)


@dataclass
class Block:
    """Messages that came from others together, a row of each field for every one of these numbers."""

    ids: Indices
    fields: dict[str, Tensor]
    coming: list[Coming] = field(default_factory=list)
    """What is still under way."""


@dataclass
class Holding:
    """A bundle's messages as far as they are here."""

    bundle: Bundle
    ids: Indices
    """Which of them are one's own, ascending; row r of a field is message ids[r]."""
    blocks: list[Block] = field(default_factory=list)


class Piece(NamedTuple):
    """Where some messages lie: rows of one's own tensors, or of a block."""

    holding: Holding
    block: Block | None
    at: Indices


class Rooms:
    """Memory that is kept from round to round: the first touch of new memory costs more than what is done in it."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.free: list[Tensor] = []
        self.taken: list[Tensor] = []

    def take(self, rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """Room for so many rows, until the round is over."""
        fits = [t for t in self.free if t.dtype == dtype and t.numel() >= rows * width]
        found = min(fits, key=Tensor.numel, default=None)
        if found is None:
            found = self.wire.room(rows, width, dtype).view(-1)
        else:
            self.free = [t for t in self.free if t is not found]
        self.taken.append(found)
        return found[: rows * width].view(rows, width)

    def forget(self) -> None:
        """A round is over; what was not needed in it will not be in the next."""
        self.free, self.taken = self.taken, []


class Holdings:
    """All bundles of a round, by name."""

    def __init__(self, models: Matrices, wire: Wire) -> None:
        self.models, self.wire, self.rooms = models, wire, Rooms(wire)
        self.held: dict[int, Holding] = {}
        self._fresh = 0

    def forget(self) -> None:
        """A round is over."""
        self.held = {}
        self.rooms.forget()

    def keep(self, bundle: Bundle, ids: Indices, key: int | None = None) -> Made:
        """Hold one's own messages under a name, a new one if none is given."""
        if key is None:
            self._fresh += 1
            key = (self.wire.worker + 1 << 40) + self._fresh
        mine = self.held.setdefault(key, Holding(bundle, ids))  # others' may be on their way already
        mine.bundle, mine.ids = bundle, ids
        return Made(key, self.wire.worker, self.kinds(bundle), ids[bundle.refused])

    def kinds(self, bundle: Bundle) -> dict[str, FieldKind]:
        """What the fields of a bundle are."""
        found = {name: (self.models.field(bundle, name), isinstance(f, str)) for name, f in bundle.fields.items()}
        return {name: FieldKind(tensor.shape[1], tensor.dtype, live) for name, (tensor, live) in found.items()}

    def protect(self, keys: Sequence[int]) -> None:
        """Before rows change: make these bundles say from now on what they say now."""
        self.models.protect([self.held[key].bundle for key in keys if key in self.held])

    def fold(self, folds: Sequence[Fold]) -> None:
        """Average messages, for others who need no more of them than that."""
        for key, of, weights in folds:
            mine = self.held[of.key]
            at = torch.as_tensor(np.searchsorted(mine.ids, of.ids), device=self.models.device)
            whole = {name: self.models.field(mine.bundle, name) for name in mine.bundle.fields}
            fields = {
                name: weighted(weights, Scattered([(rows, at)]), self._room(weights.shape[0], rows))
                for name, rows in whole.items()
            }
            bundle = Bundle(mine.bundle.group, fields, np.ones((len(weights.indptr) - 1, 1)), mine.bundle.round, NOBODY)
            self.held[key] = Holding(bundle, np.arange(weights.shape[0]))

    def move(self, sends: Sequence[Move], gets: Sequence[Move]) -> None:
        """Begin to send and to receive messages."""
        rooms = self._rooms(gets)
        for run, _, peer, kinds in gets:
            block, start = rooms[run.key]
            for name in sorted(kinds):
                block.coming.append(self.wire.receive(peer, block.fields[name][start : start + len(run.ids)]))
            rooms[run.key] = block, start + len(run.ids)
        for run, _, peer, kinds in sends:
            for name in sorted(kinds):
                self.wire.send(peer, self._own(run, name))

    def _rooms(self, gets: Sequence[Move]) -> dict[int, tuple[Block, int]]:
        """One block for all that comes of a bundle, and where in it the next messages belong."""
        rooms: dict[int, tuple[Block, int]] = {}
        for key in {get.run.key for get in gets}:
            some = [get for get in gets if get.run.key == key]
            mine = self.held.setdefault(key, Holding(Bundle(some[0].group, {}, np.empty((0, 1)), 0, NOBODY), NOBODY))
            ids = np.concatenate([get.run.ids for get in some])
            kinds = some[0].kinds.items()
            block = Block(ids, {name: self.rooms.take(len(ids), kind.width, kind.dtype) for name, kind in kinds})
            mine.blocks.append(block)
            rooms[key] = block, 0
        return rooms

    def _own(self, run: Run, name: str) -> Tensor:
        mine = self.held[run.key]
        at = np.searchsorted(mine.ids, run.ids)
        assert np.array_equal(mine.ids[at], run.ids), "messages are asked for that are not here"
        whole = self.models.field(mine.bundle, name)
        if (
            name in mine.bundle.fields
            and isinstance(mine.bundle.fields[name], Tensor)
            and np.array_equal(at, np.arange(len(whole)))
        ):
            return whole
        return whole[torch.as_tensor(at)]

    def arrived(self) -> None:
        """Wait for all that is under way to this worker."""
        for block in [block for mine in self.held.values() for block in mine.blocks if block.coming]:
            for coming in block.coming:
                coming.wait()
            block.coming = []
            block.fields = {name: rows.to(self.models.device) for name, rows in block.fields.items()}

    def inside(self, run: Run) -> np.ndarray:
        """Which of these messages are one's own."""
        mine = self.held.get(run.key)
        return np.zeros(len(run.ids), bool) if mine is None else np.isin(run.ids, mine.ids)

    def names(self, runs: Sequence[Run]) -> list[str]:
        """The fields of some messages."""
        mine = self.held[runs[0].key]
        return sorted(mine.bundle.fields or mine.blocks[0].fields)

    def apart(self, runs: Sequence[Run], rows: Indices) -> dict[int, Block]:
        """Copies of those of one's own messages that show these rows, which are about to change; by bundle."""
        found = {}
        for key in {run.key for run in runs}:
            mine = self.held.get(key)
            if mine is None or not mine.bundle.aliases:
                continue
            wanted = np.concatenate([run.ids for run in runs if run.key == key])
            at = np.flatnonzero(np.isin(mine.ids, wanted) & np.isin(np.arange(len(mine.ids)), rows))
            if len(at):
                which = torch.as_tensor(at, device=self.models.device)
                whole = {name: self.models.field(mine.bundle, name) for name in mine.bundle.fields}
                fields = {name: self._copied(rows, which) for name, rows in whole.items()}
                found[key] = Block(mine.ids[at], fields)
        return found

    def _room(self, count: int, like: Tensor) -> Tensor:
        on_cpu = like.device.type == "cpu"
        return self.rooms.take(count, like.shape[1], like.dtype) if on_cpu else like.new_empty(count, like.shape[1])

    def _copied(self, rows: Tensor, at: Tensor) -> Tensor:
        return torch.index_select(rows, 0, at, out=self._room(len(at), rows))

    def pieces(self, runs: Sequence[Run], apart: Mapping[int, Block] | None = None) -> tuple[list[Piece], Indices]:
        """Where these messages lie, tensor by tensor, and the place of each among the runs'."""
        found, places, start = list[Piece](), list[Indices](), 0
        for run in runs:
            mine, left = self.held[run.key], np.ones(len(run.ids), bool)
            copies = [apart[run.key]] if apart and run.key in apart else []
            own: list[tuple[Block | None, Indices]] = [(None, mine.ids)]
            for block, ids in [*((c, c.ids) for c in copies), *own, *((b, b.ids) for b in mine.blocks)]:
                here = np.flatnonzero(left & np.isin(run.ids, ids))
                if len(here):
                    order = np.argsort(ids, kind="stable")
                    found.append(Piece(mine, block, order[np.searchsorted(ids, run.ids[here], sorter=order)]))
                    places.append(start + here)
                    left[here] = False
            assert not left.any(), "messages are asked for that have not come"
            start += len(run.ids)
        return found, np.concatenate([NOBODY, *places])

    def tensor(self, piece: Piece, name: str) -> Tensor:
        """The tensor in which a field of some messages lies."""
        return self.models.field(piece.holding.bundle, name) if piece.block is None else piece.block.fields[name]

    def table(self, runs: Sequence[Run]) -> dict[str, Tensor]:
        """Some messages as a row of each field, in their order, copied."""
        pieces, places = self.pieces(runs)
        order = torch.as_tensor(np.argsort(places))
        found = {}
        for name in self.names(runs):
            rows = [self.tensor(piece, name)[torch.as_tensor(piece.at)] for piece in pieces]
            found[name] = rows[0] if len(rows) == 1 else torch.cat(rows)
            if not np.array_equal(places, np.arange(len(places))):
                found[name] = found[name][order]
        return found

    def bundle(self, group: int, runs: Sequence[Run], sizes: np.ndarray, round: int) -> Bundle:
        """Some messages as a bundle of their own, copied."""
        return Bundle(group, self.table(runs), sizes, round, NOBODY)

    def heard(
        self,
        group: int,
        runs: Sequence[Run],
        arcs: sp.csr_array,
        sizes: np.ndarray,
        round: int,
        apart: dict[int, Block],
    ) -> HeardBundle:
        """What rows heard of these messages, without a copy of them wherever columns are merged by themselves."""
        pieces, places = self.pieces(runs, apart)
        number = np.empty(len(places), np.int64)
        if len(pieces) == 1:  # all in one tensor: it is read where it is
            (piece,) = pieces
            number[places] = piece.at
            count = len(self.tensor(piece, self.names(runs)[0]))
            every = np.ones((count, 1), sizes.dtype)
            every[number] = sizes
            fields: dict[str, Any] = {name: self.tensor(piece, name) for name in self.names(runs)}
        else:
            number[places], count, every = np.arange(len(places)), len(places), sizes[places]
            fields = {name: self._field(group, name, pieces) for name in self.names(runs)}
        indices = number[arcs.indices].astype(arcs.indices.dtype)
        moved = sp.csr_array((arcs.data, indices, arcs.indptr), shape=(arcs.shape[0], count))
        return HeardBundle(moved, Bundle(group, fields, every, round, NOBODY))

    def _field(self, group: int, name: str, pieces: Sequence[Piece]) -> Any:
        found = Scattered(
            [(self.tensor(piece, name), torch.as_tensor(piece.at, device=self.models.device)) for piece in pieces]
        )
        width = self.models.layouts[group].size
        lazy = self.models.job.rule.span == "coordinate" and found.shape[1] == width and name != "buffers"
        return found if lazy else found[:, :]

"""What one worker of a cluster holds of bundles: its own messages, and those that came from others."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from coterie.engines._matrices import Matrices
from coterie.engines._moves import FieldKind, Fold, Made, Move, Run
from coterie.engines._wire import Coming, Wire
from coterie.job import Indices
from coterie.node.bundles import Bundle
from coterie.node.distances import weighted

NOBODY: Indices = np.empty(0, np.int64)


@dataclass
class Holding:
    """A bundle's messages as far as they are here."""

    bundle: Bundle
    ids: Indices
    """Which of them are one's own, ascending; row r of a field is message ids[r]."""
    others: dict[str, list[Tensor]] = field(default_factory=dict)
    far: Indices = field(default_factory=lambda: NOBODY)
    """Which came from others, in the order of these rows."""
    coming: list[tuple[Indices, dict[str, Coming]]] = field(default_factory=list)
    """What is still under way."""


class Holdings:
    """All bundles of a round, by name."""

    def __init__(self, models: Matrices, wire: Wire) -> None:
        self.models, self.wire = models, wire
        self.held: dict[int, Holding] = {}
        self._fresh = 0

    def forget(self) -> None:
        """A round is over."""
        self.held = {}

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
            at = np.searchsorted(mine.ids, of.ids)
            arcs = weights.copy()
            arcs.indices = at[weights.indices].astype(weights.indices.dtype)
            arcs = type(weights)((arcs.data, arcs.indices, arcs.indptr), shape=(weights.shape[0], len(mine.ids)))
            fields = {name: weighted(arcs, self.models.field(mine.bundle, name)) for name in mine.bundle.fields}
            bundle = Bundle(mine.bundle.group, fields, np.ones((len(weights.indptr) - 1, 1)), mine.bundle.round, NOBODY)
            self.held[key] = Holding(bundle, np.arange(weights.shape[0]))

    def move(self, sends: Sequence[Move], gets: Sequence[Move]) -> None:
        """Begin to send and to receive messages."""
        for run, group, peer, kinds in gets:
            mine = self.held.setdefault(run.key, Holding(Bundle(group, {}, np.empty((0, 1)), 0, NOBODY), NOBODY))
            shapes = {name: ((len(run.ids), kind.width), kind.dtype) for name, kind in sorted(kinds.items())}
            mine.coming.append((run.ids, {name: self.wire.receive(peer, *shape) for name, shape in shapes.items()}))
        for run, _, peer, kinds in sends:
            for name in sorted(kinds):
                self.wire.send(peer, self._own(run, name))

    def _own(self, run: Run, name: str) -> Tensor:
        mine = self.held[run.key]
        at = np.searchsorted(mine.ids, run.ids)
        assert np.array_equal(mine.ids[at], run.ids), "messages are asked for that are not here"
        return self.models.field(mine.bundle, name)[torch.as_tensor(at)]

    def arrived(self) -> None:
        """Wait for all that is under way to this worker."""
        for mine in self.held.values():
            for ids, fields in mine.coming:
                mine.far = np.concatenate([mine.far, ids])
                for name, coming in fields.items():
                    mine.others.setdefault(name, []).append(coming.wait()[0].to(self.models.device))
            mine.coming = []

    def inside(self, run: Run) -> np.ndarray:
        """Which of these messages are one's own."""
        mine = self.held.get(run.key)
        return np.zeros(len(run.ids), bool) if mine is None else np.isin(run.ids, mine.ids)

    def names(self, runs: Sequence[Run]) -> list[str]:
        """The fields of some messages."""
        mine = self.held[runs[0].key]
        return sorted(mine.bundle.fields or mine.others)

    def table(self, runs: Sequence[Run]) -> dict[str, Tensor]:
        """Some messages as a row of each field, in their order."""
        found: dict[str, list[Tensor]] = {name: [] for name in self.names(runs)}
        for run in runs:
            for name, rows in found.items():
                rows.append(self._rows(run, name))
        return {name: rows[0] if len(rows) == 1 else torch.cat(rows) for name, rows in found.items()}

    def _rows(self, run: Run, name: str) -> Tensor:
        mine, own = self.held[run.key], self.inside(run)
        parts = []
        if own.any():
            parts.append((own, self._own(Run(run.key, run.ids[own]), name)))
        if not own.all():
            far = mine.others[name][0] if len(mine.others[name]) == 1 else torch.cat(mine.others[name])
            order = np.argsort(mine.far, kind="stable")
            at = order[np.searchsorted(mine.far, run.ids[~own], sorter=order)]
            parts.append((~own, far[torch.as_tensor(at)]))
        if len(parts) == 1:
            return parts[0][1]
        out = parts[0][1].new_empty(len(run.ids), parts[0][1].shape[1])
        for where, rows in parts:
            out[torch.as_tensor(np.flatnonzero(where))] = rows
        return out

    def bundle(self, group: int, runs: Sequence[Run], sizes: np.ndarray, round: int) -> Bundle:
        """Some messages as a bundle of their own, copied."""
        return Bundle(group, self.table(runs), sizes, round, NOBODY)

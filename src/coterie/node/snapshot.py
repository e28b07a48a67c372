"""The state of some nodes between two rounds, as named tensors: one dialect for every engine and every peer."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from coterie.contract import State, finite
from coterie.job import Indices, Ledger

CHANGED = "changed"
"""Beside what models are worth: whether they are still those that were judged."""


@dataclass(frozen=True)
class KeptRows:
    """The rows of some nodes of one architecture."""

    nodes: Indices
    matrix: Tensor
    integers: Tensor
    state: State
    """The rule's memory."""
    optimiser: dict[str, Tensor]


@dataclass(frozen=True)
class Snapshot:
    """All that some nodes must remember from one round to the next, and what they have cost so far."""

    rows: dict[int, KeptRows]
    """By the number of the architecture."""
    counters: dict[int, dict[str, int]] = field(default_factory=dict)
    """The protocol's integers at each node."""
    notes: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    """What lessons and exercises keep at each node."""
    ledger: dict[str, np.ndarray] = field(default_factory=dict)
    """A number for each of the nodes, in ascending order."""

    @property
    def nodes(self) -> Indices:
        """Whose state it is, in ascending order."""
        return np.sort(np.concatenate([rows.nodes for rows in self.rows.values()]))

    @classmethod
    def of(
        cls, rows: dict[int, KeptRows], counters: dict[int, dict[str, int]], notes: dict[int, State], ledger: Ledger
    ) -> "Snapshot":
        """The present state of these rows."""
        nodes, books = cls(rows).nodes, ledger.totals | ledger.latest | {CHANGED: ledger.changed}
        return cls(rows, counters, notes, {name: kept[nodes] for name, kept in books.items()})

    def tensors(self) -> dict[str, Tensor]:
        """The snapshot as named tensors, some of which may be live."""
        found: dict[str, Tensor] = {}
        for g, rows in self.rows.items():
            found |= {
                f"{g}/nodes": torch.from_numpy(rows.nodes),
                f"{g}/matrix": rows.matrix,
                f"{g}/integers": rows.integers,
            }
            found |= {f"{g}/state/{name}": tensor for name, tensor in rows.state.items()}
            found |= {f"{g}/optimiser/{name}": tensor for name, tensor in rows.optimiser.items()}
        for node, kept in self.counters.items():
            found |= {f"counters/{node}/{name}": torch.tensor(value) for name, value in kept.items()}
        for node, noted in self.notes.items():
            found |= {f"notes/{node}/{name}": tensor for name, tensor in noted.items()}
        return found | {f"ledger/{name}": torch.from_numpy(values) for name, values in self.ledger.items()}

    @classmethod
    def read(cls, tensors: dict[str, Tensor]) -> "Snapshot":
        """The snapshot that these named tensors are."""
        rows: dict[int, KeptRows] = {}
        for g in sorted({int(name.partition("/")[0]) for name in tensors if name.endswith("/matrix")}):
            inside = {kind: _under(f"{g}/{kind}/", tensors) for kind in ("state", "optimiser")}
            nodes, matrix, integers = (tensors[f"{g}/{name}"] for name in ("nodes", "matrix", "integers"))
            rows[g] = KeptRows(nodes.numpy(), matrix, integers, **inside)
        counters = {node: {k: int(v) for k, v in kept.items()} for node, kept in _by_node("counters/", tensors).items()}
        ledger = {name: values.numpy() for name, values in _under("ledger/", tensors).items()}
        return cls(rows, counters, _by_node("notes/", tensors), ledger)

    def restore(self, ledger: Ledger) -> None:
        """Write what these nodes have cost back into a ledger."""
        for name, values in self.ledger.items():
            book = ledger.totals if name in ledger.totals else ledger.latest | {CHANGED: ledger.changed}
            book[name][self.nodes] = values


def diverged(tensors: dict[str, Tensor]) -> bool:
    """Whether a model of a snapshot is not finite: nobody should go on from it."""
    return not all(finite(tensor) for name, tensor in tensors.items() if name.endswith("/matrix"))


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _by_node(prefix: str, tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    found: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _under(prefix, tensors).items():
        node, _, key = name.partition("/")
        found.setdefault(int(node), {})[key] = tensor
    return found

"""Sessions of simulators: one scheduler that goes from round to round, wherever the rows are."""

import numpy as np
import torch
from torch import Tensor

from coterie.engines._dealing import Dealer
from coterie.engines._matrices import Models
from coterie.engines._scheduler import Scheduler
from coterie.engines._session import StepwiseSession
from coterie.engines._workers import Workers
from coterie.job import Job
from coterie.node.description import Description
from coterie.node.snapshot import KeptRows, Snapshot


class Simulation(StepwiseSession):
    """A session with a scheduler, workers, and models that these two know of."""

    job: Job
    workers: Workers
    models: Models
    _dealer: Dealer
    _scheduler: Scheduler

    @property
    def descriptions(self) -> dict[int, Description]:
        return dict(enumerate(self.models.descriptions))

    def evaluate(self) -> None:
        self._scheduler.evaluate()

    def round(self, number: int, evaluate: bool) -> None:
        faults = self.job.faults
        self.active = faults.active(self.job.graph(number), number) if faults.fails else None
        self._scheduler.round(number, evaluate, self.active)
        self.places = self._scheduler.places

    def snapshot(self) -> dict[str, Tensor]:
        return self._snapshot(self.models.rows()).tensors()

    def _snapshot(self, rows: dict[int, KeptRows]) -> Snapshot:
        notes = {
            node: {name: torch.from_numpy(noted.copy()) for name, noted in kept.items()}
            for found in self.workers.all("kept")
            for node, kept in found.items()
        }
        counters = dict(enumerate(self._scheduler.counters))
        return Snapshot.of(rows, counters, notes, self.ledger)

    def restore(self, state: dict[str, Tensor]) -> None:
        kept = Snapshot.read(state)
        self.models.restore(kept.rows)
        self._restore(kept)

    def _restore(self, kept: Snapshot) -> None:
        """Go back to all of a snapshot but its rows."""
        kept.restore(self.ledger)
        self._scheduler.counters = [kept.counters.get(node, {}) for node in range(self.job.roster.nodes)]
        notes: list[dict[int, dict[str, np.ndarray]]] = [{} for _ in range(self.workers.count)]
        for node, noted in kept.notes.items():
            notes[self._dealer.server_of[node]][node] = {name: tensor.numpy() for name, tensor in noted.items()}
        self.workers.each("keep", [(noted,) for noted in notes])

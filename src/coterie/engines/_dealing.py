"""Who computes what: nodes as rows of an architecture, and rows as the work of one worker or the other."""

from collections.abc import Sequence

import numpy as np

from coterie.engines._groups import Mode
from coterie.job import Indices, Roster


class Dealer:
    """Deals the nodes of a job out to so many workers."""

    def __init__(self, roster: Roster, modes: Sequence[Mode], workers: int) -> None:
        self.roster, self.modes, self.workers = roster, modes, workers
        self.group_of, self.row_of = np.zeros(roster.nodes, np.int64), np.zeros(roster.nodes, np.int64)
        for g, nodes in enumerate(roster.groups):
            self.group_of[nodes], self.row_of[nodes] = g, np.arange(len(nodes))
        order = np.argsort([-roster.steps(i) for i in range(roster.nodes)], kind="stable")
        self.server_of = np.argsort(order, kind="stable") % workers
        """The worker that does a node's exercises and gives its lessons: its notes stay there."""

    def by_group(self, nodes: list[int]) -> list[tuple[int, Indices, Indices]]:
        """(group, positions in `nodes`, rows) of each architecture among these nodes."""
        who = np.array(nodes, np.int64)
        return [
            (int(g), np.flatnonzero(self.group_of[who] == g), self.row_of[who[self.group_of[who] == g]])
            for g in np.unique(self.group_of[who])
        ]

    def to_train(self, g: int, rows: Indices) -> list[Indices]:
        """Rows for each worker: whole chunks, the long ones first, always to the worker with the least to do."""
        steps = np.array([self.roster.steps(int(n)) for n in self.roster.groups[g][rows]])
        rows = rows[np.argsort(-steps, kind="stable")]
        steps = np.sort(steps)[::-1]
        size, load = self._together(g, len(rows)), np.zeros(self.workers)
        dealt: list[list[Indices]] = [[] for _ in range(self.workers)]
        for start in range(0, len(rows), size):
            worker = int(load.argmin())
            load[worker] += steps[start] * len(rows[start : start + size])
            dealt[worker].append(rows[start : start + size])
        return [np.concatenate(d) if d else np.empty(0, np.int64) for d in dealt]

    def to_score(self, g: int, rows: Indices) -> list[Indices]:
        """Rows for each worker, all of which take equally long."""
        size = self._together(g, len(rows))
        chunks = [rows[i : i + size] for i in range(0, len(rows), size)]
        return [np.concatenate([*chunks[w :: self.workers], np.empty(0, np.int64)]) for w in range(self.workers)]

    def served(self, nodes: list[int]) -> list[Indices]:
        """These nodes by the worker that does their exercises."""
        who = np.array(nodes)
        return [who[self.server_of[who] == worker] for worker in range(self.workers)]

    def _together(self, g: int, rows: int) -> int:
        """How many of so many rows go to a worker together."""
        return min(self.modes[g].chunk, -(-rows // self.workers)) if self.modes[g].stack else 1

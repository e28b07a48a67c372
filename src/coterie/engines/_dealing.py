"""Who computes what: nodes as rows of an architecture, and rows as the work of one worker or the other."""

from collections.abc import Callable, Sequence

import numpy as np

from coterie.engines._groups import Mode
from coterie.job import PLAIN, Indices, Roster
from coterie.node.cost import TRAINING
from coterie.node.training import Turns

GroupRows = tuple[int, Indices]
"""An architecture, and some of its rows."""


class Dealer:
    """Deals the nodes of a job out to so many workers; where each node has an owner, always to that one."""

    def __init__(
        self,
        roster: Roster,
        modes: Sequence[Mode],
        costs: Sequence[int],
        workers: int,
        owner: Indices | None = None,
    ) -> None:
        self.roster, self.modes, self.costs, self.workers, self.owner = roster, modes, costs, workers, owner
        self.group_of, self.row_of = np.zeros(roster.nodes, np.int64), np.zeros(roster.nodes, np.int64)
        for g, nodes in enumerate(roster.groups):
            self.group_of[nodes], self.row_of[nodes] = g, np.arange(len(nodes))
        order = np.argsort([-roster.steps(i) for i in range(roster.nodes)], kind="stable")
        self.server_of = np.argsort(order, kind="stable") % workers if owner is None else owner
        """The worker that does a node's exercises and gives its lessons: its notes stay there."""

    def by_group(self, nodes: list[int]) -> list[tuple[int, Indices, Indices]]:
        """(group, positions in `nodes`, rows) of each architecture among these nodes."""
        who = np.array(nodes, np.int64)
        return [
            (int(g), np.flatnonzero(self.group_of[who] == g), self.row_of[who[self.group_of[who] == g]])
            for g in np.unique(self.group_of[who])
        ]

    def to_train(self, nodes: list[int], turns: Turns) -> list[list[GroupRows]]:
        """Rows for each worker: whole chunks, the long ones first, always to the worker with the least to do."""
        return self._deal(nodes, lambda node: self.roster.steps(node, turns.get(node, PLAIN)))

    def to_score(self, nodes: list[int]) -> list[list[GroupRows]]:
        """Rows for each worker, of which those of one architecture all take equally long."""
        return self._deal(nodes, lambda node: 1)

    def _deal(self, nodes: list[int], steps: Callable[[int], int]) -> list[list[GroupRows]]:
        chunks: list[tuple[float, GroupRows]] = []
        for g, _, rows in self.by_group(nodes):
            long = np.array([steps(int(n)) for n in self.roster.groups[g][rows]])
            order = np.argsort(-long, kind="stable")
            size = self._together(g, len(rows)) if self.owner is None else 1
            pieces = (order[i : i + size] for i in range(0, len(rows), size))
            chunks += [((1 + self.costs[g]) * long[some[0]] * len(some), (g, rows[some])) for some in pieces]
        load = np.zeros(self.workers)
        dealt: list[dict[int, list[Indices]]] = [{} for _ in range(self.workers)]
        for cost, (g, rows) in sorted(chunks, key=lambda chunk: -chunk[0]):
            worker = int(load.argmin() if self.owner is None else self.owner[self.roster.groups[g][rows[0]]])
            load[worker] += cost
            dealt[worker].setdefault(g, []).append(rows)
        return [[(g, np.concatenate(rows)) for g, rows in sorted(some.items())] for some in dealt]

    def to_measure(self, g: int, rows: Indices) -> list[Indices]:
        """Those of these rows of an architecture that each worker measures."""
        if self.owner is None:
            return [rows[worker :: self.workers] for worker in range(self.workers)]
        owner = self.owner[self.roster.groups[g][rows]]
        return [rows[owner == worker] for worker in range(self.workers)]

    def to_answer(self, nodes: Indices) -> list[Indices]:
        """The places of the answers in this list, by whoever answers, that each worker makes."""
        if self.owner is None:
            return np.array_split(np.arange(len(nodes)), self.workers)
        return [np.flatnonzero(self.owner[nodes] == worker) for worker in range(self.workers)]

    def parts(self, nodes: Indices) -> list[GroupRows]:
        """The rows of some nodes."""
        return [(g, rows) for g, _, rows in self.by_group(nodes.tolist())]

    def nodes(self, parts: list[GroupRows]) -> Indices:
        """The nodes of some rows, in their order."""
        return np.concatenate([*(self.roster.groups[g][rows] for g, rows in parts), np.empty(0, np.int64)])

    def flops(self, nodes: Indices, round: int, batches: Indices, turns: Turns) -> list[int]:
        """The floating-point operations of training on so many mini-batches of each of these nodes in a round."""
        pairs = zip(nodes.tolist(), batches.tolist(), self.group_of[nodes].tolist(), strict=True)
        known: dict[tuple[int, int, int], int] = {}  # alike for all with so much data
        found = []
        for node, done, group in pairs:
            alike = group, done, len(self.roster.train[node])
            if node in turns:
                found.append(TRAINING * self.costs[group] * self.roster.seen(node, round, done, turns[node]))
                continue
            if alike not in known:
                known[alike] = TRAINING * self.costs[group] * self.roster.seen(node, round, done)
            found.append(known[alike])
        return found

    def served(self, nodes: list[int]) -> list[Indices]:
        """These nodes by the worker that does their exercises."""
        who = np.array(nodes)
        return [who[self.server_of[who] == worker] for worker in range(self.workers)]

    def _together(self, g: int, rows: int) -> int:
        """How many of so many rows go to a worker together."""
        return min(self.modes[g].chunk, -(-rows // self.workers)) if self.modes[g].stack else 1

"""The nodes of a job in this machine's memory: their matrices, who computes what, and what is measured."""

import time
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from coterie.contract import Layout
from coterie.engines._calibration import choose_mode
from coterie.engines._groups import Group, Mode
from coterie.engines._measuring import Gauges, beside
from coterie.engines._session import StepwiseSession
from coterie.engines._workers import Processes, Workers
from coterie.initialisers import Origin
from coterie.job import Indices, Job, Ledger
from coterie.mail.traffic import Traffic
from coterie.metrics import Occasion, Values
from coterie.node.architecture import architectures
from coterie.node.description import Description
from coterie.node.snapshot import Rows, Snapshot
from coterie.processes import cores_here


class Population(StepwiseSession):
    """All nodes of a job, by architecture, and the worker processes that compute for them."""

    def __init__(self, workers: int, mode: Literal["auto", "stack", "loop"], chunk: int, device: str) -> None:
        self.pool: Workers = Processes((workers or cores_here()) if device == "cpu" else 1)
        self.mode, self.chunk, self.device = mode, chunk, device
        self._samples: Any = None

    @property
    def plan(self) -> dict[str, Any]:
        modes = [{"stack": g.mode.stack, "chunk": g.mode.chunk} for g in self.groups]
        return {"workers": self.pool.workers, "modes": modes}

    @property
    def descriptions(self) -> dict[int, Description]:
        return dict(enumerate(self._described))

    def begin(self, job: Job, plan: dict[str, Any] | None = None) -> None:
        if plan is not None and plan["workers"] != self.pool.workers:
            self.pool.close()
            self.pool = Processes(plan["workers"])
            self._samples = None
        if self._samples is not job.samples:
            self.pool.all("load", job.samples)
            self._samples = job.samples
        self.job, roster = job, job.roster
        self.ledger, self.traffic = Ledger(roster.nodes, roster.metrics), Traffic(roster.nodes)
        self.memory: list[dict[str, int]] = [{} for _ in range(roster.nodes)]
        self.group_of, self.row_of = np.zeros(roster.nodes, np.int64), np.zeros(roster.nodes, np.int64)
        made = architectures(roster, job.samples)
        self.groups: list[Group] = []
        self.layouts: list[Layout] = []
        self._described: list[Description] = []
        initialise, rule = job.initialiser.make(), job.rule
        for g, (architecture, nodes) in enumerate(zip(made, roster.groups, strict=True)):
            self.group_of[nodes], self.row_of[nodes] = g, np.arange(len(nodes))
            matrix = self._shared(len(nodes), architecture.width)
            integers = torch.zeros(len(nodes), architecture.integers, dtype=torch.int64).share_memory_()
            for row, node in enumerate(nodes.tolist()):
                initialise(architecture.module, Origin(roster.seed, node, float(job.gains[node])))
                architecture.read(matrix[row], integers[row])
            width = architecture.layout.size
            me = roster.me(nodes, 0, architecture.layout)
            state = {k: self._share(v.clone()) for k, v in rule.init(me, matrix[:, :width]).items()}
            kept: dict[str, Tensor] = {}
            if roster.training.keep_optimiser:
                kept = {slot: self._shared(len(nodes), width) for slot in roster.optimiser.make().slots}
                kept["count"] = torch.zeros(len(nodes), dtype=torch.int64).share_memory_()
            out = self._shared(len(nodes), width) if rule.span == "model" else None
            squares = self._shared(len(nodes), width) if rule.squares else None
            mode = Mode(**plan["modes"][g]) if plan else self._mode(job, g)
            measured = beside(job, len(nodes), width, self._share)
            self.groups.append(Group(matrix, integers, out, state, kept, squares, mode, **measured))
            self.layouts.append(architecture.layout)
            about = roster.models[g], job.samples.shape, job.samples.answers
            self._described.append(Description.of(architecture, *about))
        self.pool.all("open", roster, self.groups)
        self.gauges = Gauges(job, self.layouts, self.groups, self.pool, self.ledger)
        # where a node does its exercises and gives its lessons: its notes stay there
        order = np.argsort([-roster.steps(i) for i in range(roster.nodes)], kind="stable")
        self.server_of = np.argsort(order, kind="stable") % self.pool.workers

    def _mode(self, job: Job, g: int) -> Mode:
        return choose_mode(job.roster, job.samples, g, self.mode, self.chunk, self.pool.workers)

    def _shared(self, rows: int, width: int) -> Tensor:
        return self._share(torch.zeros(rows, width))

    def _share(self, tensor: Tensor) -> Tensor:
        return tensor.share_memory_() if self.device == "cpu" else tensor.to(self.device)

    number: int
    """The round at work; 0 before the first."""

    # Who does what.

    def _by_group(self, nodes: list[int]) -> list[tuple[int, Indices, Indices]]:
        """(group, positions in `nodes`, rows) of each architecture among these nodes."""
        who = np.array(nodes)
        return [
            (int(g), np.flatnonzero(self.group_of[who] == g), self.row_of[who[self.group_of[who] == g]])
            for g in np.unique(self.group_of[who])
        ]

    def _deal(self, g: int, rows: Indices) -> list[Indices]:
        """Rows for each worker: whole chunks, the long ones first, always to the worker with the least to do."""
        steps = np.array([self.job.roster.steps(int(n)) for n in self.job.roster.groups[g][rows]])
        rows = rows[np.argsort(-steps, kind="stable")]
        steps = np.sort(steps)[::-1]
        mode, workers = self.groups[g].mode, self.pool.workers
        size = min(mode.chunk, -(-len(rows) // workers)) if mode.stack else 1
        load = np.zeros(workers)
        dealt: list[list[Indices]] = [[] for _ in range(workers)]
        for start in range(0, len(rows), size):
            worker = int(load.argmin())
            load[worker] += steps[start] * len(rows[start : start + size])
            dealt[worker].append(rows[start : start + size])
        return [np.concatenate(d) if d else np.empty(0, np.int64) for d in dealt]

    def _bill(self, what: str, nodes: Indices, start: float) -> None:
        """Share the processor time since `start` among nodes."""
        self.ledger.add(what, nodes, (time.perf_counter() - start) * self.pool.workers / max(len(nodes), 1))

    # Measuring.

    def evaluate(self) -> None:
        self.evaluating, self._changed, self.number = True, np.zeros(self.job.roster.nodes, bool), 0
        for g, nodes in enumerate(self.job.roster.groups):
            rows = np.flatnonzero(self.job.members(0)[nodes])
            if len(rows):
                self._measure(g, rows)

    def _measure(self, g: int, rows: Indices) -> None:
        """Score these rows as they are now, on the test samples and on their own validation data."""
        start, latest, nodes = time.perf_counter(), self.ledger.latest, self.job.roster.groups[g][rows]
        self.ledger.judge(nodes, self._score(g, rows, "test"))
        self.ledger.expect(nodes)
        if any(len(self.job.roster.validation[n]) for n in nodes):
            self.ledger.judge(nodes, self._score(g, rows, "validation"))
        here = self.job.members(self.number)[self.job.roster.groups[g]]
        averages = self._averages(g, here)
        parts = self.pool.all("distances", g, averages, None if here.all() else np.flatnonzero(here))
        for name, squares in zip(
            ("neighbourhood_distance", "consensus_distance"), zip(*parts, strict=True), strict=True
        ):
            latest[name][nodes] = np.sqrt(np.sum(squares, axis=0))[rows]
        latest["neighbourhood_distance"][nodes[np.diff(averages.indptr)[rows] == 0]] = np.nan  # no neighbour to be near
        self.gauges.trained(g, rows)
        self._changed[nodes] = False
        self._bill("evaluate_seconds", nodes, start)

    def _measure_merged(self) -> None:
        for g in range(len(self.groups)):
            nodes = self.job.roster.groups[g]
            rows = np.flatnonzero(self._changed[nodes])
            if len(rows):
                start = time.perf_counter()
                self.ledger.judge(nodes[rows], self._score(g, rows, "merged"))
                self._bill("evaluate_seconds", nodes[rows], start)

    def _score(self, g: int, rows: Indices, occasion: Occasion) -> dict[str, Values]:
        """What the metrics of an occasion say of these rows, spread over the workers."""
        mode, workers = self.groups[g].mode, self.pool.workers
        size = min(mode.chunk, -(-len(rows) // workers)) if mode.stack else 1
        chunks = [rows[i : i + size] for i in range(0, len(rows), size)]
        shares = [np.concatenate([*chunks[w::workers], np.empty(0, np.int64)]) for w in range(workers)]
        found = [f for f in self.pool.each("score", [(g, share, occasion, self.job.test) for share in shares]) if f]
        order = np.argsort(np.concatenate(shares), kind="stable")
        back = np.argsort(np.argsort(rows, kind="stable"), kind="stable")
        return {name: np.concatenate([f[name] for f in found])[order][back] for name in (found[0] if found else ())}

    def _averages(self, g: int, here: np.ndarray) -> sp.csr_array:
        """Row-stochastic weights of each row's neighbours of its own architecture, of those who are there."""
        nodes = self.job.roster.groups[g]
        near = sp.csr_array(self.job.graph(self.number).matrix()[nodes][:, nodes]).astype(np.float32)
        if not here.all():
            near = sp.csr_array(near @ sp.diags_array(here.astype(np.float32)))
            near.eliminate_zeros()
        total: np.ndarray = np.asarray(near.sum(1)).ravel()
        return sp.csr_array(sp.diags_array(1 / np.where(total > 0, total, 1)).astype(np.float32) @ near)

    # Keeping.

    def snapshot(self) -> dict[str, Tensor]:
        rows = {
            g: Rows(nodes, group.matrix, group.integers, group.state, group.optimiser_state)
            for g, (nodes, group) in enumerate(zip(self.job.roster.groups, self.groups, strict=True))
        }
        notes = {
            node: {name: torch.from_numpy(noted.copy()) for name, noted in kept.items()}
            for found in self.pool.all("kept")
            for node, kept in found.items()
        }
        return Snapshot.of(rows, dict(enumerate(self.memory)), notes, self.ledger).tensors()

    def restore(self, state: dict[str, Tensor]) -> None:
        kept = Snapshot.read(state)
        for g, group in enumerate(self.groups):
            rows = kept.rows[g]
            group.matrix.copy_(rows.matrix)
            group.integers.copy_(rows.integers)
            for mine, theirs in ((group.state, rows.state), (group.optimiser_state, rows.optimiser)):
                for name, tensor in mine.items():
                    tensor.copy_(theirs[name])
        kept.restore(self.ledger)
        self.memory = [kept.memory.get(node, {}) for node in range(self.job.roster.nodes)]
        notes: list[dict[int, dict[str, np.ndarray]]] = [{} for _ in range(self.pool.workers)]
        for node, noted in kept.notes.items():
            notes[self.server_of[node]][node] = {name: tensor.numpy() for name, tensor in noted.items()}
        self.pool.each("keep", [(noted,) for noted in notes])

    def close(self) -> None:
        self.pool.close()

"""Training, evaluation and gradients for some rows: one module looped over them, or many stacked with vmap."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from coterie.architecture import Architecture
from coterie.contract import Layout, Me, State
from coterie.engines._job import Indices, Job, Samples
from coterie.engines._traces import tidy
from coterie.objectives.cross_entropy import cross_entropy
from coterie.randomness import key

EVALUATION_BATCH = 250

_traces: dict[Any, Any] = {}
"""Traced gradients of this process, by all that they depend on: a trace costs as much as hundreds of steps."""


class Trainer:
    """The rows of one architecture: their matrix, and what can be computed on a few of them in this process."""

    def __init__(
        self,
        job: Job,
        samples: Samples,
        group: int,
        architecture: Architecture,
        matrix: Tensor,
        integers: Tensor,
        nodes: Indices | None = None,
    ) -> None:
        self.job, self.samples, self.architecture = job, samples, architecture
        self.group, self.nodes = group, job.groups[group] if nodes is None else nodes
        self.matrix, self.integers = matrix, integers
        self.objective, self.optimiser = job.objective.make(), job.optimiser.make()
        self.optimiser_state: dict[str, Tensor] = {}
        self._buffers: dict[str, Tensor] = {}
        self._traced_for = (repr(job.models[group]), repr(job.objective), job.training.clamp, samples.shape)
        self._me = job.me(self.nodes, 0, architecture.layout)

    @property
    def params(self) -> Tensor:
        """The trainable columns of the matrix, `[n, P]`."""
        return self.matrix[:, : self.architecture.layout.size]

    @property
    def buffers(self) -> Tensor:
        """The columns of float buffers, `[n, B]`."""
        return self.matrix[:, self.architecture.layout.size :]

    def me(self, rows: Indices | int, round: int) -> Me:
        """What the nodes at these rows know of themselves; `[1]` scalars for a single row."""
        m = self._me
        return replace(
            m, node=m.node[rows], size=m.size[rows], degree=m.degree[rows], labels=m.labels[rows], round=round
        )

    # Looping: one module, re-pointed at a row.

    def point(self, row: int, params: Tensor | None = None) -> None:
        self.architecture.point(self.params[row] if params is None else params, self.buffers[row], self.integers[row])

    def train_row(self, row: int, round: int) -> None:
        """Train one node for a round, in place."""
        node = int(self.nodes[row])
        self.point(row)
        module = self.architecture.module.train()
        tensors = [p for _, p in self.architecture.parameters]
        me, clamp = replace(self.me(row, 0), seed=0), self.job.training.clamp
        slots, count = self._slots(row), 0
        if self.optimiser_state:
            count = int(self.optimiser_state["count"][row])
        self._seed(key(self.job.seed, "dropout", node, round) >> 1)
        weights = [p.data for p in tensors]
        for batch in self.job.schedule(node, round):
            where = torch.as_tensor(batch)
            loss = self.objective(module(self.samples.inputs(where)), self.samples.targets(where), me).mean()
            gradients = torch.autograd.grad(
                loss if clamp is None else loss.clamp(max=clamp), tensors, materialize_grads=True
            )
            count += 1
            with torch.no_grad():
                for w, g, buffers in zip(weights, gradients, slots, strict=True):
                    self.optimiser.step(w, g, buffers, count)
        if self.optimiser_state:
            self.optimiser_state["count"][row] = count

    def _seed(self, seed: int) -> None:
        """Seed what dropout draws from; for every device there is, as PyTorch offers it, takes half a step's time."""
        if self.matrix.device.type == "cpu":
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def _slots(self, row: int) -> list[dict[str, Tensor]]:
        """The optimiser's buffers for each tensor: kept ones of this row, or fresh zeros."""
        layout = self.architecture.layout
        flat = {
            name: self.optimiser_state[name][row] if self.optimiser_state else self._scratch(name, layout)
            for name in self.optimiser.slots
        }
        return [
            {name: x[a:b].view(shape) for name, x in flat.items()}
            for (a, b), shape in zip(layout.spans, layout.shapes, strict=True)
        ]

    def _scratch(self, name: str, layout: Layout) -> Tensor:
        return self._buffers.setdefault(name, self.matrix.new_empty(layout.size)).zero_()

    # Stacking: many rows in one vmapped, traced gradient.

    def train_stack(self, rows: Indices, round: int) -> None:
        """Train several nodes for a round at once; rows with fewer steps leave the stack as they finish."""
        layout = self.architecture.layout
        steps = np.array([self.job.steps(int(self.nodes[r])) for r in rows])
        order = np.argsort(-steps, kind="stable")
        rows, steps = rows[order], steps[order]
        where = torch.as_tensor(rows)
        params = self.params[where]  # a copy, which the views below share
        views = layout.views(params)
        slots = {slot: torch.zeros_like(params) for slot in self.optimiser.slots}
        offset = 0
        if self.optimiser_state:
            offset = int(self.optimiser_state["count"][rows[0]])
            slots = {slot: self.optimiser_state[slot][where] for slot in slots}
        me = self.me(rows, 0)
        for step, (live, index, share) in enumerate(self._padded(rows, steps, round)):
            x = self.samples.inputs(index.reshape(-1)).unflatten(0, index.shape)
            y, share = self.samples.targets(index), share.to(x.device)
            gradient = self._gradient({n: v[: len(index)] for n, v in views.items()}, x, y, share, me, training=True)
            buffers = {slot: s[:live] for slot, s in slots.items()}
            self.optimiser.step(params[:live], gradient[:live], buffers, offset + step + 1)
        self.params[where] = params
        if self.optimiser_state:
            self.optimiser_state["count"][where] = offset + int(steps[0])
            for slot in slots:
                self.optimiser_state[slot][where] = slots[slot]

    def _padded(self, rows: Indices, steps: Indices, round: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Per step: how many rows still train, their samples' indices [m, B], and each sample's share of its mean."""
        schedules = [self.job.schedule(int(self.nodes[r]), round) for r in rows]
        for step in range(int(steps.max(initial=0))):
            live = int((steps > step).sum())
            batches = [next(s) for s in schedules[:live]]
            yield live, *_pad(batches, _stack_height(live, len(rows)), self.job.training.batch_size)

    def _gradient(
        self, params: dict[str, Tensor], x: Tensor, y: Tensor, share: Tensor, me: Me, training: bool
    ) -> Tensor:
        """Gradients [m, P] of each row's batch loss, replayed from a trace of vmap(grad(loss))."""
        height = len(x)
        trace = (*self._traced_for, training, tuple(x.shape[:2]), x.device)
        inputs = (params, x, y, share, me.node[:height], me.size[:height], me.degree[:height], me.labels[:height])
        if trace not in _traces:
            self.architecture.module.train(training)
            _traces[trace] = tidy(make_fx(vmap(grad(self._loss(training))))(*inputs))
        return torch.cat([g.flatten(1) for g in _traces[trace](*inputs).values()], dim=1)

    def _loss(self, training: bool) -> Any:
        module, clamp = self.architecture.module, self.job.training.clamp if training else None
        objective = self.objective if training else cross_entropy

        def loss(
            params: dict[str, Tensor],
            x: Tensor,
            y: Tensor,
            share: Tensor,
            node: Tensor,
            size: Tensor,
            degree: Tensor,
            labels: Tensor,
        ) -> Tensor:
            me = Me(node, size, degree, labels, 0, 0, self.architecture.layout)  # a trace serves all seeds and rounds
            mean = (objective(functional_call(module, params, (x,)), y, me) * share).sum()
            return mean if clamp is None else mean.clamp(max=clamp)

        return loss

    # What rules and reports ask for.

    def observe(self, rule: Any, rows: Indices, round: int, state: State, stack: bool) -> None:
        """Let the rule look at these rows' own data; changes `state` in place."""
        at: Any = torch.as_tensor(rows) if stack else int(rows[0])
        mine = {name: s[at] for name, s in state.items()}
        data = StackData(self, rows) if stack else RowData(self, int(rows[0]))
        found = rule.observe(self.me(rows if stack else int(rows[0]), round), self.params[at], mine, data)
        for name, value in found.items():
            state[name][at] = value

    def logits(self, rows: Indices, x: Tensor) -> Tensor:
        """Logits [m, B, C] of these rows' models for the same inputs [B, …] or each its own [m, B, …]."""
        own = x.dim() > len(self.samples.shape) + 1
        self.architecture.module.eval()
        with torch.no_grad():
            if len(rows) == 1:
                self.point(int(rows[0]))
                logits: Tensor = self.architecture.module(x[0] if own else x)
                return logits.unsqueeze(0)
            stacked: Tensor = vmap(self.architecture.forward, in_dims=(0, 0 if own else None))(
                self.params[torch.as_tensor(rows)], x
            )
            return stacked

    def score(self, rows: Indices, which: Indices | None) -> dict[str, np.ndarray]:
        """Accuracy, mean cross-entropy and macro F1 on the test samples `which`, or on one's own validation data."""
        classes, test = self.samples.classes, which is not None
        counts = np.zeros((len(rows), classes, classes), np.int64)
        losses, seen = np.zeros(len(rows)), np.zeros(len(rows))
        parts = [which] if which is not None else [self.job.validation[int(self.nodes[r])] for r in rows]
        for start in range(0, max(map(len, parts)), EVALUATION_BATCH):
            chunks = [part[start : start + EVALUATION_BATCH] for part in parts]
            if which is not None:
                index = torch.as_tensor(chunks[0]).expand(len(rows), -1)
                real = torch.ones(index.shape)
                x = self.samples.inputs(index[0], test=True)
            else:
                index, share = _pad(chunks, len(rows), EVALUATION_BATCH)
                real = (share > 0).float()
                x = self.samples.inputs(index.reshape(-1)).unflatten(0, index.shape)
            y = self.samples.targets(index, test)
            logits = self.logits(rows, x)
            real = real.to(logits.device)
            loss = F.cross_entropy(logits.flatten(0, 1), y.reshape(-1), reduction="none").view_as(y)
            losses += (loss * real).sum(1).double().cpu().numpy()
            seen += real.sum(1).cpu().numpy()
            cell = (y * classes + logits.argmax(-1)) + torch.arange(len(rows), device=y.device)[:, None] * classes**2
            hits = torch.bincount(cell.reshape(-1), real.reshape(-1).double(), minlength=len(rows) * classes**2)
            counts += hits.long().cpu().numpy().reshape(counts.shape)
        return _metrics(counts, losses, seen)


class RowData:
    """One node's data, for rules: gradients at any parameters `[P]`."""

    def __init__(self, trainer: Trainer, row: int) -> None:
        self.trainer, self.row = trainer, row

    def grads(self, params: Tensor, size: int = 100, batches: int | None = None) -> Iterator[Tensor]:
        t = self.trainer
        own = t.job.train[int(t.nodes[self.row])]
        for start in range(0, len(own), size)[:batches]:
            where = torch.as_tensor(own[start : start + size])
            t.point(self.row, params)
            module = t.architecture.module.eval()
            loss = F.cross_entropy(module(t.samples.inputs(where)), t.samples.targets(where))
            gradients = torch.autograd.grad(loss, [p for _, p in t.architecture.parameters], materialize_grads=True)
            yield torch.cat([g.reshape(-1) for g in gradients])


class StackData:
    """Several nodes' data, for rules: gradients at any parameters `[m, P]`."""

    def __init__(self, trainer: Trainer, rows: Indices) -> None:
        self.trainer, self.rows = trainer, rows

    def grads(self, params: Tensor, size: int = 100, batches: int | None = None) -> Iterator[Tensor]:
        t = self.trainer
        own = [t.job.train[int(t.nodes[r])] for r in self.rows]
        views = {name: view.contiguous() for name, view in t.architecture.layout.views(params).items()}
        me = t.me(self.rows, 0)
        for start in range(0, max(map(len, own)), size)[:batches]:
            index, share = _pad([o[start : start + size] for o in own], len(own), size)
            x = t.samples.inputs(index.reshape(-1)).unflatten(0, index.shape)
            y, share = t.samples.targets(index), share.to(x.device)
            yield t._gradient(views, x, y, share, me, training=False)


def _pad(batches: list[Indices], height: int, most: int) -> tuple[Tensor, Tensor]:
    """Ragged index lists as [height, B] and each sample's share of its row's mean (0 for padding).

    B is `most` or a power of two below it: few shapes, few traces.
    """
    lengths = np.array([len(b) for b in batches] + [0] * (height - len(batches)))
    width = min(most, 1 << max(int(lengths.max()) - 1, 0).bit_length())
    index = np.zeros((height, width), np.int64)
    for row, batch in enumerate(batches):
        index[row, : len(batch)] = batch
    real = np.arange(index.shape[1]) < lengths[:, None]
    share = real / np.maximum(lengths, 1)[:, None]
    return torch.from_numpy(index), torch.from_numpy(share.astype(np.float32))


def _stack_height(live: int, full: int) -> int:
    """Round the number of live rows up to one of a few heights, so that few shapes need a trace of their own."""
    height = full
    while height > 1 and -(-height // 2) >= live:
        height = -(-height // 2)
    return height


def _metrics(counts: np.ndarray, losses: np.ndarray, seen: np.ndarray) -> dict[str, np.ndarray]:
    right = np.diagonal(counts, axis1=1, axis2=2)
    either = counts.sum(1) + counts.sum(2)
    f1 = np.where(either > 0, 2 * right / np.maximum(either, 1), 0.0).mean(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {"accuracy": right.sum(1) / seen, "loss": losses / seen, "f1": np.where(seen > 0, f1, np.nan)}

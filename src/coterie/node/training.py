"""Training, evaluation and gradients for some rows: one module looped over them, or many stacked with vmap."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from coterie.contract import Fields, Layout, Me, Message, State
from coterie.job import Indices, Roster, Samples
from coterie.lessons import Loss
from coterie.node._traces import tidy
from coterie.node.architecture import Architecture
from coterie.objectives import draws
from coterie.objectives.cross_entropy import cross_entropy
from coterie.randomness import key

EVALUATION_BATCH = 250
NONE: Indices = np.empty(0, np.int64)

_traces: dict[Any, Any] = {}
"""Traced gradients of this process, by all that they depend on: a trace costs as much as hundreds of steps."""


class Trainer:
    """The rows of one architecture: their matrix, and what can be computed on a few of them in this process."""

    def __init__(
        self,
        roster: Roster,
        samples: Samples,
        group: int,
        architecture: Architecture,
        matrix: Tensor,
        integers: Tensor,
        nodes: Indices | None = None,
    ) -> None:
        self.roster, self.samples, self.architecture = roster, samples, architecture
        self.group, self.nodes = group, roster.groups[group] if nodes is None else nodes
        self.matrix, self.integers = matrix, integers
        self.objective, self.optimiser = roster.objective.make(), roster.optimiser.make()
        self.draws = draws(self.objective)
        self.optimiser_state: dict[str, Tensor] = {}
        self.squares: Tensor | None = None
        """The squared gradients of this round's training, summed up for a rule that asks for them, `[n, P]`."""
        self._buffers: dict[str, Tensor] = {}
        self._traced_for = (repr(roster.models[group]), repr(roster.objective), roster.training.clamp, samples.shape)
        self._me = roster.me(self.nodes, 0, architecture.layout)

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

    def meet(self, degree: Indices) -> None:
        """Let the nodes know how many they hear, `[nodes of the job]`: where the network changes, in every round."""
        known = torch.as_tensor(degree[self.nodes]).unsqueeze(1).to(self._me.degree)
        self._me = replace(self._me, degree=known)

    # Looping: one module, re-pointed at a row.

    def point(self, row: int, params: Tensor | None = None) -> None:
        self.architecture.point(self.params[row] if params is None else params, self.buffers[row], self.integers[row])

    def train_row(self, row: int, round: int, wanted: Loss | None = None) -> int:
        """Train one node for a round, in place, with the objective or the loss that is wanted; gives its batches."""
        node = int(self.nodes[row])
        caution = _Caution(self, row) if self.roster.training.patience and len(self.roster.validation[node]) else None
        self.point(row)
        module = self.architecture.module.train()
        tensors = [p for _, p in self.architecture.parameters]
        me, clamp = replace(self.me(row, 0), seed=0), self.roster.training.clamp
        slots, count = self._slots(row), 0
        if self.optimiser_state:
            count = int(self.optimiser_state["count"][row])
        self._seed(key(self.roster.seed, "dropout", node, round) >> 1)
        weights = [p.data for p in tensors]
        squares = () if self.squares is None else self.architecture.layout.views(self.squares[row]).values()
        steps = 0
        for steps, batch in enumerate(self.roster.schedule(node, round), 1):
            where, noise = torch.as_tensor(batch), self._noise(node, round, steps, len(batch))
            x, y = self.samples.inputs(where), self.samples.targets(where)
            loss = wanted(self.architecture.look, x, y) if wanted else self.objective(module(x), y, me, *noise).mean()
            gradients = torch.autograd.grad(
                loss if clamp is None else loss.clamp(max=clamp), tensors, materialize_grads=True
            )
            count += 1
            with torch.no_grad():
                for square, g in zip(squares, gradients, strict=False):
                    square.addcmul_(g, g)
                for w, g, buffers in zip(weights, gradients, slots, strict=True):
                    self.optimiser.step(w, g, buffers, count)
            if caution and steps % self.roster.per_epoch(node) == 0 and caution.gives_up():
                for square in squares:  # of steps that are taken back
                    square.zero_()
                return steps
        if self.optimiser_state:
            self.optimiser_state["count"][row] = count
        return steps

    def _noise(self, nodes: Indices | int, round: int, step: int, size: int) -> tuple[Tensor, ...]:
        """What the objective draws from in this step, if it does."""
        return (self.roster.noise(nodes, round, step, size),) if self.draws else ()

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

    def train_stack(self, rows: Indices, round: int) -> Indices:
        """Train several nodes for a round at once; rows with fewer steps leave the stack as they finish.

        Gives the number of mini-batches that were computed for each.
        """
        layout = self.architecture.layout
        computed = steps = np.array([self.roster.steps(int(self.nodes[r])) for r in rows])
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
        squares = None if self.squares is None else torch.zeros_like(params)
        for step, (live, index, share) in enumerate(self._padded(rows, steps, round), 1):
            x = self.samples.inputs(index.reshape(-1)).unflatten(0, index.shape)
            y, share = self.samples.targets(index), share.to(x.device)
            noise = self._noise(self.nodes[rows[: len(index)]], round, step, index.shape[1])
            now = {n: v[: len(index)] for n, v in views.items()}
            gradient = self._gradient(now, x, y, share, me, True, *noise)
            if squares is not None:
                squares[:live].addcmul_(gradient[:live], gradient[:live])
            buffers = {slot: s[:live] for slot, s in slots.items()}
            self.optimiser.step(params[:live], gradient[:live], buffers, offset + step)
        self.params[where] = params
        if self.squares is not None and squares is not None:
            self.squares[where] += squares
        if self.optimiser_state:
            self.optimiser_state["count"][where] = offset + int(steps[0])
            for slot in slots:
                self.optimiser_state[slot][where] = slots[slot]
        return computed

    def _padded(self, rows: Indices, steps: Indices, round: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Per step: how many rows still train, their samples' indices [m, B], and each sample's share of its mean."""
        schedules = [self.roster.schedule(int(self.nodes[r]), round) for r in rows]
        for step in range(int(steps.max(initial=0))):
            live = int((steps > step).sum())
            batches = [next(s) for s in schedules[:live]]
            yield live, *_pad(batches, stack_height(live, len(rows)), self.roster.training.batch_size)

    def _gradient(
        self, params: dict[str, Tensor], x: Tensor, y: Tensor, share: Tensor, me: Me, training: bool, *noise: Tensor
    ) -> Tensor:
        """Gradients [m, P] of each row's batch loss, replayed from a trace of vmap(grad(loss))."""
        height = len(x)
        trace = (*self._traced_for, training, tuple(x.shape[:2]), x.device)
        known = (me.node[:height], me.size[:height], me.degree[:height], me.labels[:height])
        inputs = (params, x, y, share, *known, *noise)
        if trace not in _traces:
            self.architecture.module.train(training)
            _traces[trace] = tidy(make_fx(vmap(grad(self._loss(training))))(*inputs))
        return torch.cat([g.flatten(1) for g in _traces[trace](*inputs).values()], dim=1)

    def _loss(self, training: bool) -> Any:
        module, clamp = self.architecture.module, self.roster.training.clamp if training else None
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
            *noise: Tensor,
        ) -> Tensor:
            me = Me(node, size, degree, labels, 0, 0, self.architecture.layout)  # a trace serves all seeds and rounds
            mean = (objective(functional_call(module, params, (x,)), y, me, *noise) * share).sum()
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

    def answer(self, rule: Any, rows: Indices, theirs: Message, round: int, stack: bool) -> Fields:
        """What the rule says, each row to the sender of the message in the same place: a row of each field."""
        if stack:
            fields: Fields = rule.answer(self.me(rows, round), theirs, StackData(self, rows))
            return fields
        row, one = int(rows[0]), {name: f[0] for name, f in theirs.fields.items()}
        said = rule.answer(self.me(row, round), Message(one, theirs.size[0], theirs.round), RowData(self, row))
        return {name: f.unsqueeze(0) for name, f in said.items()}

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
        parts = [which] if which is not None else [self.roster.validation[int(self.nodes[r])] for r in rows]
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


class _Caution:
    """Looks at one node's validation loss after each epoch, and takes its training back when that has risen."""

    def __init__(self, trainer: Trainer, row: int) -> None:
        self.trainer, self.row, self.lowest, self.risen = trainer, row, math.inf, 0
        self._tensors = [trainer.matrix, trainer.integers, *trainer.optimiser_state.values()]
        self._before = [t[row].clone() for t in self._tensors]

    def gives_up(self) -> bool:
        """Whether the loss stood above its lowest often enough in a row: then all is as it was before the round."""
        loss = float(self.trainer.score(np.array([self.row]), None)["loss"][0])
        self.trainer.architecture.module.train()
        self.risen = 0 if loss <= self.lowest else self.risen + 1  # a loss that is no number has risen, too
        self.lowest = min(self.lowest, loss)
        if self.risen < (self.trainer.roster.training.patience or math.inf):
            return False
        for tensor, before in zip(self._tensors, self._before, strict=True):
            tensor[self.row] = before
        return True


class RowData:
    """One node's data, for rules: gradients at any parameters `[P]`."""

    def __init__(self, trainer: Trainer, row: int) -> None:
        self.trainer, self.row = trainer, row

    def squares(self) -> Tensor:
        assert self.trainer.squares is not None, "a rule that asks for squares must say squares = True"
        return self.trainer.squares[self.row].clone()

    def grads(self, params: Tensor, size: int = 100, batches: int | None = None, first: int = 0) -> Iterator[Tensor]:
        t = self.trainer
        own = t.roster.train[int(t.nodes[self.row])]
        for batch in _round_trip(own, size, first)[:batches]:
            where = torch.as_tensor(batch)
            t.point(self.row, params)
            module = t.architecture.module.eval()
            loss = F.cross_entropy(module(t.samples.inputs(where)), t.samples.targets(where))
            gradients = torch.autograd.grad(loss, [p for _, p in t.architecture.parameters], materialize_grads=True)
            yield torch.cat([g.reshape(-1) for g in gradients])


class StackData:
    """Several nodes' data, for rules: gradients at any parameters `[m, P]`."""

    def __init__(self, trainer: Trainer, rows: Indices) -> None:
        self.trainer, self.rows = trainer, rows

    def squares(self) -> Tensor:
        assert self.trainer.squares is not None, "a rule that asks for squares must say squares = True"
        return self.trainer.squares[torch.as_tensor(self.rows)]

    def grads(self, params: Tensor, size: int = 100, batches: int | None = None, first: int = 0) -> Iterator[Tensor]:
        t = self.trainer
        own = [_round_trip(t.roster.train[int(t.nodes[r])], size, first) for r in self.rows]
        views = {name: view.contiguous() for name, view in t.architecture.layout.views(params).items()}
        me = t.me(self.rows, 0)
        for step in range(max(map(len, own)))[:batches]:
            index, share = _pad([o[step] if step < len(o) else NONE for o in own], len(own), size)
            x = t.samples.inputs(index.reshape(-1)).unflatten(0, index.shape)
            y, share = t.samples.targets(index), share.to(x.device)
            yield t._gradient(views, x, y, share, me, False)


def _round_trip(own: Indices, size: int, first: int) -> list[Indices]:
    """One's samples in batches, each once, beginning with batch `first` of what goes round."""
    batches = [own[start : start + size] for start in range(0, len(own), size)]
    turn = first % max(len(batches), 1)
    return batches[turn:] + batches[:turn]


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


def stack_height(live: int, full: int) -> int:
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

"""Training and gradients for some rows: one module looped over them, or many stacked with vmap."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from coterie.contract import Fields, Layout, Me, Message, State
from coterie.datasets import Inputs
from coterie.errors import ConfigError
from coterie.job import PLAIN, Indices, Job, Ledger, Roster, Samples
from coterie.lessons import Loss
from coterie.node import bests
from coterie.node._traces import IGNORED, Replay
from coterie.node.architecture import Architecture
from coterie.node.evaluation import Caution, Curves
from coterie.node.linear import by_hand
from coterie.node.rows import Rows, pad, stack_height, standing
from coterie.node.varying import Varying
from coterie.protocols import Train
from coterie.randomness import key

NONE: Indices = np.empty(0, np.int64)
Turns = Mapping[int, Train]
"""What nodes were asked for, of those who are not to train as the method has it."""

_traces: dict[Any, Replay] = {}
"""Traced gradients of this process, by all that they depend on: a trace costs as much as hundreds of steps."""


class Trainer(Rows):
    """What can be learnt and asked of some rows in this process."""

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
        super().__init__(roster, samples, group, architecture, matrix, integers, nodes)
        self.optimiser = roster.optimiser.make()
        self.optimiser_state: dict[str, Tensor] = {}
        self.squares: Tensor | None = None
        """The squared gradients of this round's training, summed up for a rule that asks for them, `[n, P]`."""
        self.curves: Curves | None = None
        """Where the loss after each epoch is noted, while somebody wants to know it."""
        self._varying = Varying(roster)
        self._linear = by_hand(roster, samples, architecture, self.optimiser)
        self._buffers: dict[str, Tensor] = {}
        self._all_count = bool(samples.classes) and not bool((samples.train_y == IGNORED).any())
        about = repr(roster.models[group]), repr(roster.objective), roster.training.clamp, samples.kind
        self._traced_for = (*about, self._all_count)

    def keep_best(self, row: int, notes: dict[str, Tensor], job: Job, ledger: Ledger) -> None:
        """Keep a row, as it has just been judged, among its node's notes if it is the best so far, if asked to."""
        if job.best:
            bests.hold(notes, self.matrix[row], bests.worth(job, ledger)[self.nodes[row]])

    def meet(self, degree: Indices) -> None:
        """Let the nodes know how many they hear, `[nodes of the job]`: where the network changes, in every round."""
        known = torch.as_tensor(degree[self.nodes]).unsqueeze(1).to(self._me.degree)
        self._me = replace(self._me, degree=known)

    # Looping: one module, re-pointed at a row.

    def train_row(self, row: int, round: int, wanted: Loss | None = None, turn: Train = PLAIN) -> int:
        """Train one node for a round, in place, with the objective or the loss that is wanted; gives its batches."""
        if wanted is None and self._linear and self.squares is None:
            return int(self._train_linear(np.array([row]), round, [turn])[0])
        node = int(self.nodes[row])
        cautious = self.roster.training.patience and len(self.roster.validation[node])
        caution = Caution(self, row, list(self.optimiser_state.values())) if cautious else None
        self.point(row)
        module = self.architecture.train()
        tensors = [p for _, p in self.architecture.parameters]
        me, clamp = replace(self.me(row, 0), seed=0), self.roster.training.clamp
        slots, count, steps = self._slots(row), 0, 0
        per_epoch, behind = self.roster.per_epoch(node), self.roster.behind(node, round, turn)
        optimiser, epochs = self.optimiser, self.roster.epochs(node) if self.optimiser.scheduled else 0.0
        if self.optimiser_state:
            count = int(self.optimiser_state["count"][row])
        self._seed(key(self.roster.seed, "dropout", node, round) >> 1)
        weights = [p.data for p in tensors]
        squares = () if self.squares is None else self.architecture.layout.views(self.squares[row]).values()
        self._look(row, behind, per_epoch)
        for steps, batch in enumerate(self.roster.schedule(node, round, turn), 1):
            if self.roster.training.renew_optimiser and (behind + steps - 1) % per_epoch == 0:
                slots, count = self._slots(row), 0
            where, noise = torch.as_tensor(batch), self._noise(node, round, steps, len(batch))
            x, y = self._varying(self.samples.inputs(where), node, round, steps), self.samples.targets(where)
            try:
                loss = (
                    wanted(self.architecture.look, x, y) if wanted else self.objective(module(x), y, me, *noise).mean()
                )
            except ValueError:
                if len(batch) == 1 and any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules()):
                    raise _alone(node, len(self.roster.train[node]), self.roster.training.batch_size) from None
                raise
            gradients = torch.autograd.grad(
                loss if clamp is None else loss.clamp(max=clamp), tensors, materialize_grads=True
            )
            count += 1
            if self.optimiser.scheduled:
                optimiser = self.optimiser.at((behind + steps - 1) / per_epoch, epochs)
            if (longest := self.roster.training.clip) is not None:
                length = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
                gradients = tuple(g * (longest / length.clamp(min=longest)) for g in gradients)
            with torch.no_grad():
                for square, g in zip(squares, gradients, strict=False):
                    square.addcmul_(g, g)
                for w, g, buffers in zip(weights, gradients, slots, strict=True):
                    optimiser.step(w, g, buffers, count)
            del loss, gradients  # the next ones then lie where these did, which is still in the processor's cache
            self._look(row, behind + steps, per_epoch)
            if caution and steps % per_epoch == 0 and caution.gives_up():
                for square in squares:  # of steps that are taken back
                    square.zero_()
                return steps
        if self.optimiser_state:
            self.optimiser_state["count"][row] = count
        return steps

    def _look(self, row: int, batches: int, per_epoch: int) -> None:
        """Note the loss of a row whose model has so many mini-batches behind it, if an epoch ends there."""
        if self.curves and per_epoch and batches % per_epoch == 0:
            self.curves.note(row, batches // per_epoch)
            self.architecture.train()

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
        flat |= {"weights": layout.weights.to(self.matrix.device)} if self.optimiser.spares else {}
        return [
            {name: x[a:b].view(shape) for name, x in flat.items()}
            for (a, b), shape in zip(layout.spans, layout.shapes, strict=True)
        ]

    def _scratch(self, name: str, layout: Layout) -> Tensor:
        return self._buffers.setdefault(name, self.matrix.new_empty(layout.size)).zero_()

    # Stacking: many rows in one vmapped, traced gradient.

    def train_stack(self, rows: Indices, round: int, turns: Turns | None = None) -> Indices:
        """Train several nodes for a round at once; rows with fewer steps leave the stack as they finish.

        Gives the number of mini-batches that were computed for each.
        """
        layout = self.architecture.layout
        wanted = [(turns or {}).get(int(self.nodes[r]), PLAIN) for r in rows]
        if self._linear and self.squares is None:
            return self._train_linear(rows, round, wanted)
        if turns and self.optimiser_state:  # whose optimisers may be at different counts
            each = zip(rows.tolist(), wanted, strict=True)
            return np.array([self.train_row(row, round, turn=turn) for row, turn in each])
        each = zip(self.nodes[rows].tolist(), wanted, strict=True)
        computed = steps = np.array([self.roster.steps(node, turn) for node, turn in each])
        order = np.argsort(-steps, kind="stable")
        rows, steps, wanted = rows[order], steps[order], [wanted[i] for i in order]
        where = standing(rows)
        params = self.params[where]  # a copy, unless they stand one after the other; the views below share it
        views = layout.views(params)
        slots = {slot: torch.zeros_like(params) for slot in self.optimiser.slots}
        offset = 0
        if self.optimiser_state:
            offset = int(self.optimiser_state["count"][rows[0]])
            slots = {slot: self.optimiser_state[slot][where] for slot in slots}
        me = self.me(rows, 0)
        squares = None if self.squares is None else torch.zeros_like(params)
        paces = [
            (self.roster.behind(node, round, turn), self.roster.per_epoch(node))
            for node, turn in zip(self.nodes[rows].tolist(), wanted, strict=True)
        ]
        self._look_all(rows, params, paces, 0)
        fixed = {"weights": layout.weights.to(params.device)} if self.optimiser.spares else {}
        for step, (live, index, share) in enumerate(self._padded(rows, steps, round, wanted), 1):
            stacked = self.nodes[rows[: len(index)]]
            x, y = self._varying(self.samples.inputs(index), stacked, round, step), self.samples.targets(index)
            share = share.to(y.device)
            noise = self._noise(stacked, round, step, index.shape[1])
            now = {n: v[: len(index)] for n, v in views.items()}
            gradient = self._gradient(now, x, y, share, me, True, *noise)
            if (longest := self.roster.training.clip) is not None:
                length = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
                gradient = gradient * (longest / length.clamp(min=longest))
            if squares is not None:
                squares[:live].addcmul_(gradient[:live], gradient[:live])
            buffers = {slot: s[:live] for slot, s in slots.items()} | fixed
            self.optimiser.step(params[:live], gradient[:live], buffers, offset + step)
            self._look_all(rows[:live], params, paces, step)
        if isinstance(where, Tensor):
            self.params[where] = params
        if self.squares is not None and squares is not None:
            self.squares[where] += squares
        if self.optimiser_state:
            self.optimiser_state["count"][where] = offset + int(steps[0])
            for slot in slots if isinstance(where, Tensor) else ():
                self.optimiser_state[slot][where] = slots[slot]
        return computed

    def _look_all(self, rows: Indices, params: Tensor, paces: list[tuple[int, int]], step: int) -> None:
        """Note the losses of those rows whose epoch ends with this step."""
        for i, (row, (behind, per_epoch)) in enumerate(zip(rows.tolist(), paces, strict=False) if self.curves else ()):
            if per_epoch and (behind + step) % per_epoch == 0:
                self.params[row] = params[i]
                self._look(row, behind + step, per_epoch)

    def _padded(
        self, rows: Indices, steps: Indices, round: int, turns: Sequence[Train]
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Per step: how many rows still train, their samples' indices [m, B], and each sample's share of its mean."""
        whose = list(zip(self.nodes[rows].tolist(), turns, strict=True))
        size = self.roster.training.batch_size
        if len(rows) and (steps == steps[0]).all() and not any(len(self.roster.train[n]) % size for n, _ in whose):
            orders = [np.concatenate([NONE, *self.roster.orders(n, round, t)]) for n, t in whose]
            whole = np.stack(orders).reshape(len(rows), -1, size).swapaxes(0, 1)  # none is shorter than the others
            device = self.matrix.device  # where the indices of the whole round go at once
            share = torch.full((len(rows), size), 1 / size, device=device)
            indices = torch.from_numpy(np.ascontiguousarray(whole)).to(device)
            yield from ((len(rows), index, share) for index in indices)
            return
        schedules = [self.roster.schedule(n, round, t) for n, t in whose]
        for step in range(int(steps.max(initial=0))):
            live = int((steps > step).sum())
            batches = [next(s) for s in schedules[:live]]
            yield live, *pad(batches, stack_height(live, len(rows)), size)

    def _gradient(
        self, params: dict[str, Tensor], x: Inputs, y: Tensor, share: Tensor, me: Me, training: bool, *noise: Tensor
    ) -> Tensor:
        """Gradients [m, P] of each row's batch loss, replayed from a trace of vmap(grad(loss))."""
        height = len(y)
        trace = (*self._traced_for, training, tuple(y.shape[:2]), y.device)
        known = (me.node[:height], me.size[:height], me.degree[:height], me.labels[:height])
        others = (y, share, *known, *noise)
        if trace not in _traces:
            self.architecture.train(training)
            _traces[trace] = Replay(vmap(grad(self._loss(training))), params, x, others, self._all_count)
        return torch.cat([g.flatten(1) for g in _traces[trace](params, x, *others)], dim=1)

    def _loss(self, training: bool) -> Any:
        module, clamp = self.architecture.module, self.roster.training.clamp if training else None
        objective = self.objective if training else self.plain_loss

        def loss(
            params: dict[str, Tensor],
            x: Inputs,
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

    # Linear models: no gradient is traced.

    def _train_linear(self, rows: Indices, round: int, turns: Sequence[Train]) -> Indices:
        """Train some rows at once by hand; gives the number of mini-batches of each."""
        assert self._linear is not None
        long = [self.roster.steps(node, turn) for node, turn in zip(self.nodes[rows].tolist(), turns, strict=True)]
        order = np.argsort([-steps for steps in long], kind="stable")
        where = torch.as_tensor(rows[order])
        params = self.params[where]  # a copy
        computed = np.empty(len(rows), np.int64)
        nodes = self.nodes[rows[order]].tolist()

        def look(i: int, epoch: int) -> None:
            assert self.curves is not None
            self.params[where[i]] = params[i]
            self.curves.note(int(where[i]), epoch)

        if self.curves:
            for row, node, turn in zip(rows.tolist(), self.nodes[rows].tolist(), turns, strict=True):
                self._look(row, self.roster.behind(node, round, turn), self.roster.per_epoch(node))
        turns = [turns[i] for i in order]
        computed[order] = self._linear.train(params.numpy(), nodes, round, turns, look if self.curves else None)
        self.params[where] = params
        if self.optimiser_state:
            self.optimiser_state["count"][where] += torch.as_tensor(computed[order])
        return computed

    # What rules ask for.

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


class RowData:
    """One node's data, for rules: gradients at any parameters `[P]`."""

    def __init__(self, trainer: Trainer, row: int) -> None:
        self.trainer, self.row = trainer, row

    def squares(self) -> Tensor:
        assert self.trainer.squares is not None, "a rule that asks for squares must say squares = True"
        return self.trainer.squares[self.row].clone()

    def grads(self, params: Tensor, size: int = 100, batches: int | None = None, first: int = 0) -> Iterator[Tensor]:
        t = self.trainer
        own, me = t.roster.train[int(t.nodes[self.row])], replace(t.me(self.row, 0), seed=0)
        for batch in _round_trip(own, size, first)[:batches]:
            where = torch.as_tensor(batch)
            t.point(self.row, params)
            module = t.architecture.module.eval()
            outputs, targets = module(t.samples.inputs(where)), t.samples.targets(where)
            # the mean of cross-entropy as PyTorch takes it: its last bits differ from those of a mean of losses
            loss = F.cross_entropy(outputs, targets) if t.samples.classes else t.plain_loss(outputs, targets, me).mean()
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
            index, share = pad([o[step] if step < len(o) else NONE for o in own], len(own), size)
            x, y = t.samples.inputs(index), t.samples.targets(index)
            yield t._gradient(views, x, y, share.to(y.device), me, False)


def _round_trip(own: Indices, size: int, first: int) -> list[Indices]:
    """One's samples in batches, each once, beginning with batch `first` of what goes round."""
    batches = [own[start : start + size] for start in range(0, len(own), size)]
    turn = first % max(len(batches), 1)
    return batches[turn:] + batches[:turn]


def _alone(node: int, samples: int, size: int) -> ConfigError:
    """What is wrong with a mini-batch of one sample where a model normalises by mini-batches."""
    others = [b for d in range(1, size) for b in (size - d, size + d) if b > 1 and samples % b != 1]
    what = (
        f"the {samples} samples of node {node} in mini-batches of {size} leave one alone, and the model has batch norm"
    )
    return ConfigError(what, cure=f"Choose another --batch-size, such as {others[0] if others else size}.")

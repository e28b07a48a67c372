"""The simulator's scheduler: it advances every node's generator and runs equal operations as one batch."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from coterie.engines._matrices import Population
from coterie.engines._worker import AnswerTask, Arrays, Done, ExerciseTask, LessonTask, Page, packed
from coterie.engines._workers import Doing
from coterie.errors import during, noted
from coterie.job import Indices, diverged, foreign
from coterie.mail.simulated import Indexed, Mail, RowPacket
from coterie.node.bundles import Bundle
from coterie.node.merging import Exchange, HeardBundle
from coterie.protocols import Adopt, Answer, Exercise, Heard, Merge, Observe, Op, Receive, Send, Teach, Train

Asked = list[tuple[int, Any]]


class LocalSession(Population):
    """The scheduler: advances every node's generator and runs equal operations as one batch."""

    # A round.

    def round(self, number: int, evaluate: bool) -> None:
        job = self.job
        self.number, self.evaluating = number, evaluate
        for group in self.groups:
            if group.squares is not None:
                group.squares.zero_()
        graph, self._roster = job.graph(number), job.roster
        if job.network.changes:
            self._roster = replace(job.roster, degree=graph.degree)
            self.pool.all("meet", graph.degree)
        self.active = job.faults.active(graph, number) if job.faults.fails else None
        self.mail = Mail(graph, self.active)
        self._changed, self._received = np.zeros(job.roster.nodes, bool), np.zeros(job.roster.nodes, np.int64)
        if evaluate:
            self.gauges.begin(number)
        handlers: dict[type, Callable[[Asked], list[Any]]] = {
            Send: self._send,
            Train: self._train,
            Observe: self._observe,
            Answer: self._answer,
            Teach: self._teach,
            Exercise: self._exercise,
            Merge: self._merge,
            Adopt: self._adopt,
        }
        generators = {
            i: job.protocol.round(job.place(i, number, self.memory[i]), job.rule, job.merge_first)
            for i in np.flatnonzero(job.members(number)).tolist()
        }
        pending: dict[type, Asked] = defaultdict(list)
        ready: list[tuple[int, Any]] = [(i, None) for i in generators]
        while generators:
            for node, value in ready:
                try:
                    op: Op = generators[node].send(value)
                    pending[type(op)].append((node, op))
                except StopIteration:
                    del generators[node]
                except Exception as error:
                    raise noted(error, "the protocol of", [node], number) from None
            if ready := self._receive(pending, deadline=False):
                continue
            for kind, handle in handlers.items():
                if asked := sorted(pending.pop(kind, []), key=lambda a: a[0]):  # all rows are then the matrix itself
                    ready = list(zip((n for n, _ in asked), handle(asked), strict=True))
                    break
            else:
                ready = self._receive(pending, deadline=True)
        if evaluate:
            self._measure_merged()
            start = time.perf_counter()
            self.gauges.end(number)
            self._bill("evaluate_seconds", np.arange(job.roster.nodes), start)

    def _receive(self, pending: dict[type, Asked], deadline: bool) -> list[tuple[int, Heard]]:
        """Hand over what has come to those who have all they wait for.

        When nobody can move any more a deadline passes: for those who have waited longest, that is the fewest receives.
        """
        came: list[tuple[int, Heard]] = []
        asking = pending.pop(Receive, [])
        earliest = min((self._received[n] for n, _ in asking), default=0) if deadline else None
        waiting = [a for a in asking if deadline and self._received[a[0]] != earliest]
        by_tag: dict[str, Asked] = defaultdict(list)
        for node, op in asking:
            if not deadline or self._received[node] == earliest:
                by_tag[op.tag].append((node, op))
        for tag, asked in by_tag.items():
            found = self.mail.collect([n for n, _ in asked], [op.senders for _, op in asked], tag, deadline)
            for (node, op), heard in zip(asked, found, strict=True):
                if heard is None:
                    waiting.append((node, op))
                else:
                    self._received[node] += 1
                    came.append((node, heard))
        if waiting:
            pending[Receive] = waiting
        return came

    def _doing(self, operation: str, nodes: Sequence[Indices]) -> Doing:
        """What the workers are asked for in this round, and for which nodes each."""
        return Doing(operation, self.number, [some.tolist() for some in nodes])

    def _served(self, nodes: list[int]) -> list[Indices]:
        """These nodes by the worker that does their exercises."""
        who = np.array(nodes)
        return [who[self.server_of[who] == worker] for worker in range(self.pool.workers)]

    @property
    def _noting(self) -> bool:
        """Whether what training changes is to be noted in this round."""
        return self.evaluating and "steps" in self.job.measures

    def _train(self, asked: Asked) -> list[None]:
        roster = self.job.roster
        for g, _, rows in self._by_group([n for n, _ in asked]):
            self._protect(g, rows)
            shares = self._deal(g, rows)
            for share, (seconds, batches, finite) in zip(
                shares,
                self.pool.each(
                    "train",
                    [(g, share, self.number, self._noting) for share in shares],
                    self._doing("training", [roster.groups[g][share] for share in shares]),
                ),
                strict=True,
            ):
                self.ledger.add("train_seconds", roster.groups[g][share], seconds)
                self.ledger.add("batches", roster.groups[g][share], batches)
                if not finite.all():
                    raise diverged(int(roster.groups[g][share[~finite]].min()), self.number)
            self._trained(g, rows)
        return [None] * len(asked)

    def _trained(self, g: int, rows: Indices) -> None:
        nodes = self.job.roster.groups[g][rows]
        self._changed[nodes] = True
        if self.evaluating:
            self._measure(g, rows)

    def _observe(self, asked: Asked) -> list[None]:
        for g, _, rows in self._by_group([n for n, _ in asked]):
            self._protect(g, rows)
            start = time.perf_counter()
            shares = self._deal(g, rows)
            whose = [self.job.roster.groups[g][share] for share in shares]
            doing = self._doing("observing the data of", whose)
            self.pool.each("observe", [(g, share, self.number) for share in shares], doing)
            self._bill("train_seconds", self.job.roster.groups[g][rows], start)
        return [None] * len(asked)

    # Messages.

    def _send(self, asked: Asked) -> list[None]:
        fresh: dict[tuple[bool, str], Asked] = defaultdict(list)
        forwarded: dict[str, Asked] = defaultdict(list)
        for node, op in asked:
            if not len(op.to):
                continue
            if op.packet is None:
                fresh[op.model, op.tag].append((node, op))
            else:
                forwarded[op.tag].append((node, op))
        for (model, tag), ops in fresh.items():
            for g, positions, rows in self._by_group([n for n, _ in ops]):
                number, message_rows = -1, rows
                if (made := self._message(g, rows, model)) is not None:
                    bundle, message_rows = made
                    number = self.mail.add(bundle)
                to = [ops[p][1].to for p in positions]
                self._deliver(self.job.roster.groups[g][rows], to, tag, np.full(len(rows), number), message_rows)
        for tag, ops in forwarded.items():
            bundles, rows = (np.array([getattr(op.packet, k) for _, op in ops]) for k in ("bundle", "row"))
            self._deliver(np.array([n for n, _ in ops]), [op.to for _, op in ops], tag, bundles, rows)
        return [None] * len(asked)

    def _deliver(self, nodes: Indices, to: list[Indices], tag: str, bundle: Indices, row: Indices) -> None:
        lengths = [len(t) for t in to]
        nodes, bundle, row = (np.repeat(each, lengths) for each in (nodes, bundle, row))
        source, target = self.mail.put(nodes, np.concatenate(to), tag, bundle, row)
        if not len(source):
            return
        numbers, which = np.unique(bundle[~self.mail.void[-len(bundle) :]], return_inverse=True)
        sizes = np.array([self._bytes(self.mail.bundles[b]) for b in numbers])[which]
        self.ledger.add("sent_bytes", source, sizes)
        self.ledger.add("received_bytes", target, sizes)
        self.traffic.add(source, target, sizes)

    def _message(self, g: int, rows: Indices, model: bool) -> tuple[Bundle, Indices] | None:
        """What these rows say: the live tensors if everyone speaks (nothing is copied), copies otherwise."""
        group, everyone = self.groups[g], len(rows) == len(self.groups[g].matrix)
        width = self.layouts[g].size
        params = group.matrix[:, :width]
        own = params if everyone else params[torch.as_tensor(rows)]
        state = group.state if everyone else {k: s[torch.as_tensor(rows)] for k, s in group.state.items()}
        me = self._roster.me(self.job.roster.groups[g][rows], self.number, self.layouts[g])
        with during("sending from", self.job.roster.groups[g][rows].tolist(), self.number):
            fields: dict[str, Any] = {"w": own} if model else dict(self.job.rule.send(me, own, state))
        if not fields:
            return None
        refused = _not_finite([f for f in fields.values() if f is not params])
        live = {id(own): "params"} if everyone else {}
        if self.job.rule.span == "coordinate":
            live |= {id(s): f"state:{k}" for k, s in state.items()} if everyone else {}
        else:  # row by row, some change their memory while others still read it
            fields = {name: f.clone() if any(f is s for s in state.values()) else f for name, f in fields.items()}
        fields = {name: live.get(id(f), f) for name, f in fields.items()}
        if group.matrix.shape[1] > width:
            fields["buffers"] = "buffers" if everyone else group.matrix[torch.as_tensor(rows), width:]
        return Bundle(g, fields, me.size.cpu().numpy(), self.number, refused), np.arange(len(rows))

    def _field(self, bundle: Bundle, name: str) -> Tensor:
        field, group, width = bundle.fields[name], self.groups[bundle.group], self.layouts[bundle.group].size
        if isinstance(field, Tensor):
            return field
        if field == "params":
            return group.matrix[:, :width]
        return group.matrix[:, width:] if field == "buffers" else group.state[field.removeprefix("state:")]

    def _bytes(self, bundle: Bundle) -> int:
        return sum(self._field(bundle, f).shape[1] * self._field(bundle, f).element_size() for f in bundle.fields)

    def _protect(self, g: int, rows: Indices, using: Indices | None = None) -> None:
        """Before these rows change: copy messages that still show them live and that others have not used yet."""
        for number, bundle in enumerate(self.mail.bundles):
            if bundle.group != g or not bundle.aliases:
                continue
            still = self.mail.open & (self.mail.bundle == number) & np.isin(self.mail.row, rows)
            if using is not None:
                still[using] = False
            if still.any():
                bundle.fields = {name: self._field(bundle, name).clone() for name in bundle.fields}

    # Merging.

    def _merge(self, asked: Asked) -> list[None]:
        start = time.perf_counter()
        used = np.concatenate([h.mails for _, op in asked for h in (op.heard, op.answers) if h is not None])
        for g, positions, rows in self._by_group([n for n, _ in asked]):
            self._protect(g, rows, used)
            ops = [asked[p][1] for p in positions]
            heard = self._joined(self._heard(g, [op.heard for op in ops]))
            answers = self._heard(g, [op.answers for op in ops]) if ops[0].answers is not None else []
            reached = np.flatnonzero(sum((np.diff(h.arcs.indptr) for h in heard), np.zeros(len(rows), np.int64)))
            if not len(reached):
                continue
            shares = self.job.roster.mixing == "metropolis"  # what is not heard is one's own
            own = 1.0 - np.sum([d.arcs.sum(1, dtype=np.float64) for d in heard], axis=0) if shares else None
            exchange = Exchange(rows, (*heard, *answers), self.number, own).take(reached)
            nodes = self.job.roster.groups[g][exchange.rows]
            doing = self._doing("merging at", [nodes] * self.pool.workers)
            self.pool.all("merge", g, exchange, doing=doing)
            width = self.layouts[g].size
            scalars = any(s.shape[1] != width for s in self.groups[g].state.values())
            if self.job.rule.span == "model" or scalars or self.groups[g].matrix.shape[1] > width:
                self.pool.all("settle", g, exchange, doing=doing)
            self._changed[nodes] = True
        self.mail.open[used] = False
        self._bill("merge_seconds", np.array([n for n, _ in asked]), start)
        return [None] * len(asked)

    def _heard(self, g: int, heard: list[Indexed]) -> list[HeardBundle]:
        """What these rows heard, one sparse matrix for each bundle of their own architecture."""
        mails = np.concatenate([h.mails for h in heard])
        receiver = np.repeat(np.arange(len(heard)), [len(h) for h in heard])
        found = []
        for number in np.unique(self.mail.bundle[mails]):
            bundle = self.mail.bundles[number]
            if bundle.group == g:
                mine = self.mail.bundle[mails] == number
                weights = self.mail.weight[mails[mine]].astype(np.float32)
                where = (receiver[mine], self.mail.row[mails[mine]])
                arcs = sp.csr_array((weights, where), shape=(len(heard), len(bundle.sizes)))
                found.append(HeardBundle(arcs, bundle))
        return found

    def _joined(self, heard: list[HeardBundle]) -> list[HeardBundle]:
        """One bundle of what was sent in several, because some nodes had less to wait for than others."""
        if len(heard) < 2:
            return heard
        bundles = [h.bundle for h in heard]
        fields = {name: torch.cat([self._field(b, name) for b in bundles]) for name in bundles[0].fields}
        sizes = np.concatenate([b.sizes for b in bundles])
        arcs = sp.csr_array(sp.hstack([h.arcs for h in heard], format="csr"))
        return [HeardBundle(arcs, Bundle(bundles[0].group, fields, sizes, self.number, np.empty(0, np.int64)))]

    def _adopt(self, asked: Asked) -> list[None]:
        for node, op in asked:
            g, row, bundle = self.group_of[node], self.row_of[node], self.mail.bundles[op.packet.bundle]
            if bundle.group != g:
                raise foreign(node)
            self._protect(g, np.array([row]))
            width = self.layouts[g].size
            self.groups[g].matrix[row, :width] = self._field(bundle, "w")[op.packet.row]
            if "buffers" in bundle.fields:
                self.groups[g].matrix[row, width:] = self._field(bundle, "buffers")[op.packet.row]
            self._changed[node] = True
        return [None] * len(asked)

    def _answer(self, asked: Asked) -> list[dict[int, RowPacket]]:
        """One message for each neighbour heard, the links dealt out to the workers.

        Computation and memory grow with the number of links: for CFA-GE by a gradient and a model's size each.
        """
        start = time.perf_counter()
        mails = np.concatenate([op.heard.mails for _, op in asked])
        nodes = np.repeat(np.array([n for n, _ in asked]), [len(op.heard) for _, op in asked])
        packets: dict[int, dict[int, RowPacket]] = {n: {} for n, _ in asked}
        for number in np.unique(self.mail.bundle[mails]):
            bundle = self.mail.bundles[number]
            alike = self.group_of[nodes] == bundle.group  # of another architecture there is nothing to say
            shares = np.array_split(np.flatnonzero(alike & (self.mail.bundle[mails] == number)), self.pool.workers)
            tasks = [AnswerTask(self.row_of[nodes[s]], self.mail.row[mails[s]], bundle) for s in shares]
            doing = self._doing("answering at", [nodes[s] for s in shares])
            said = self.pool.each("answer", [(bundle.group, task, self.number) for task in tasks], doing)
            for share, fields in zip(shares, said, strict=True):
                made = -1
                if fields:
                    own, refused = self.job.roster.sizes(nodes[share]).numpy(), _not_finite([*fields.values()])
                    made = self.mail.add(Bundle(bundle.group, fields, own, self.number, refused))
                for row, (node, mail) in enumerate(zip(nodes[share].tolist(), mails[share], strict=True)):
                    packets[node][int(self.mail.source[mail])] = RowPacket(made, row, node)
        self._bill("train_seconds", np.array(list(packets)), start)
        return list(packets.values())

    def _teach(self, asked: Asked) -> list[dict[int, RowPacket]]:
        pages: dict[tuple[int, int], Page] = {}
        tasks: list[list[LessonTask]] = [[] for _ in range(self.pool.workers)]
        for node, op in asked:
            heard = {}
            for sender, packet in op.heard.items():
                heard[sender] = self.mail.bundles[packet.bundle].group, self._page(packet, pages)
            own = int(self.group_of[node]), int(self.row_of[node])
            tasks[self.server_of[node]].append(LessonTask(*own, op.lesson, heard))
        doing = self._doing("the lesson of", self._served([n for n, _ in asked]))
        done = [iter(d) for d in self.pool.each("teach", [(t, self.number) for t in tasks], doing)]
        return [self._taught(node, op, *next(done[self.server_of[node]])) for node, op in asked]

    def _taught(self, node: int, op: Teach, taught: dict[int, Arrays], seconds: float) -> dict[int, RowPacket]:
        self.ledger.add("train_seconds", np.array([node]), seconds)
        packets = {}
        for pupil, arrays in taught.items():
            fields = {name: torch.from_numpy(a).to(self.device).unsqueeze(0) for name, a in arrays.items()}
            size = self.job.roster.sizes(np.array([pupil])).numpy()
            refused = _not_finite(list(fields.values()))
            number = self.mail.add(Bundle(int(self.group_of[pupil]), fields, size, self.number, refused))
            packets[pupil] = RowPacket(number, 0, node)
        return packets

    def _exercise(self, asked: Asked) -> list[dict[int, RowPacket]]:
        trained = [n for n, op in asked if op.trains]
        training = self._by_group(trained) if trained else []
        for g, _, rows in training:
            self._protect(g, rows)
        pages: dict[tuple[int, int], Page] = {}  # one for all who heard it: it travels once
        tasks: list[list[ExerciseTask]] = [[] for _ in range(self.pool.workers)]
        for node, op in asked:
            heard = {s: self._page(op.heard[s], pages) for s in op.heard or ()}
            task = ExerciseTask(int(self.group_of[node]), int(self.row_of[node]), op.name, heard, op.to.tolist())
            tasks[self.server_of[node]].append(task)
        doing = self._doing("an exercise of", self._served([n for n, _ in asked]))
        done = [iter(d) for d in self.pool.each("exercise", [(t, self.number, self._noting) for t in tasks], doing)]
        results = [self._exercised(node, op, next(done[self.server_of[node]])) for node, op in asked]
        for g, _, rows in training:
            self._trained(g, rows)
        return results

    def _page(self, packet: RowPacket, pages: dict[tuple[int, int], Page]) -> Page:
        place = packet.bundle, packet.row
        if place not in pages:
            bundle = self.mail.bundles[packet.bundle]
            fields = {name: self._field(bundle, name)[packet.row] for name in bundle.fields}
            if bundle.aliases:  # an exercise may keep what it heard
                fields = {name: field.clone() for name, field in fields.items()}
            pages[place] = packed(fields), bundle.sizes[packet.row].item(), bundle.round
        return pages[place]

    def _exercised(self, node: int, op: Exercise, done: Done) -> dict[int, RowPacket]:
        self.ledger.add("train_seconds", np.array([node]), done.seconds)
        if op.trains:
            self.ledger.add("batches", np.array([node]), done.batches)
            if not done.finite:
                raise diverged(node, self.number)
        packets = dict.fromkeys(op.to.tolist(), RowPacket(-1, 0, node))
        for arrays, to in done.said:
            fields = {name: torch.from_numpy(array).unsqueeze(0) for name, array in arrays.items()}
            size = self.job.roster.sizes(np.array([node])).numpy()
            bundle = Bundle(int(self.group_of[node]), fields, size, self.number, _not_finite(list(fields.values())))
            packets |= dict.fromkeys(to, RowPacket(self.mail.add(bundle), 0, node))
        return packets


def _not_finite(fields: list[Tensor]) -> Indices:
    """Rows in which some number is not finite."""
    bad = [torch.nonzero(~f.sum(1).isfinite()).flatten().cpu().numpy() for f in fields]
    return np.unique(np.concatenate([*bad, np.empty(0, np.int64)])).astype(np.int64)

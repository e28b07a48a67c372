"""The simulator's scheduler: it advances every node's generator, runs equal operations as one batch, and bills them."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coterie.engines._dealing import Dealer
from coterie.engines._matrices import Models
from coterie.engines._measuring import Measuring
from coterie.engines._worker import AnswerTask, Done, ExerciseTask, LessonTask, PackedFields, PackedMessage
from coterie.engines._workers import Doing, Workers
from coterie.errors import noted
from coterie.job import PLAIN, Indices, Job, Ledger, diverged, foreign
from coterie.mail.simulated import Indexed, Mail, RowPacket
from coterie.mail.traffic import Traffic
from coterie.node.merging import Exchange, HeardBundle
from coterie.protocols import Adopt, Answer, Exercise, Heard, Merge, Observe, Op, Receive, Send, Teach, Train

Asked = list[tuple[int, Any]]


class Scheduler:
    """Carries out the rounds of one job: who does what together, and what it costs whom."""

    def __init__(self, job: Job, models: Models, workers: Workers, dealer: Dealer) -> None:
        self.job, self.models, self.workers, self.dealer = job, models, workers, dealer
        self.ledger, self.traffic = Ledger(job.roster.nodes, job.roster.metrics), Traffic(job.roster.nodes)
        self.measuring = Measuring(job, models, workers, dealer, self.ledger)
        self.counters: list[dict[str, int]] = [{} for _ in range(job.roster.nodes)]
        """The protocol's integers at each node, kept from round to round."""
        self._judged = np.zeros(job.roster.nodes, bool)
        """Whose model was judged after its training in this round."""
        self.number, self.evaluating = 0, True
        """The round at work, 0 before the first, and whether it is measured."""

    def evaluate(self) -> None:
        """Measure everyone's model as it is before the first round."""
        self.number = 0
        self._measure(np.flatnonzero(self.job.members(0)))

    # A round.

    def round(self, number: int, evaluate: bool, active: NDArray[np.bool_] | None) -> None:
        """One round of the protocol, over the arcs of its graph that are `active` (None: all)."""
        job, graph = self.job, self.job.graph(number)
        self.number, self.evaluating, self._judged = number, evaluate, np.zeros(job.roster.nodes, bool)
        self.models.begin_round(number, graph.degree if job.network.changes else None)
        if job.network.changes:
            self.workers.all("meet", graph.degree)
        self.mail = Mail(graph, active)
        self._received = np.zeros(job.roster.nodes, np.int64)
        if evaluate:
            self.measuring.begin(number)
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
        here = np.flatnonzero(job.members(number)).tolist()
        self.places = [job.place(i, number, self.counters[i]) for i in here]
        generators = {place.node: job.protocol.round(place, job.rule, job.merge_first) for place in self.places}
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
            self._measure_end()

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

    def _bill(self, what: str, nodes: Indices, start: float) -> None:
        """Divide the processor time since `start` among nodes."""
        self.ledger.add(what, nodes, (time.perf_counter() - start) * self.workers.count / max(len(nodes), 1))

    def _protect(self, g: int, rows: Indices, using: Indices | None = None) -> None:
        """Before these rows change: keep what they said for whoever has not read it yet, those who do now aside."""
        self.models.protect(self.mail.showing(g, rows, using))

    # Measuring.

    def _measure(self, nodes: Indices, placed: Indices | None = None) -> None:
        """Judge the models of these nodes, and take the distances of the same, or of those who are to be `placed`."""
        start = time.perf_counter()
        self.measuring.judge(nodes)
        self.measuring.place(nodes if placed is None else placed, self.number)
        self.ledger.changed[nodes] = False
        self._bill("evaluate_seconds", nodes, start)

    def _measure_end(self) -> None:
        """Judge once more what was merged, and for the first time what was not judged after its training."""
        start, here = time.perf_counter(), self.job.members(self.number)
        left = np.flatnonzero(self.ledger.changed & here)
        last = self.job.protocol.judged == "last"
        fresh = left if last else left[~self._judged[left]]
        if len(fresh):  # who has not moved may be further from those who have
            self._measure(fresh, np.flatnonzero(here) if last else None)
        if len(merged := np.setdiff1d(left, fresh)):
            self.measuring.merged(merged)
            self._bill("evaluate_seconds", merged, start)
        if any(lesson.keeps for lesson in self.job.protocol.lessons) and len(left):
            self.measuring.peaks(left)
        start = time.perf_counter()
        self.measuring.end(self.number)
        self._bill("evaluate_seconds", np.arange(self.job.roster.nodes), start)

    # Training.

    @property
    def _noting(self) -> bool:
        """Whether what training changes is to be noted in this round."""
        return self.evaluating and "steps" in self.job.measures

    def _train(self, asked: Asked) -> list[None]:
        who, turns = [n for n, _ in asked], {n: op for n, op in asked if op != PLAIN}
        self._protect_all(who)
        dealt = self.dealer.to_train(who, turns)
        nodes = [self.dealer.nodes(parts) for parts in dealt]
        about = self.number, self.job.measures if self.evaluating else (), turns
        done = self.workers.each("train", [(parts, *about) for parts in dealt], self._doing(Train.doing, nodes))
        for some, (seconds, batches, finite, curves) in ((n, d) for n, d in zip(nodes, done, strict=True) if len(n)):
            self.ledger.draw(curves)
            self.ledger.add("train_seconds", some, seconds)
            self.ledger.add("batches", some, batches)
            self.ledger.add("flops", some, self.dealer.flops(some, self.number, batches, turns))
            if not finite.all():
                raise diverged(int(some[~finite].min()), self.number)
        self._trained(np.array(who))
        return [None] * len(asked)

    def _protect_all(self, nodes: list[int]) -> None:
        for g, _, rows in self.dealer.by_group(nodes):
            self._protect(g, rows)

    def _trained(self, nodes: Indices) -> None:
        self.ledger.changed[nodes] = True
        if self.evaluating and self.job.protocol.judged == "trained":
            self._judged[nodes] = True
            self._measure(nodes)

    def _observe(self, asked: Asked) -> list[None]:
        start, who = time.perf_counter(), [n for n, _ in asked]
        self._protect_all(who)
        dealt = self.dealer.to_train(who, {})
        doing = self._doing(Observe.doing, [self.dealer.nodes(parts) for parts in dealt])
        self.workers.each("observe", [(parts, self.number) for parts in dealt], doing)
        self._bill("train_seconds", np.array(who), start)
        return [None] * len(asked)

    # Messages.

    def _send(self, asked: Asked) -> list[None]:
        fresh: dict[tuple[bool, str], Asked] = defaultdict(list)
        forwarded: dict[str, Asked] = defaultdict(list)
        told: dict[str, Asked] = defaultdict(list)
        for node, op in asked:
            if not len(op.to):
                continue
            if op.numbers is not None:
                told[op.tag].append((node, op))
            elif op.packet is None:
                fresh[op.model, op.tag].append((node, op))
            else:
                forwarded[op.tag].append((node, op))
        for (model, tag), ops in fresh.items():
            for g, positions, rows in self.dealer.by_group([n for n, _ in ops]):
                bundle = self.models.say(g, rows, model)
                number = -1 if bundle is None else self.mail.add(bundle)
                nodes, to = self.job.roster.groups[g][rows], [ops[p][1].to for p in positions]
                self._deliver(nodes, to, tag, np.full(len(rows), number), np.arange(len(rows)))
        for tag, ops in told.items():
            said = self.mail.tell([op.numbers for _, op in ops], self.number)
            self._deliver(np.array([n for n, _ in ops]), [op.to for _, op in ops], tag, said, np.arange(len(ops)))
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
        sizes = np.array([self.models.bytes(self.mail.bundles[b]) for b in numbers])[which]
        self.ledger.add("sent_bytes", source, sizes)
        self.ledger.add("received_bytes", target, sizes)
        self.traffic.add(source, target, sizes)

    # Merging.

    def _merge(self, asked: Asked) -> list[None]:
        start = time.perf_counter()
        used = np.concatenate([h.mails for _, op in asked for h in (op.heard, op.answers) if h is not None])
        for g, positions, rows in self.dealer.by_group([n for n, _ in asked]):
            self._protect(g, rows, used)
            ops = [asked[p][1] for p in positions]
            heard = self._joined(self._heard(g, [op.heard for op in ops]))
            answers = self._heard(g, [op.answers for op in ops]) if ops[0].answers is not None else []
            reached = np.flatnonzero(sum((np.diff(h.arcs.indptr) for h in heard), np.zeros(len(rows), np.int64)))
            if not len(reached):
                continue
            weight = np.sum([h.arcs.sum(1, dtype=np.float64) for h in heard], axis=0)
            own = self.job.roster.beside(self.job.roster.groups[g][rows], weight)
            exchange = Exchange(rows, (*heard, *answers), self.number, own).take(reached)
            nodes = self.job.roster.groups[g][exchange.rows]
            doing = self._doing(Merge.doing, [nodes] * self.workers.count)
            self.workers.all("merge", g, exchange, doing=doing)
            if self.models.settles(g):
                self.workers.all("settle", g, exchange, doing=doing)
            self.ledger.changed[nodes] = True
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
        arcs = sp.csr_array(sp.hstack([h.arcs for h in heard], format="csr"))
        return [HeardBundle(arcs, self.models.joined([h.bundle for h in heard]))]

    def _adopt(self, asked: Asked) -> list[None]:
        for node, op in asked:
            g, row, bundle = *self._row(node), self.mail.bundles[op.packet.bundle]
            if bundle.group != g:
                raise foreign(node)
            self._protect(g, np.array([row]))
            self.models.adopt(g, row, bundle, op.packet.row)
            self.ledger.changed[node] = True
        self._bring_home(asked)
        return [None] * len(asked)

    def _bring_home(self, asked: Asked) -> None:
        """Let lessons keep what they want of the models that have come home from them."""
        home: dict[tuple[str, int], list[int]] = defaultdict(list)
        for node, op in asked:
            if op.turn is not None and getattr(self.job.protocol, op.lesson).keeps:
                home[op.lesson, op.turn].append(node)
        for (lesson, turn), nodes in home.items():
            served = self.dealer.served(nodes)
            doing = self._doing("coming home at", served)
            self.workers.each("home", [(self.dealer.parts(some), lesson, turn) for some in served], doing)

    # Answers, lessons and exercises.

    def _row(self, node: int) -> tuple[int, int]:
        """A node's architecture, and its row there."""
        return int(self.dealer.group_of[node]), int(self.dealer.row_of[node])

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
            alike = self.dealer.group_of[nodes] == bundle.group  # of another architecture there is nothing to say
            where = np.flatnonzero(alike & (self.mail.bundle[mails] == number))
            dealt = [where[some] for some in self.dealer.to_answer(nodes[where])]
            tasks = [AnswerTask(self.dealer.row_of[nodes[s]], self.mail.row[mails[s]], bundle) for s in dealt]
            doing = self._doing(Answer.doing, [nodes[s] for s in dealt])
            said = self.workers.each("answer", [(bundle.group, task, self.number) for task in tasks], doing)
            for some, fields in zip(dealt, said, strict=True):
                made = self.mail.add(self.models.bundle(bundle.group, nodes[some], fields)) if fields else -1
                for row, (node, mail) in enumerate(zip(nodes[some].tolist(), mails[some], strict=True)):
                    packets[node][int(self.mail.source[mail])] = RowPacket(made, row, node)
        self._bill("train_seconds", np.array(list(packets)), start)
        return list(packets.values())

    def _teach(self, asked: Asked) -> list[dict[int, RowPacket]]:
        packed: dict[tuple[int, int], PackedMessage] = {}
        tasks: list[list[LessonTask]] = [[] for _ in range(self.workers.count)]
        for node, op in asked:
            heard = {}
            for sender, packet in op.heard.items():
                heard[sender] = self.mail.bundles[packet.bundle].group, self._packed(packet, packed)
            tasks[self.dealer.server_of[node]].append(LessonTask(*self._row(node), op.lesson, op.turn, heard))
        doing = self._doing(Teach.doing, self.dealer.served([n for n, _ in asked]))
        threads = max(1, self.workers.count // len(asked))
        done = [iter(d) for d in self.workers.each("teach", [(t, self.number, threads) for t in tasks], doing)]
        return [self._taught(node, op, *next(done[self.dealer.server_of[node]])) for node, op in asked]

    def _taught(
        self, node: int, op: Teach, taught: dict[int, PackedFields], seconds: float, flops: int
    ) -> dict[int, RowPacket]:
        self.ledger.add("train_seconds", np.array([node]), seconds)
        self.ledger.add("flops", np.array([node]), flops)
        return {pupil: self._packet(node, pupil, arrays) for pupil, arrays in taught.items()}

    def _packet(self, node: int, whose: int, arrays: PackedFields) -> RowPacket:
        """What a node says alone; of its own, or in the name of a node that it taught."""
        bundle = self.models.bundle(self._row(whose)[0], np.array([whose]), arrays)
        return RowPacket(self.mail.add(bundle), 0, node)

    def _exercise(self, asked: Asked) -> list[dict[int, RowPacket]]:
        training = [n for n, op in asked if op.trains]
        self._protect_all(training)
        packed: dict[tuple[int, int], PackedMessage] = {}  # one for all who heard it: it travels once
        tasks: list[list[ExerciseTask]] = [[] for _ in range(self.workers.count)]
        for node, op in asked:
            heard = {s: self._packed(op.heard[s], packed) for s in op.heard or ()}
            task = ExerciseTask(*self._row(node), op.name, heard, op.to.tolist(), op.trains)
            tasks[self.dealer.server_of[node]].append(task)
        doing = self._doing(Exercise.doing, self.dealer.served([n for n, _ in asked]))
        done = [iter(d) for d in self.workers.each("exercise", [(t, self.number, self._noting) for t in tasks], doing)]
        results = [self._exercised(node, op, next(done[self.dealer.server_of[node]])) for node, op in asked]
        if training:
            self._trained(np.array(training))
        return results

    def _packed(self, packet: RowPacket, packed: dict[tuple[int, int], PackedMessage]) -> PackedMessage:
        place = packet.bundle, packet.row
        if place not in packed:
            packed[place] = self.models.pack(self.mail.bundles[packet.bundle], packet.row)
        return packed[place]

    def _exercised(self, node: int, op: Exercise, done: Done) -> dict[int, RowPacket]:
        self.ledger.add("train_seconds", np.array([node]), done.seconds)
        if op.trains:
            self.ledger.add("batches", np.array([node]), done.batches)
            self.ledger.add("flops", np.array([node]), done.flops)
            if not done.finite:
                raise diverged(node, self.number)
        packets = dict.fromkeys(op.to.tolist(), RowPacket(-1, 0, node))
        for arrays, to in done.said:
            packets |= dict.fromkeys(to, self._packet(node, node, arrays))
        return packets

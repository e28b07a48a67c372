"""A peer: one node alone with its own model. What it hears is added up as it comes; how it comes is the transport's."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from coterie.contract import Fields, Message, finite
from coterie.errors import during, noted
from coterie.failpoints import reach
from coterie.job import PLAIN, Indices, Job, Ledger, diverged, foreign
from coterie.lessons import PEAK, Homecoming, Lesson
from coterie.metrics import Occasion
from coterie.node import ruling
from coterie.node.buffers import BufferPool
from coterie.node.cost import TRAINING
from coterie.node.evaluation import Curves, lent, score
from coterie.node.harm import Bearing, sound, spoilt
from coterie.node.measures import Steps, layers, spread
from coterie.node.placing import at_work, moved, placed
from coterie.node.snapshot import KeptRows, Snapshot
from coterie.node.starting import trainers
from coterie.node.student import RowStudent, Schoolhouse, exercise
from coterie.node.sums import Packet, StreamInbox, Summed
from coterie.node.training import RowData, Trainer
from coterie.protocols import Adopt, Answer, Exercise, Heard, Merge, Observe, Op, Receive, Send, Teach, Train

SOME = 16
"""Samples to which a neighbour's model must have an answer before it is taken."""


class Transport(Protocol):
    """What carries packets between peers."""

    def send(self, sender: int, to: list[int], tag: str, packet: Packet | None) -> None:
        """Send a packet on its way; None: none will come. Its tensors may be the live ones of a node: copy them."""
        ...

    async def receive(self, node: int, senders: list[int], tag: str) -> Heard:
        """What came from these senders, once all is there or the deadline has passed."""
        ...


class Node(Bearing):
    """One node: its model, its rule's memory, and how it does what the protocol says."""

    def __init__(self, job: Job, node: int, trainer: Trainer, row: int, ledger: Ledger) -> None:
        self.job, self.node, self.trainer, self.row, self.ledger = job, node, trainer, row, ledger
        self.state = job.rule.init(trainer.me(row, 0), self.params.clone())
        self.counters: dict[str, int] = {}
        """The protocol's integers at this node, kept from round to round."""
        self.steps = Steps.beside(self.params) if "steps" in job.measures else None
        self.notes: dict[str, Tensor] = {}
        self.pool = BufferPool()
        """Where the sums get their memory; a node that is alone in its process keeps it from round to round."""

    @property
    def device(self) -> str:
        """Where it computes; its model rests in main memory."""
        return self.job.roster.device

    @property
    def params(self) -> Tensor:
        return self.trainer.params[self.row]

    async def round(self, number: int, transport: Transport, reachable: Iterable[int], evaluate: bool) -> None:
        """Drive the protocol's generator for one round; with `evaluate`, the model is scored after its training."""
        job, self.judged = self.job, False
        self.number, self.transport, self.reachable, self.evaluating = number, transport, set(reachable), evaluate
        if self.steps and evaluate:
            self.steps.begin(self.params)
        if job.network.changes:
            self.trainer.meet(job.graph(number).degree)
        self.place = job.place(self.node, number, self.counters)
        generator = job.protocol.round(self.place, job.rule, job.merge_first)
        if self.trainer.squares is not None:
            self.trainer.squares[self.row] = 0
        value = None
        while True:
            try:
                op: Op = generator.send(value)
            except StopIteration:
                return
            except Exception as error:
                raise noted(error, "the protocol of", [self.node], number) from None
            with during(op.doing, [self.node], number):
                reach("before operation", type(op).__name__)
                value = await self._perform(op)
                reach("after operation", type(op).__name__)

    async def _perform(self, op: Op) -> Any:
        match op:
            case Train():
                await self.work(lambda: self._train(op))
            case Observe():
                await self.work(self._observe)
            case Send():
                await self.work(lambda: self._send(op))
            case Receive():
                return await self.transport.receive(self.node, op.senders.tolist(), op.tag)
            case Answer():
                audience = self.place.audience.tolist()
                return await self.work(lambda: {to: self._answer(op.heard.get(to)) for to in audience})
            case Merge():
                await self.work(lambda: self._merge(op))
            case Adopt():
                await self.work(lambda: self._adopt(op))
            case Teach():
                return await self.work(lambda: self._teach(op))
            case Exercise():
                return await self.work(lambda: self._exercise(op))
        return None

    async def work(self, what: Callable[[], Any]) -> Any:
        """Compute something; peers that have a network to serve meanwhile do it elsewhere."""
        return what()

    def _observe(self) -> None:
        start = time.perf_counter()
        with at_work(self.trainer):
            data, me = RowData(self.trainer, self.row), self.trainer.me(self.row, self.number)
            known = moved(self.state, self.device)
            state = moved(self.job.rule.observe(me, self.params.clone(), known, data))
        if self.blame is None or not spoilt(self.state, state):
            self.state = state
        self.ledger.add("train_seconds", np.array([self.node]), time.perf_counter() - start)

    def _train(self, op: Train) -> None:
        steps = self.steps if self.evaluating else None
        if steps:
            steps.before_training(self.params)
        start = time.perf_counter()
        watched = self.evaluating and "epochs" in self.job.measures
        curves = self.trainer.curves = Curves(self.trainer) if watched else None
        batches = self.learn(lambda: self._train_row(op))
        self.trainer.curves = None
        self.ledger.draw(curves.points if curves else {})
        self.ledger.add("train_seconds", np.array([self.node]), time.perf_counter() - start)
        if steps:
            steps.after_training(self.params)
        once = self.school.flops(self.trainer.architecture.signature, self.job.samples)
        self._trained(batches, TRAINING * once * self.job.roster.seen(self.node, self.number, batches, op))

    def _train_row(self, op: Train = PLAIN) -> int:
        with at_work(self.trainer):
            return self.trainer.train_row(self.row, self.number, turn=op)

    def _trained(self, batches: int, flops: int) -> None:
        self.ledger.add("batches", np.array([self.node]), batches)
        self.ledger.add("flops", np.array([self.node]), flops)
        if not finite(self.params):
            raise diverged(self.node, self.number)
        self.ledger.changed[self.node] = True
        if self.evaluating and self.job.protocol.judged == "trained":
            self.score()

    def _exercise(self, op: Exercise) -> dict[int, Packet]:
        start, own = time.perf_counter(), self.trainer.architecture.signature
        heard = {sender: packet.message for sender, packet in (op.heard or {}).items()}
        steps = self.steps if self.evaluating else None
        known = {sender: placed(message, self.device) for sender, message in heard.items()}
        student = RowStudent(self.trainer, self.row, self.number, known, self.notes, op.to.tolist(), self.school, steps)
        size = self.trainer.me(self.row, 0).size
        packets = dict.fromkeys(student.to, Packet(self.node, own, Message({}, size, self.number)))
        before = self.mark(heard)
        try:
            with at_work(self.trainer, self.notes):
                said = exercise(self.job.protocol, op.name, student)
            self.check(before, trained=op.trains)
        except Exception as error:
            if before is not None and op.trains:
                before.senders |= self.job.protocol.forget(before.notes, self.node)
            self.undo(before, error)
            said = []
            student.batches = self.learn(self._train_row) if op.trains else 0
        for fields, to in said:
            packets |= dict.fromkeys(to, Packet(self.node, own, Message(moved(fields), size, self.number)))
        self.ledger.add("train_seconds", np.array([self.node]), time.perf_counter() - start)
        if op.trains:
            self._trained(student.batches, student.flops)
        return packets

    def _message(self, model: bool = False) -> Message:
        me = self.trainer.me(self.row, self.number)
        fields = {"w": self.params} if model else dict(self.job.rule.send(me, self.params, self.state))
        if model and self.job.protocol.informed:
            fields["labels"] = me.labels
        if fields and self.trainer.buffers.shape[1]:
            fields["buffers"] = self.trainer.buffers[self.row]
        return Message(fields, me.size, self.number)

    def _send(self, op: Send) -> None:
        architecture = self.trainer.architecture.signature
        if op.numbers is not None:
            about = self.trainer.me(self.row, 0).size, self.number, op.numbers
            packet = Packet(self.node, architecture, Message({}, *about))
        elif op.packet is not None:
            packet = Packet(self.node, op.packet.architecture, op.packet.message)
        else:
            packet = Packet(self.node, architecture, self._message(op.model))
        reached = [to for to in op.to.tolist() if to in self.reachable]
        self.transport.send(self.node, reached, op.tag, packet if packet.sound else None)
        self.transport.send(self.node, [to for to in op.to.tolist() if to not in self.reachable], op.tag, None)

    def _answer(self, theirs: Packet | None) -> Packet:
        """What the rule says to a neighbour; nothing to one unheard or of another kind, lest it waits for an answer."""
        start = time.perf_counter()
        own = self.trainer.architecture.signature
        fields: Fields = {}
        try:
            if theirs is not None and theirs.architecture == own:
                with at_work(self.trainer):
                    data, me = RowData(self.trainer, self.row), self.trainer.me(self.row, self.number)
                    fields = moved(self.job.rule.answer(me, placed(theirs.message, self.device), data))
        except Exception as error:
            self.bear([theirs.sender] if theirs is not None else [], error)
        self.ledger.add("train_seconds", np.array([self.node]), time.perf_counter() - start)
        return Packet(self.node, own, Message(fields, self.trainer.me(self.row, 0).size, self.number))

    def _merge(self, op: Merge) -> None:
        start, rule = time.perf_counter(), self.job.rule
        heard = op.heard if isinstance(op.heard, Summed) else self.gathering(self.number, op.heard.values())
        for packet in (op.answers or {}).values():
            self.take(heard, packet, answer=True)
        if not heard:
            return
        me, own = self.trainer.me(self.row, self.number), self.trainer.buffers[self.row]
        try:
            size = heard.counterweight(me.size, self.share)
            mine = Message(rule.send(me, self.params, self.state), size, self.number)
            params, state = ruling.merged(rule, me, self.params.clone(), self.state, StreamInbox(rule, mine, heard))
            buffers = heard.averaged(own, size, me)
            if self.blame is not None and (not sound(params, buffers) or spoilt(self.state, state)):
                raise FloatingPointError("what came of the merge is not finite")
        except Exception as error:
            self.bear(heard.senders, error)
            return
        self.remember(heard.senders)
        self.state = state
        self.params.copy_(params)
        own.copy_(buffers)
        self.ledger.changed[self.node] = True
        self.ledger.add("merge_seconds", np.array([self.node]), time.perf_counter() - start)

    def gathering(self, round: int, packets: Iterable[Packet] = ()) -> Summed:
        """The inbox of a round as sums: of these packets, and of those that will be added to it."""
        signature, links = self.trainer.architecture.signature, self.job.graph(round).links(self.node)
        shares, own = self.job.roster.mixing == "metropolis", self.job.roster.weighs(self.node)
        heard = Summed(self.job.rule, signature, links, self.pool, shares, own)
        for packet in packets:
            self.take(heard, packet)
        return heard

    def _adopt(self, op: Adopt) -> None:
        message: Message = op.packet.message
        alike = op.packet.architecture == self.trainer.architecture.signature
        if op.turn is not None and not (alike and self._sane(op.packet)):
            return  # lessons give everyone its own kind back, so this is a neighbour's fault, and nobody ends of that
        if self.blame is not None and not (alike and sound(*message.fields.values())):
            self.blame([op.packet.sender], "a model to adopt that is of another kind, or not finite")
            return
        if not alike:
            raise foreign(self.node)
        self.remember([op.packet.sender])
        self.ledger.changed[self.node] = True
        self.params.copy_(message["w"])
        if "buffers" in message:
            self.trainer.buffers[self.row] = message["buffers"]
        if op.turn is not None:
            lesson: Lesson = getattr(self.job.protocol, op.lesson)
            lesson.home(Homecoming(self.trainer.matrix[self.row], self.notes, op.turn, self.job.roster.rounds))

    def _teach(self, op: Teach) -> dict[int, Packet]:
        start, packets, lesson = time.perf_counter(), {}, getattr(self.job.protocol, op.lesson)
        heard = {
            sender: (packet.architecture, placed(packet.message, self.device))
            for sender, packet in op.heard.items()
            if self._sane(packet) and ("labels" in packet.message or not lesson.informed)
        }
        try:
            with at_work(self.trainer, self.notes):
                data = self.school.classroom(self.trainer, self.row, self.number, self.notes, op.turn)
                made = self.school.teach(lesson, self.trainer, self.row, heard, data, self.share)
            taught = self.taught(made, {sender: message for sender, (_, message) in heard.items()})
        except Exception as error:
            self.bear([*heard], error)
            return {}
        self.ledger.add("flops", np.array([self.node]), self.school.spent(data, self.job.samples))
        for node, (architecture, fields) in taught.items():
            size = op.heard[node].message.size if node in heard else self.trainer.me(self.row, 0).size
            packets[node] = Packet(self.node, architecture, Message(moved(fields), size, self.number))
        self.ledger.add("train_seconds", np.array([self.node]), time.perf_counter() - start)
        return packets

    def _sane(self, packet: Packet) -> bool:
        """Whether a model gives finite answers to some of one's own samples: one that does not would spoil others."""
        message = placed(packet.message, self.device)
        architecture, labels = self.classmates[packet.architecture].architecture, message.fields.get("labels")
        integers = torch.zeros(architecture.integers, dtype=torch.int64, device=self.device)
        architecture.point(message["w"], message.fields.get("buffers"), integers)
        architecture.module.eval()
        some = torch.as_tensor(self.job.roster.train[self.node][:SOME])
        with torch.no_grad():
            answers: Tensor = architecture.module(self.job.samples.inputs(some))
        return finite(answers) and (labels is None or bool((labels >= 0).all() and labels.sum() < 1.01))

    school: Schoolhouse
    """Where the node gives its lessons and does its exercises."""

    def judge(self) -> None:
        """Measure this peer's model at the end of a round, unless it has not changed since it was measured last."""
        after_training = self.judged
        if after_training or self.ledger.changed[self.node]:
            self.score(merged=after_training)
        if not after_training:
            self._gauge(merged=True)

    def score(self, merged: bool = False) -> None:
        """Measure this peer's model; distances to others are not known to a peer and stay empty."""
        start, mine, row = time.perf_counter(), np.array([self.node]), np.array([self.row])
        if not merged or self.job.roster.merged:
            self._judge("merged" if merged else "test")
        if not merged:
            self.ledger.changed[self.node], self.judged = False, True
            if self.job.roster.merged:
                self.ledger.expect(mine)
            if len(self.job.roster.validation[self.node]):
                self._judge("validation")
            self.trainer.keep_best(self.row, self.notes, self.job, self.ledger)
        if PEAK in self.notes:
            with lent(self.trainer, row, self.notes[PEAK].unsqueeze(0)):
                self._judge("peak")
        self._gauge(merged)
        self.ledger.add("evaluate_seconds", mine, time.perf_counter() - start)

    def _judge(self, occasion: Occasion) -> None:
        with at_work(self.trainer):
            found = score(self.trainer, np.array([self.row]), occasion, self.job.test)
        self.ledger.judge(np.array([self.node]), found)

    def _gauge(self, merged: bool) -> None:
        """Take the measures that are asked for; a peer does not know how far the others are apart."""
        layout, kinds = self.trainer.architecture.layout, self.job.measures
        names = ("sigma_ap", "sigma_ap_merged")[merged:]
        found = dict.fromkeys(names, spread(self.params, layout)) if "spread" in kinds else {}
        if self.steps and merged:
            found |= self.steps.end(self.params, layout)
        for name, values in found.items():
            for layer, value in zip(layers(layout), values, strict=True):
                self.ledger.note(name, layer, self.node, value)
        if "rule" in kinds and merged:
            told = self.job.rule.tell(self.trainer.me(self.row, self.number), self.params, self.state)
            for name, scalar in told.items():
                self.ledger.note(name, None, self.node, float(scalar))


def peers(job: Job, nodes: Indices, ledger: Ledger, kind: type[Node] = Node) -> dict[int, Node]:
    """These nodes as peers, at their starting points."""
    made = trainers(job, nodes)
    classmates = {t.architecture.signature: t for t in made}
    school = Schoolhouse({name: t.architecture for name, t in classmates.items()}, torch.get_num_threads())
    found = {}
    for trainer in made:
        for row, node in enumerate(trainer.nodes.tolist()):
            found[node] = kind(job, node, trainer, row, ledger)
            found[node].classmates, found[node].school = classmates, school
    return dict(sorted(found.items()))


def snapshot(peers: Iterable[Node]) -> dict[str, Tensor]:
    """All that these nodes must remember between rounds; they have all rows of their trainers."""
    alike: dict[int, list[Node]] = defaultdict(list)
    for node in peers:
        alike[node.trainer.group].append(node)
    rows, every = {}, [node for nodes in alike.values() for node in nodes]
    for g, nodes in sorted(alike.items()):
        trainer = nodes[0].trainer
        state = {name: torch.stack([node.state[name] for node in nodes]) for name in nodes[0].state}
        kept = {name: tensor.clone() for name, tensor in trainer.optimiser_state.items()}
        rows[g] = KeptRows(trainer.nodes, trainer.matrix.clone(), trainer.integers.clone(), state, kept)
    counters, notes = ({node.node: getattr(node, kind) for node in every} for kind in ("counters", "notes"))
    return Snapshot.of(rows, counters, notes, every[0].ledger).tensors()


def restore(peers: Iterable[Node], tensors: dict[str, Tensor]) -> None:
    """Take these nodes back to a snapshot."""
    kept = Snapshot.read(tensors)
    for node in peers:
        rows, trainer, at = kept.rows[node.trainer.group], node.trainer, node.row
        trainer.matrix[at], trainer.integers[at] = rows.matrix[at], rows.integers[at]
        for name, tensor in trainer.optimiser_state.items():
            tensor[at] = rows.optimiser[name][at]
        node.state = {name: tensor[at].clone() for name, tensor in rows.state.items()}
        node.counters.update(kept.counters.get(node.node, {}))
        node.notes.update(kept.notes.get(node.node, {}))
        kept.restore(node.ledger)

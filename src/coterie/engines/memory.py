"""Peers without a network: one asyncio task per node, each alone with its own model, talking through memory."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.contract import Message, Rule, Term
from coterie.engines import Ledger, World, diverged, foreign
from coterie.engines._site import architectures
from coterie.engines._training import RowData, Trainer
from coterie.initialisers import Origin
from coterie.lessons import Classroom, Pupil
from coterie.protocols import Adopt, Answer, Heard, Merge, Observe, Op, Place, Receive, Send, Teach, Train


@dataclass(frozen=True)
class Memory:
    """Run every node as a peer of its own, one model at a time, over an in-memory transport.

    Slower than `local`, and its equal to float tolerance: this is the reference that shows a rule needs no simulator.
    """

    def open(self) -> "MemorySession":
        """Start with no nodes."""
        return MemorySession()


@dataclass(frozen=True)
class Parcel:
    """A message on its way: tensors of one node, and the weight of the link it came over."""

    sender: int
    architecture: str
    message: Message
    weight: float = 1.0

    @property
    def bytes(self) -> int:
        return sum(f.numel() * f.element_size() for f in self.message.fields.values())


class Came(Heard):
    """What a peer heard, in the order of the senders."""

    def __init__(self, parcels: dict[int, Parcel]) -> None:
        self.parcels = dict(sorted(parcels.items()))

    def __len__(self) -> int:
        return len(self.parcels)

    def __iter__(self) -> Iterator[int]:
        return iter(self.parcels)

    def __getitem__(self, sender: int) -> Parcel:
        return self.parcels[sender]


class StreamInbox:
    """The inbox of one peer: sums in double precision, so that the order of arrival does not show."""

    def __init__(self, rule: Rule, own: Message, parcels: list[Parcel], heard: int) -> None:
        self.own, self.parcels, self.heard = own, parcels, heard
        self._terms = [(rule.lift(p.message), p.weight) for p in parcels]
        self._mine = (rule.lift(own), 1.0)

    @property
    def count(self) -> Tensor:
        return torch.tensor([float(self.heard)])

    def __contains__(self, term: str) -> bool:
        return any(term in terms for terms, _ in self._terms)

    def sum(self, term: str, own: bool = False) -> Tensor:
        return self._totals(term, own)[0].float()

    def mean(self, term: str, own: bool = False) -> Tensor:
        value, weight = self._totals(term, own)
        return (value / weight).float()

    def rows(self, field: str, own: bool = False) -> Tensor:
        heard = [p.message[field] for p in self.parcels if field in p.message]
        return torch.stack([*heard, self.own[field]] if own else heard)

    def _totals(self, term: str, own: bool) -> tuple[Tensor, Tensor]:
        terms = [(t[term], w) for t, w in [*self._terms, *([self._mine] if own else [])] if term in t]
        value, weight = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        for summand, link in terms:
            each = _weight(summand) * link
            value, weight = value + each * summand.value.double(), weight + each
        return value, weight


def _weight(term: Term) -> Tensor:
    return torch.as_tensor(term.weight, dtype=torch.float64)


class Transport:
    """Mailboxes in memory. When every peer waits nothing more can come: that is the deadline, without a clock."""

    def __init__(self, peers: int) -> None:
        self.peers = peers
        self.boxes: dict[tuple[int, str], dict[int, Parcel | None]] = defaultdict(dict)
        self.waiting: dict[int, tuple[list[int], str, asyncio.Future[None]]] = {}
        self.received: dict[int, int] = defaultdict(int)

    def send(self, sender: int, to: int, tag: str, parcel: Parcel | None) -> None:
        """Put a parcel into a peer's box (None: none will come); wake the peer if it has all it waits for."""
        self.boxes[to, tag][sender] = parcel
        if to in self.waiting:
            senders, wanted, done = self.waiting[to]
            if wanted == tag and all(s in self.boxes[to, tag] for s in senders):
                del self.waiting[to]
                done.set_result(None)

    async def receive(self, node: int, senders: list[int], tag: str) -> Came:
        """What came from these senders, once all is there or the deadline has passed."""
        box = self.boxes[node, tag]
        if not all(s in box for s in senders):
            self.waiting[node] = (senders, tag, asyncio.get_running_loop().create_future())
            done = self.waiting[node][2]
            self._pass_deadline()
            await done
        self.received[node] += 1
        return Came({s: parcel for s in senders if (parcel := box.get(s)) is not None})

    def leave(self) -> None:
        """A peer's round is over."""
        self.peers -= 1
        self._pass_deadline()

    def _pass_deadline(self) -> None:
        if self.waiting and len(self.waiting) == self.peers:
            earliest = min(self.received[node] for node in self.waiting)
            for node in [n for n in self.waiting if self.received[n] == earliest]:
                self.waiting.pop(node)[2].set_result(None)


class Peer:
    """One node: its model, its rule's memory, and how it does what the protocol says."""

    def __init__(self, world: World, node: int, trainer: Trainer, row: int, ledger: Ledger) -> None:
        self.world, self.node, self.trainer, self.row, self.ledger = world, node, trainer, row, ledger
        self.state = world.rule.init(trainer.me(row, 0), self.params.clone())
        self.memory: dict[str, int] = {}
        neighbours = world.graph.neighbours(node)
        weights = np.asarray(world.graph.matrix()[[node]].todense()).ravel()[neighbours]
        self.weights = dict(zip(neighbours.tolist(), weights.tolist(), strict=True))

    @property
    def params(self) -> Tensor:
        return self.trainer.params[self.row]

    async def round(self, number: int, transport: Transport, reachable: np.ndarray, measure: Any) -> None:
        """Drive the protocol's generator for one round."""
        graph, world = self.world.graph, self.world
        self.number, self.transport, self.reachable, self.measure = number, transport, set(reachable.tolist()), measure
        place = Place(
            self.node, graph.neighbours(self.node), graph.audience(self.node), number, world.job.seed, self.memory
        )
        generator = world.protocol.round(place, world.rule, world.start)
        try:
            op: Op = next(generator)
            while True:
                op = generator.send(await self._perform(op))
        except StopIteration:
            transport.leave()

    async def _perform(self, op: Op) -> Any:
        match op:
            case Train():
                self._train()
            case Observe():
                data, me = RowData(self.trainer, self.row), self.trainer.me(self.row, self.number)
                self.state = self.world.rule.observe(me, self.params.clone(), self.state, data)
            case Send():
                self._send(op)
            case Receive():
                return await self.transport.receive(self.node, op.senders.tolist(), op.tag)
            case Answer():
                own = self.trainer.architecture.signature
                alike = [sender for sender in op.heard if op.heard[sender].architecture == own]
                return {sender: self._answer(op.heard[sender]) for sender in alike}
            case Merge():
                self._merge(op)
            case Adopt():
                if op.packet.architecture != self.trainer.architecture.signature:
                    raise foreign(self.node)
                self._take(op.packet.message)
            case Teach():
                return self._teach(op)
        return None

    def _train(self) -> None:
        start = time.perf_counter()
        self.trainer.train_row(self.row, self.number)
        nodes = np.array([self.node])
        self.ledger.add("train_seconds", nodes, time.perf_counter() - start)
        self.ledger.add("batches", nodes, self.world.job.steps(self.node))
        if not self.params.isfinite().all():
            raise diverged(self.node, self.number)
        self.measure(self)

    def _message(self, model: bool = False) -> Message:
        me = self.trainer.me(self.row, self.number)
        fields = {"w": self.params} if model else dict(self.world.rule.send(me, self.params, self.state))
        if fields and self.trainer.buffers.shape[1]:
            fields["buffers"] = self.trainer.buffers[self.row]
        return Message({k: f.clone() for k, f in fields.items()}, me.size, self.number)

    def _send(self, op: Send) -> None:
        architecture = self.trainer.architecture.signature
        if op.packet is not None:
            parcel = Parcel(self.node, op.packet.architecture, op.packet.message)
        else:
            parcel = Parcel(self.node, architecture, self._message(op.model))
        fields = parcel.message.fields.values()
        sound = bool(fields) and all(f.isfinite().all() for f in fields)
        for to in op.to.tolist():
            goes = sound and to in self.reachable
            if goes:
                self.ledger.add("sent_bytes", np.array([self.node]), parcel.bytes)
                self.ledger.add("received_bytes", np.array([to]), parcel.bytes)
            self.transport.send(self.node, to, op.tag, parcel if goes else None)

    def _answer(self, theirs: Parcel) -> Parcel:
        data, me = RowData(self.trainer, self.row), self.trainer.me(self.row, self.number)
        fields = self.world.rule.answer(me, theirs.message, data)
        return Parcel(self.node, theirs.architecture, Message(fields, me.size, self.number))

    def _merge(self, op: Merge) -> None:
        own = self.trainer.architecture.signature
        heard = [replace_weight(op.heard[s], self.weights[s]) for s in op.heard if op.heard[s].architecture == own]
        answers = [replace_weight(parcel, self.weights[s]) for s, parcel in (op.answers or {}).items()]
        if not heard:
            return
        start = time.perf_counter()
        me = self.trainer.me(self.row, self.number)
        mine = Message(self.world.rule.send(me, self.params, self.state), me.size, self.number)
        inbox = StreamInbox(self.world.rule, mine, [*heard, *answers], len(heard))
        params, self.state = self.world.rule.merge(me, self.params.clone(), self.state, inbox)
        self.params.copy_(params)
        if self.trainer.buffers.shape[1]:
            buffers = [
                Parcel(p.sender, own, Message({"w": p.message["buffers"]}, p.message.size), p.weight) for p in heard
            ]
            average = StreamInbox(Rule(), Message({"w": self.trainer.buffers[self.row]}, me.size), buffers, len(heard))
            self.trainer.buffers[self.row] = average.mean("w", own=True)
        self.ledger.add("merge_seconds", np.array([self.node]), time.perf_counter() - start)

    def _take(self, message: Message) -> None:
        self.params.copy_(message["w"])
        if "buffers" in message:
            self.trainer.buffers[self.row] = message["buffers"]

    def _teach(self, op: Teach) -> dict[int, Parcel]:
        job, samples = self.world.job, self.world.samples
        pupils = {
            self.node: self._pupil(
                self.trainer, self.trainer.matrix[self.row].clone(), self.trainer.me(self.row, 0).size
            )
        }
        for sender in op.heard:
            parcel = op.heard[sender]
            whole = torch.cat([parcel.message[f] for f in ("w", "buffers") if f in parcel.message])
            trainer = self.classmates[parcel.architecture]
            pupils[sender] = self._pupil(trainer, whole, parcel.message.size)
        own = torch.as_tensor(job.train[self.node])
        room = Classroom(samples.inputs(own), samples.targets(own), job.seed, self.number, self.node)
        taught = {}
        for node, params in op.lesson(pupils, room).items():
            width = self.classmates[pupils[node].architecture].architecture.layout.size
            fields = {"w": params[:width]} | ({"buffers": params[width:]} if len(params) > width else {})
            message = Message(fields, torch.tensor([pupils[node].size]), self.number)
            taught[node] = Parcel(self.node, pupils[node].architecture, message)
        return taught

    classmates: dict[str, Trainer]
    """The trainers of all architectures that the configuration allows, by signature."""

    def _pupil(self, trainer: Trainer, params: Tensor, size: Tensor) -> Pupil:
        architecture = trainer.architecture
        width = architecture.layout.size
        return Pupil(architecture.signature, params, float(size), lambda p, x: architecture.forward(p[:width], x))


def replace_weight(parcel: Parcel, weight: float) -> Parcel:
    """A parcel as it counts for the receiver: with the weight of the link it came over."""
    return Parcel(parcel.sender, parcel.architecture, parcel.message, weight)


class MemorySession:
    """All peers of a job, each with its own task in every round."""

    plan: dict[str, Any] = {}  # noqa: RUF012  nothing to choose

    def begin(self, world: World, plan: dict[str, Any] | None = None) -> None:
        torch.set_num_threads(1)
        self.world, job = world, world.job
        self.ledger = Ledger(job.nodes)
        self.trainers, self.peers = [], {}
        initialise = world.initialiser.make()
        for g, (architecture, nodes) in enumerate(zip(architectures(job, world.samples), job.groups, strict=True)):
            matrix = torch.zeros(len(nodes), architecture.width)
            integers = torch.zeros(len(nodes), architecture.integers, dtype=torch.int64)
            for row, node in enumerate(nodes.tolist()):
                initialise(architecture.module, Origin(job.seed, node, world.gain))
                architecture.read(matrix[row], integers[row])
            trainer = Trainer(job, world.samples, g, architecture, matrix, integers)
            if job.training.keep_optimiser:
                width = architecture.layout.size
                trainer.optimiser_state = {s: torch.zeros(len(nodes), width) for s in trainer.optimiser.slots}
                trainer.optimiser_state["count"] = torch.zeros(len(nodes), dtype=torch.int64)
            self.trainers.append(trainer)
            for row, node in enumerate(nodes.tolist()):
                self.peers[node] = Peer(world, node, trainer, row, self.ledger)
        classmates = {t.architecture.signature: t for t in self.trainers}
        for peer in self.peers.values():
            peer.classmates = classmates

    def round(self, number: int, evaluate: bool) -> None:
        asyncio.run(self._round(number, evaluate))
        if evaluate:
            for peer in self.peers.values():
                self._score(peer, merged=True)

    async def _round(self, number: int, evaluate: bool) -> None:
        graph, transport = self.world.graph, Transport(len(self.peers))
        active = graph.active(self.world.job.seed, number, self.world.links, self.world.nodes)
        measure = self._score if evaluate else (lambda peer: None)
        tasks = [
            peer.round(number, transport, graph.targets[active & (graph.sources == node)], measure)
            for node, peer in self.peers.items()
        ]
        await asyncio.gather(*tasks)

    def evaluate(self) -> None:
        for peer in self.peers.values():
            self._score(peer)

    def _score(self, peer: Peer, merged: bool = False) -> None:
        """Measure one peer's model; distances to others are not known to a peer and stay empty."""
        start, latest, rows = time.perf_counter(), self.ledger.latest, np.array([peer.row])
        test = peer.trainer.score(rows, self.world.test)
        latest["merged_accuracy"][peer.node] = test["accuracy"][0]
        if not merged:
            for name, values in test.items():
                latest[f"test_{name}"][peer.node] = values[0]
            if len(self.world.job.validation[peer.node]):
                own = peer.trainer.score(rows, None)
                latest["validation_accuracy"][peer.node] = own["accuracy"][0]
                latest["validation_loss"][peer.node] = own["loss"][0]
        self.ledger.add("evaluate_seconds", np.array([peer.node]), time.perf_counter() - start)

    def snapshot(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for g, trainer in enumerate(self.trainers):
            state |= {f"{g}/matrix": trainer.matrix, f"{g}/integers": trainer.integers}
            state |= {f"{g}/optimiser/{k}": s for k, s in trainer.optimiser_state.items()}
        for node, peer in self.peers.items():
            state |= {f"peer/{node}/state/{k}": s for k, s in peer.state.items()}
            state |= {f"peer/{node}/memory/{k}": torch.tensor(v) for k, v in peer.memory.items()}
        for name, values in (self.ledger.totals | self.ledger.latest).items():
            state[f"ledger/{name}"] = torch.from_numpy(values)
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        mine = self.snapshot()
        for name, tensor in state.items():
            if name.startswith("peer/"):
                _, node, kind, key = name.split("/", 3)
                peer = self.peers[int(node)]
                if kind == "state":
                    peer.state[key] = tensor
                else:
                    peer.memory[key] = int(tensor)
            else:
                mine[name].copy_(tensor)

    def close(self) -> None:
        pass

"""Peers without a network: one asyncio task per node, each alone with its own model, talking through memory."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.engines._need import Need, alone_need
from coterie.engines._session import Engine, StepwiseSession
from coterie.errors import Refused
from coterie.job import Job, Ledger
from coterie.mail.mailbox import Box, Mailbox
from coterie.mail.traffic import Traffic
from coterie.node.description import Description
from coterie.node.node import Node, peers, restore, snapshot
from coterie.node.sums import Packet
from coterie.protocols import Heard


@dataclass(frozen=True)
class Memory(Engine):
    """Run every node as a peer of its own, one model at a time, over an in-memory transport.

    Slower than `local`, and its equal to float tolerance: this is the reference that shows a rule needs no simulator.
    """

    def open(self) -> "MemorySession":
        """Start with no nodes."""
        return MemorySession()


class MemoryTransport:
    """The mail of one round. When every peer waits nothing more can come: that is the deadline, without a clock."""

    def __init__(self, nodes: set[int], number: int, ledger: Ledger, traffic: Traffic) -> None:
        self.peers, self.number, self.ledger, self.traffic = len(nodes), number, ledger, traffic
        self.mailboxes = {node: Mailbox(nodes, number) for node in nodes}
        for mailbox in self.mailboxes.values():
            mailbox.begin(number)
        self.waiting: dict[int, tuple[list[int], Box, asyncio.Future[None]]] = {}
        self.received: dict[int, int] = defaultdict(int)

    def send(self, sender: int, to: list[int], tag: str, packet: Packet | None) -> None:
        """Put a copy into the boxes of these peers (None: none will come)."""
        if packet is not None:
            fields = {name: field.clone() for name, field in packet.message.fields.items()}
            packet = replace(packet, message=replace(packet.message, fields=fields))
        for each in to:
            self._put(sender, each, tag, packet)

    def _put(self, sender: int, to: int, tag: str, packet: Packet | None) -> None:
        """Put a packet into a peer's mailbox; wake the peer if it has all it waits for."""
        if packet is not None:
            source, target, size = np.array([sender]), np.array([to]), packet.bytes()
            self.ledger.add("sent_bytes", source, size)
            self.ledger.add("received_bytes", target, size)
            self.traffic.add(source, target, np.array([size]))
        if to not in self.mailboxes:  # not a member in this round
            return
        try:
            self.mailboxes[to].judge(sender, self.number, tag)
        except Refused:  # twice, or too late: lost, as it is between real peers
            return
        self.mailboxes[to].box(self.number, tag).add(sender, packet)
        if to in self.waiting:
            senders, box, done = self.waiting[to]
            if not box.missing(senders):
                del self.waiting[to]
                done.set_result(None)

    async def receive(self, node: int, senders: list[int], tag: str) -> Heard:
        """What came from these senders, once all is there or the deadline has passed."""
        box = self.mailboxes[node].box(self.number, tag)
        if box.missing(senders):
            done = asyncio.get_running_loop().create_future()
            self.waiting[node] = (senders, box, done)
            self._pass_deadline()
            await done
        self.received[node] += 1
        return box.hand_out(senders)

    def leave(self) -> None:
        """A peer's round is over."""
        self.peers -= 1
        self._pass_deadline()

    def _pass_deadline(self) -> None:
        if self.waiting and len(self.waiting) == self.peers:
            earliest = min(self.received[node] for node in self.waiting)
            for node in [n for n in self.waiting if self.received[n] == earliest]:
                self.waiting.pop(node)[2].set_result(None)


class MemorySession(StepwiseSession):
    """All peers of a job, each with its own task in every round."""

    plan: dict[str, Any] = {}  # noqa: RUF012  nothing to choose

    def choose(self, job: Job, times: int = 1) -> dict[str, Any]:
        return {}

    def need(self, job: Job) -> Need:
        return alone_need(job)

    def begin(self, job: Job, plan: dict[str, Any] | None = None) -> None:
        torch.set_num_threads(1)
        self.job = job
        self.ledger, self.traffic = Ledger(job.roster.nodes, job.roster.metrics), Traffic(job.roster.nodes)
        self.peers = peers(job, np.arange(job.roster.nodes), self.ledger)

    @property
    def descriptions(self) -> dict[int, Description]:
        trainers = {peer.trainer.group: peer.trainer for peer in self.peers.values()}
        about = self.job.samples.shape, self.job.samples.answers
        models = self.job.roster.models
        return {g: Description.of(t.architecture, models[g], *about) for g, t in sorted(trainers.items())}

    def round(self, number: int, evaluate: bool) -> None:
        asyncio.run(self._round(number, evaluate))
        if evaluate:
            for peer in self._present(number):
                peer.judge()

    def _present(self, number: int) -> list[Node]:
        return [self.peers[node] for node in np.flatnonzero(self.job.members(number)).tolist()]

    async def _round(self, number: int, evaluate: bool) -> None:
        graph, present = self.job.graph(number), self._present(number)
        transport = MemoryTransport({peer.node for peer in present}, number, self.ledger, self.traffic)
        active = self.active = self.job.faults.active(graph, number)

        async def one(peer: Node) -> None:
            reachable = graph.targets[active & (graph.sources == peer.node)].tolist()
            await peer.round(number, transport, reachable, evaluate)
            transport.leave()

        await asyncio.gather(*map(one, present))
        self.places = [peer.place for peer in present]

    def evaluate(self) -> None:
        for peer in self._present(0):
            peer.score()

    def snapshot(self) -> dict[str, Tensor]:
        return snapshot(self.peers.values())

    def restore(self, state: dict[str, Tensor]) -> None:
        restore(self.peers.values(), state)

    def close(self) -> None:
        pass

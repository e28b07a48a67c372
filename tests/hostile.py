"""A peer without a network, and three neighbours who may say anything: what it lets through, and what becomes of it."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.contract import Message
from coterie.errors import Refused
from coterie.job import Job, Ledger
from coterie.mail.pace import Pace, Timing
from coterie.net import wire
from coterie.node.limits import Limits
from coterie.node.node import peers, snapshot
from coterie.node.screening import Screen
from coterie.node.sums import Packet
from coterie.peers.agreement import code, vocabulary
from coterie.peers.mailroom import Mailroom, NewestMailroom
from coterie.protocols import Heard
from driving import job

NEIGHBOURS = (1, 2, 3)
Said = dict[str, Any]
"""A message: `fields` or `numbers`, and `size`, `round`, `signature` where they are not as they should be."""


class Victim:
    """One node of a complete network of four."""

    def __init__(
        self,
        mode: str = "sync",
        rounds: int = 6,
        limits: Limits | None = None,
        known: bool = True,
        half: bool = False,
        node: int = 0,
        before: Callable[[Job], Job] = lambda job: job,
        **settings: Any,
    ) -> None:
        world = before(job(**{"nodes": 4, "topology": "complete", "rounds": rounds, **settings}))
        self.node = peers(world, np.array([node]), Ledger(4, world.roster.metrics))[node]
        self.others = [n for n in range(4) if n != node]
        self.half, self.codes = half, {s: code(t) for s, t in self.node.classmates.items()}
        self.expected = vocabulary(world, self.node, rounds, half)
        self.sizes = dict(enumerate(world.roster.sizes(np.arange(4)).flatten().tolist()))
        self.screen = Screen(self.node, limits or Limits(), self.sizes if known else None)
        self.strange: list[tuple[int, str]] = []
        self.screen.told = lambda sender, text: self.strange.append((sender, text))
        self.refused: Counter[str] = Counter()
        self.blamed: list[tuple[list[int], str]] = []
        self.node.blame = lambda senders, text: self.blamed.append((list(senders), text))
        self.pace = Pace(self.others, Timing(mode, deadline=0.0), rounds)  # type: ignore[arg-type]
        self.says: Callable[[int, str, int], Said | None] = lambda sender, tag, round: None
        self._spool = tempfile.TemporaryDirectory()

    def live(self, rounds: int, says: Callable[[int, str, int], Said | None]) -> None:
        """Go through rounds; `says` gives what a sender says under a tag in a round, None: nothing."""
        self.says = says
        asyncio.run(self._live(rounds))

    async def _live(self, rounds: int) -> None:
        keep = self.node.job.protocol.keeps or self.node.job.rule.answers
        if self.pace.timing.mode == "async":
            self.room: Mailroom = NewestMailroom(self.node, self.pace, keep, self.half, Path(self._spool.name))
        else:
            self.room = Mailroom(self.node, self.pace, keep, self.half)
        self.room.screen = self.screen
        for number in range(self.pace.round + 1, self.pace.round + 1 + rounds):
            self.screen.begin(number)
            self.room.begin(number, self.others)
            await self.node.round(number, self, self.others, evaluate=number == rounds)
            self.room.end()
        self.node.judge()
        snapshot([self.node])  # what it would keep can be kept
        self.room.close()

    def send(self, sender: int, to: list[int], tag: str, packet: Packet | None) -> None:
        """What the victim says must be something that can be said; then it goes nowhere."""
        numbers = packet.message.numbers if packet is not None else ()
        wire.header("session", self.pace.round, tag, self.codes[self.signature], 1.0, b"", numbers)

    async def receive(self, node: int, senders: list[int], tag: str) -> Heard:
        """What the neighbours say, as far as it is let through."""
        for sender in senders:
            said = self.says(sender, tag, self.pace.round)
            if said is not None:
                await self._put(sender, tag, said)
        return await self.room.receive(senders, tag)

    async def _put(self, sender: int, tag: str, said: Said) -> None:
        number, fields = said.get("round", self.pace.round), said.get("fields", {})
        size, signature = said.get("size", self.sizes[sender]), said.get("signature", self.signature)
        payload = wire.encode(fields, self.half) if fields else memoryview(b"")
        about = ("session", number, tag, self.codes[signature], float(size), payload, said.get("numbers", ()))

        def opened() -> Packet:
            receiver = wire.Receiver(self.expected, lambda header: self.room.judge(sender, header.round, header.tag))
            for part in (wire.header(*about).SerializeToString(), *wire.chunks(payload)):
                receiver.feed(part)
            header = receiver.header
            message = Message(receiver.finish(), torch.tensor([header.size]), header.round, tuple(header.numbers))
            return Packet(sender, signature, message)

        try:
            await self.room.put(sender, number, tag, opened, small=True)
        except Refused as refusal:
            self.refused[refusal.reason] += 1

    @property
    def signature(self) -> str:
        return self.node.trainer.architecture.signature

    def fields(self, tag: str, signature: str | None = None) -> dict[str, int]:
        """What can be said under a tag, and how long it is."""
        found: dict[str, int] = self.expected.architectures(tag)[self.codes[signature or self.signature]]
        return found

    def honest(self, tag: str = "model", round: int = 1) -> dict[str, Tensor]:
        """What a neighbour with the victim's own model would say by the rule."""
        me, node = self.node.trainer.me(self.node.row, round), self.node
        said = {name: f.clone() for name, f in node.job.rule.send(me, node.params, node.state).items()}
        if node.trainer.buffers.shape[1]:
            said["buffers"] = node.trainer.buffers[node.row].clone()
        return said

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that the victim has and would keep."""
        node = self.node
        kept: Mapping[str, Tensor] = {**node.state, **node.notes, **node.trainer.optimiser_state}
        return {"row": node.trainer.matrix[node.row], **kept}

    @property
    def sound(self) -> bool:
        return all(bool(t.isfinite().all()) for t in self.tensors.values())

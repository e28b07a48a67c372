"""The mail room of a peer: it takes in what the wires bring and hands it to the node, by the rules of `coterie.mail`.

Those rules neither wait nor read a clock; the event loop, the clock, the thread beside it and the disk are here.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from coterie.errors import Refused
from coterie.failpoints import reach
from coterie.mail.mailbox import Mailbox, NewestMail
from coterie.mail.pace import Pace
from coterie.net.events import happens
from coterie.node.node import Node
from coterie.node.sums import Kept, Packet
from coterie.protocols import Heard

T = TypeVar("T")

MESSAGES, MORE = 32, 4
"""How many messages a neighbour may send in a round, and how many more for each node whose models it passes on."""
LOOK = 0.2
"""Seconds after which a wait looks at the clock again, if nothing has happened."""


class Mailroom:
    """Takes what neighbours send, once each and in its time, and hands it out when enough of it is there."""

    def __init__(self, node: Node, pace: Pace, keep: bool, half: bool = False) -> None:
        self.node, self.pace, self.keep, self.half = node, pace, keep, half
        self.most = MESSAGES + MORE * node.job.roster.nodes
        """How many messages a neighbour may send in a round: names for them can be made up where all are taken."""
        self.mailbox = Mailbox(pace.neighbours, pace.rounds, None if keep else node.gathering, half, self.most)
        self.changed = asyncio.Event()
        """Set when anything has come, or is known of a neighbour, that may end a wait."""
        self.missed: Callable[[int], None] = lambda sender: None
        """Told of each neighbour that was waited for in vain."""
        self.lacking: Callable[[int, int], None] = lambda came, quorum: None
        """Told again and again, while only a quorum is waited for, that so many models are here and so many must be."""
        self.screen: Callable[[Packet, str], Packet] = lambda packet, tag: packet
        """Gives a message as it is taken, or refuses it for its numbers."""
        self.staleness: list[int] = []
        """How many rounds each model was behind that was handed out in this round (asynchronous mode)."""
        self._lock = asyncio.Lock()
        self._clerk = ThreadPoolExecutor(1, "mail", torch.set_num_threads, (1,))

    def resume(self, done: int, away: float = 0.0) -> None:
        """Go on after what an earlier process has done, so many seconds `away`."""
        self.pace.resume(done, away)
        self.mailbox.begin(self.pace.round)

    def begin(self, round: int, audible: Collection[int]) -> None:
        """Begin a round, in which these neighbours can be heard."""
        self.pace.begin(round, audible, time.monotonic())
        self.mailbox.begin(round)
        self.staleness = []

    def end(self) -> None:
        """End a round."""
        self.pace.end(time.monotonic())

    def close(self) -> None:
        """Take nothing more in."""
        self._clerk.shutdown(wait=False, cancel_futures=True)

    async def news(self) -> None:
        """Wait until something has changed, a moment at most."""
        self.changed.clear()
        await happens(self.changed, LOOK)

    async def let_catch_up(self, round: int, sits: bool = False, patient: bool = False) -> None:
        """Wait before a round, until the deadline, for neighbours that are far behind.

        Where a link is down, or goes one way only, no message keeps a peer from running away from its neighbours, and
        they would miss its later messages or skip rounds to follow it. Who `sits` the round out follows them. For a
        `patient` peer the deadline begins when half of those who are there have come: else one could hold it for good.
        """
        start, deadline = time.monotonic(), self.pace.deadline
        end = math.inf if patient else start + deadline
        while (behind := self.pace.behind(round, sits, patient)) and time.monotonic() < end:
            if self.pace.outnumbered(behind):
                end = min(end, time.monotonic() + deadline)
            await self.news()
            self.pace.let_go(time.monotonic())
        self._miss(behind)
        self.pace.go_on(behind, start, time.monotonic())

    # Taking mail in.

    def judge(self, sender: int, round: int, tag: str) -> None:
        """Refuse what comes twice, too late or too early."""
        self.mailbox.judge(sender, round, tag)

    async def put(self, sender: int, round: int, tag: str, opened: Callable[[], Packet], small: bool = False) -> None:
        """Take a message in once it has been opened and found sound: added up at once if it can be, kept else.

        What is `small` is taken in by the event loop itself, in less time than another thread needs to wake. Anything
        else is taken in to the end once begun, even if its stream breaks: half of it may be in the sums already.
        """
        taking = self._put(sender, round, tag, opened, small)
        await (taking if small else asyncio.shield(asyncio.create_task(taking)))

    async def _put(self, sender: int, round: int, tag: str, opened: Callable[[], Packet], small: bool) -> None:
        async with self._lock:
            self.judge(sender, round, tag)
            reach("before taking in", tag)
            something = await self._take_in(round, tag, opened, small)
            reach("after taking in", tag)
        self.pace.neighbours[sender].heard(something)
        self.changed.set()

    async def _take_in(self, round: int, tag: str, opened: Callable[[], Packet], small: bool) -> bool:
        """Take a message in; whether there is anything in it. There is no box yet for one that is refused by then."""

        def screened() -> Packet:
            return self.screen(opened(), tag)

        packet = screened() if small else await self._work(screened)
        box, something = self.mailbox.box(round, tag), not packet.message.void
        if small or not something:
            box.add(packet.sender, packet if something else None)
        else:
            await self._work(lambda: box.add(packet.sender, packet))
        return something

    async def _work(self, what: Callable[[], T]) -> T:
        """Check, add up or store what came, in one thread beside the event loop, which moves bytes meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._clerk, what)

    # Handing mail out.

    async def receive(self, senders: list[int], tag: str) -> Heard:
        """What came from these senders: when all who can be waited for have been heard, or the deadline has passed."""
        box, start, deadline = self.mailbox.box(self.pace.round, tag), time.monotonic(), self.pace.deadline
        while True:
            self.pace.let_go(time.monotonic())
            missing = box.missing(senders)
            outlook = self.pace.outlook(missing, box.models, len(senders), start, deadline, time.monotonic())
            if outlook.over:
                break
            if outlook.lacking:
                self.lacking(box.models, outlook.lacking)
            await self.news()
        self._miss(outlook.overdue)
        self.pace.waited(outlook.overdue, len(missing) < len(senders), start, time.monotonic())
        async with self._lock:
            heard = box.hand_out(senders)
        self._count(sum(box.bytes.get(s, 0) for s in senders))
        return heard

    def _miss(self, senders: Collection[int]) -> None:
        for sender in senders:
            self.missed(sender)

    def _count(self, amount: int) -> None:
        """Count the bytes of what was handed out, as they travelled."""
        self.node.ledger.totals["received_bytes"][self.node.node] += amount


class NewestMailroom(Mailroom):
    """Hands out whatever is newest of each neighbour, without waiting; until then it lies on disk, not in memory."""

    def __init__(self, node: Node, pace: Pace, keep: bool, half: bool, spool: Path) -> None:
        super().__init__(node, pace, keep, half)
        self.newest, self.spool = NewestMail(pace.rounds, self.most), spool
        spool.mkdir(parents=True, exist_ok=True)

    def judge(self, sender: int, round: int, tag: str) -> None:
        self.newest.judge(sender, round, tag)

    async def _take_in(self, round: int, tag: str, opened: Callable[[], Packet], small: bool) -> bool:
        return await self._work(lambda: self._store(tag, self.screen(opened(), tag)))

    def _store(self, tag: str, packet: Packet) -> bool:
        if packet.message.fields:
            try:
                save_file(packet.message.fields, self._file(packet.sender))
            except (OSError, SafetensorError) as error:
                raise Refused("disk", f"cannot keep it here: {error}") from None
        self.newest.note(tag, packet)
        return bool(packet.message.fields)

    def _file(self, sender: int) -> Path:
        return self.spool / f"{sender}.safetensors"

    async def receive(self, senders: list[int], tag: str) -> Heard:
        """The newest of each of these senders that has not been handed out."""
        async with self._lock:
            return await self._work(lambda: self._hand_out(senders))

    def _hand_out(self, senders: list[int]) -> Heard:
        heard, kept = self.node.gathering(self.pace.round), {}
        for noted in self.newest.take(self.pace.audible.intersection(senders)):
            try:
                fields = load_file(self._file(noted.sender))
            except (OSError, SafetensorError):  # gone, or no file can be opened now: as if it had not come
                continue
            packet = replace(noted, message=replace(noted.message, fields=fields))
            self._file(noted.sender).unlink(missing_ok=True)
            behind = max(self.pace.round - packet.message.round, 0)
            self.staleness.append(behind)
            self._count(packet.bytes(self.half))
            if self.keep:
                kept[packet.sender] = packet
            else:
                self.node.take(heard, packet, self.pace.timing.discount**behind)
        return Kept(kept) if self.keep else heard

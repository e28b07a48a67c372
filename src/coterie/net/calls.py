"""The wires of a peer: a server that neighbours call, and a line to each of them. All of it is mutual TLS.

Each peer follows each neighbour: one long call that begins with the agreement on versions and configuration and goes on
with a pulse, which tells the neighbour's round and that it lives. Models travel in a second long call, one after the
other, each answered by a receipt. A model is encoded once however many neighbours get it, and is offered again to a
neighbour who restarts.
"""

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from coterie.failpoints import reach
from coterie.mail.mailbox import AHEAD
from coterie.net import wire
from coterie.net.agreement import PHASE, Agreement
from coterie.net.contacts import ALIVE, HARMLESS, SERVICE, SLOWEST, STALL, Contacts, Intake, Link
from coterie.net.dialling import in_words
from coterie.net.events import happens
from coterie.net.identity import Home
from coterie.net.lending import ask, lend
from coterie.net.lines import Call, Dialled, Lent, Way
from coterie.net.reception import Reception
from coterie.net.status import Status
from coterie.net.tls import channel
from coterie.net.wire import Expected
from coterie.net.wire_pb2 import Receipt, Welcome
from coterie.node.buffers import BufferPool
from coterie.node.sums import Packet

SILENCE = 4.0
"""A neighbour without a pulse for so many seconds is taken for dead until it is heard again."""
BREATH = 0.5
"""Seconds in which silence is counted."""
HELD_UP = 0.1
"""By how many seconds too late this process may wake from a breath that counts."""
PAYLOADS = 2
"""Encoded models that are kept at a time: of this round and of the one before."""
AGAIN = ("future", "too-many")
"""Reasons after which a message is offered again with the neighbour's next pulse: not yet, or not so much at once."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


@dataclass
class EncodedPacket:
    """A packet as the bytes that go to some neighbours; kept until each has it, or can use it no more."""

    serial: int
    round: int
    header: bytes
    payload: memoryview
    bytes: int
    targets: frozenset[int]


class Calls:
    """All wires of one peer."""

    def __init__(
        self,
        home: Home,
        numbers: dict[str, int],
        intake: Intake,
        agreement: Agreement,
        expected: Expected,
        status: Status,
        log: logging.Logger,
    ) -> None:
        self.home, self.pace, self.expected, self.status = home, intake.pace, expected, status
        self.contacts = Contacts(home, numbers, intake, agreement, status, log)
        self.reception = Reception(self.contacts, expected)
        self._payloads = BufferPool(PAYLOADS)
        self._outgoing: list[EncodedPacket] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._signatures = {signature: code for code, signature in agreement.codes.items()}

    async def open(self) -> None:
        """Listen, and begin to call the neighbours."""
        neighbours = self.contacts.by_name
        if not neighbours:
            return
        self._loop = asyncio.get_running_loop()
        await self.reception.open()
        self._tasks = {name: asyncio.create_task(self._keep(link)) for name, link in neighbours.items()}

    async def close(self) -> None:
        """Hang up."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.reception.close()

    def drop(self, name: str) -> None:
        """Hang up on a neighbour whose card is gone, at both ends, and for good."""
        if name in self._tasks:
            self._tasks[name].cancel()
        self.contacts.drop(name)

    async def announce(self, round: int, finished: bool = False) -> None:
        """Tell the neighbours where we are; messages of earlier rounds need not be kept."""
        self.contacts.finished = finished
        oldest = round - 1 if self.pace.timing.mode == "sync" else round
        self._outgoing = [p for p in self._outgoing if p.round >= oldest]
        kept = {p.serial for p in self._outgoing}
        for link in self.contacts.by_name.values():
            link.settled &= kept
        self.reception.move()

    def send(self, to: list[int], tag: str, packet: Packet) -> int:
        """Send a packet on its way, without fields if there is nothing to say; may be called from another thread.

        Gives the bytes that go to neighbours who are there.
        """
        round, message, half = self.pace.round, packet.message, self.expected.half
        payload = wire.encode(message.fields, half, self._payloads) if message.fields else memoryview(b"")
        code, amount = self._signatures[packet.architecture], packet.bytes(half)
        about = (self.contacts.session, round, tag, code, float(message.size), payload, message.numbers)
        header = wire.header(*about).SerializeToString()
        self._serial += 1
        encoded = EncodedPacket(self._serial, round, header, payload, amount, frozenset(to))
        self._outgoing = [*self._outgoing, encoded]
        links = [self.contacts.by_number[each] for each in to]
        alive = sum(link.status.alive for link in links)
        for link in links:
            self._loop.call_soon_threadsafe(link.wake.set)
        return alive * amount

    _serial = 0

    async def flush(self, seconds: float) -> None:
        """Wait until the neighbours who are there have all that was sent to them."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(
            link.status.alive and (link.sending or self._pending(link)) for link in self.contacts.by_name.values()
        ):
            await asyncio.sleep(0.02)

    async def _keep(self, link: Link) -> None:
        """Stay in touch with a neighbour for as long as this peer lives."""
        pause = FIRST_PAUSE
        while True:
            try:
                if link.lent.arrived.is_set():
                    stayed = await self._stay(link, link.lent)
                else:
                    options = [*ALIVE, ("grpc.use_local_subchannel_pool", 1)]
                    async with channel(self.home, link.card, options) as line:
                        stayed = await self._stay(link, Dialled(line, SERVICE))
                if stayed:
                    pause = FIRST_PAUSE
            except grpc.aio.AioRpcError as error:
                self.contacts.trouble(link, in_words(error, link.card.address))
            except DecodeError:
                self.contacts.trouble(link, "an answer that cannot be read")
            except Exception as error:  # a line that is lost, or no file to be opened for our key: call again
                self.contacts.trouble(link, str(error) or type(error).__name__)
            self.contacts.alive(link, False)
            link.greeted.clear()
            # Who has come back and calls us is called at once.
            await happens(link.greeted, pause * random.uniform(0.7, 1.3))
            pause = min(pause * 1.7, LONGEST_PAUSE)

    async def _stay(self, link: Link, line: Way) -> bool:
        """Follow a neighbour, and deliver to it, until the line breaks; False if it will not have us."""
        call = await line.follow(self.contacts.hello().SerializeToString())
        beside: list[asyncio.Task[None]] = []
        try:
            answer = await self._greeting(link, line, call)
            if answer is grpc.aio.EOF:
                return False
            welcome = Welcome.FromString(answer)
            if not welcome.accepted:
                if welcome.reason.startswith(f"{PHASE}:"):
                    return True
                self.contacts.disagree(link, welcome.reason)
                await asyncio.sleep(LONGEST_PAUSE)
                return False
            self.contacts.hear(link, welcome)
            beside = [asyncio.create_task(self._deliver_all(link, line))]
            if isinstance(line, Dialled):
                beside += [asyncio.create_task(each(link, line, self.reception)) for each in (lend, ask)]
            while (said := await _sign_of_life(call, beside[0])) is not grpc.aio.EOF:
                self.contacts.hear(link, Welcome.FromString(said))
            return True
        finally:
            call.cancel()
            for task in beside:
                task.cancel()
            if beside:
                await asyncio.wait(beside)  # which lets our own end through; awaiting the tasks themselves might not

    async def _greeting(self, link: Link, line: Way, call: Call) -> Any:
        """The answer to our greeting; if the neighbour lends us a stream before, we need not wait for it."""
        reading, lent = _reading(call), asyncio.create_task(link.lent.arrived.wait())
        if isinstance(line, Lent):
            lent.cancel()
        try:
            await asyncio.wait(
                {reading} if isinstance(line, Lent) else {reading, lent},
                timeout=STALL,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if reading.done():
                return reading.result()
            if lent.done() and not lent.cancelled():
                raise ConnectionError("it cannot be dialled, and calls us")
            raise TimeoutError(f"no answer to our greeting within {STALL:.0f} s")
        finally:
            reading.cancel()
            lent.cancel()

    def _pending(self, link: Link) -> list[EncodedPacket]:
        """What a neighbour is to have now: not what it would refuse because it has not come so far."""
        latest = (
            max(self.pace.neighbours[link.number].round, 1) + AHEAD if self.pace.timing.mode == "sync" else math.inf
        )
        return [
            p for p in self._outgoing if link.number in p.targets and p.serial not in link.settled and p.round <= latest
        ]

    async def _deliver_all(self, link: Link, line: Way) -> None:
        """Bring a neighbour what it is to have, as it comes up."""
        call: Call | None = None
        try:
            while True:
                link.wake.clear()
                for packet in self._pending(link):
                    call = call or await _within(line.deliver(), STALL, "no stream")
                    link.sending = True
                    seconds = STALL + len(packet.payload) / SLOWEST
                    try:
                        receipt = await _within(deliver(call, packet), seconds, "no receipt")
                    finally:
                        link.sending = False
                    self._settle(link, packet, receipt)
                    if not receipt.accepted:  # which ends the call
                        call.cancel()
                        call = None
                await link.wake.wait()
        finally:
            if call is not None:
                call.cancel()

    def _settle(self, link: Link, packet: EncodedPacket, receipt: Receipt) -> None:
        if receipt.accepted:
            link.status.sent += 1
            link.status.sent_bytes += packet.bytes
            self.status.sent_bytes += packet.bytes
        elif receipt.reason not in HARMLESS:
            self.contacts.trouble(link, f"our message was refused: {receipt.reason} ({receipt.detail})")
        reach("after delivery", receipt.accepted)
        if receipt.reason not in AGAIN:
            link.settled.add(packet.serial)


async def deliver(call: Call, packet: EncodedPacket) -> Receipt:
    """Send a message, and have its receipt; a neighbour may refuse it before it has all of it."""
    reading = _reading(call)
    try:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # what is read says why
            await call.write(packet.header)
            for chunk in wire.chunks(packet.payload):
                if reading.done():
                    break
                await call.write(chunk)
        answer = await reading
    finally:
        reading.cancel()
    if answer is grpc.aio.EOF:
        raise ConnectionError("the neighbour gave no receipt")
    receipt: Receipt = Receipt.FromString(answer)
    return receipt


async def _sign_of_life(call: Any, beside: asyncio.Task[None]) -> Any:
    """What a call says next; what `beside` fails of is raised here, and so is too long a silence.

    A breath that took longer than it should does not count: this process was held up itself, as on a busy machine, and
    what the neighbour said meanwhile may lie here unread.
    """
    clock, reading, silence = asyncio.get_running_loop().time, _reading(call), 0.0
    try:
        while silence < SILENCE:
            start = clock()
            done, _ = await asyncio.wait({reading, beside}, timeout=BREATH, return_when=asyncio.FIRST_COMPLETED)
            if beside in done:
                beside.result()
            if reading in done:
                return reading.result()
            silence += BREATH if clock() - start < BREATH + HELD_UP else 0.0
    finally:
        reading.cancel()
    raise TimeoutError(f"no sign of life for {SILENCE:g} s")


def _reading(call: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.create_task(call.read())
    task.add_done_callback(lambda task: task.cancelled() or task.exception())  # else a failure is complained of
    return task


async def _within(what: Awaitable[Any], seconds: float, otherwise: str) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await what
    except TimeoutError:
        raise TimeoutError(f"{otherwise} within {seconds:.0f} s") from None

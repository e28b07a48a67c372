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
import secrets
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from coterie.engines._buffers import Pool
from coterie.engines._node import Parcel
from coterie.errors import PeerError
from coterie.net import wire
from coterie.net.agreement import PHASE, Agreement, disagreement
from coterie.net.desk import AHEAD, Desk, Envelope, happens
from coterie.net.identity import Card, Home, caller, channel, server_credentials
from coterie.net.logs import say
from coterie.net.status import Neighbour, Status
from coterie.net.wire import CHUNK, VERSION, Expected, Receiver, Refused
from coterie.net.wire_pb2 import Header, Hello, Receipt, Welcome

SERVICE = "coterie.v1.Peers"
PULSE = 1.0
LULL = 0.1
"""Seconds between two pulses, at least: in short rounds messages tell the round often enough."""
SILENCE = 4.0
"""A neighbour without a pulse for so many seconds is taken for dead until it is heard again."""
STALL = 10.0
"""Seconds that a stream may stand still."""
SLOWEST = 64 * 1024
"""Bytes a second that a stream must make on the whole."""
STREAMS = 2
"""Streams that one neighbour may have open."""
STAGED = 4
"""Staging buffers of all neighbours together; further streams wait, and their senders with them."""
SMALL = 4 * CHUNK
"""Bytes of a message that are checked and added up without a thread of their own."""
WINDOW = 4 * CHUNK
"""Bytes of a stream that may lie in gRPC's memory, unread; by itself it takes many times that from a fast neighbour."""
PAYLOADS = 2
"""Encoded models that are kept at a time: of this round and of the one before."""
HARMLESS = ("past", "future", "duplicate", "session", "disk")
"""Reasons to refuse what an honest neighbour sends: after a restart or a delay, or while our own disk is full."""
AGAIN = ("future", "too-many")
"""Reasons after which a message is offered again with the neighbour's next pulse: not yet, or not so much at once."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
ALIVE = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW),
    ("grpc.max_receive_message_length", CHUNK + 1024),
    ("grpc.max_send_message_length", CHUNK + 1024),
]


@dataclass
class Outgoing:
    """A message on its way to some neighbours."""

    serial: int
    round: int
    header: bytes
    payload: memoryview
    bytes: int
    targets: frozenset[int]


@dataclass
class Link:
    """One neighbour, and how far the exchange with it is."""

    number: int
    card: Card
    status: Neighbour
    session: str = ""
    """Of the neighbour's process, as it said when it began to follow us."""
    streams: int = 0
    followers: int = 0
    settled: set[int] = field(default_factory=set)
    """Outgoing messages (their serials) that need no further try."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    greeted: asyncio.Event = field(default_factory=asyncio.Event)
    sending: bool = False


class Links:
    """All wires of one peer."""

    def __init__(
        self,
        home: Home,
        numbers: dict[str, int],
        desk: Desk,
        agreement: Agreement,
        expected: Expected,
        status: Status,
        log: logging.Logger,
    ) -> None:
        self.home, self.desk, self.agreement, self.expected = home, desk, agreement, expected
        self.status, self.log, self.session = status, log, secrets.token_hex(8)
        self.cards = {name: card for name, card in home.neighbours.items() if name in numbers}
        self.by_name = {n: Link(numbers[n], c, Neighbour(n, c.address)) for n, c in self.cards.items()}
        self.by_number = {link.number: link for link in self.by_name.values()}
        status.neighbours = {name: link.status for name, link in self.by_name.items()}
        status.session = self.session
        self.finished = False
        self._moved = asyncio.Event()
        self._slots = asyncio.Semaphore(STAGED)
        self._staging, self._payloads = Pool(STAGED), Pool(PAYLOADS)
        self._outgoing: list[Outgoing] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._server: Any = None
        desk.missed = self._missed
        self._signatures = {signature: code for code, signature in agreement.codes.items()}

    async def open(self) -> None:
        """Listen, and begin to call the neighbours."""
        if not self.by_name:
            return
        self._loop = asyncio.get_running_loop()
        self._server = grpc.aio.server(
            options=[*ALIVE, ("grpc.so_reuseport", 0), ("grpc.max_concurrent_streams", 4 * STREAMS)]
        )
        handlers = {
            "Follow": grpc.unary_stream_rpc_method_handler(self._follow),
            "Deliver": grpc.stream_stream_rpc_method_handler(self._deliver),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        credentials = server_credentials(self.home)
        try:
            self._server.add_secure_port(self.home.listen, credentials)
        except RuntimeError:
            cure = "Is the port taken, or the address not this machine's? Choose another with `coterie peer init`."
            raise PeerError(f"cannot listen on {self.home.listen}", cure=cure) from None
        await self._server.start()
        self._tasks = [asyncio.create_task(self._keep(link)) for link in self.by_name.values()]

    async def close(self) -> None:
        """Hang up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(0.2)
            # Who ends the loop while gRPC still winds up calls has a traceback of it on the terminal.
            for _ in range(100):
                await asyncio.sleep(0.01)
                if not any(link.streams or link.followers for link in self.by_name.values()):
                    break

    async def announce(self, round: int, finished: bool = False) -> None:
        """Tell the neighbours where we are; messages of earlier rounds need not be kept."""
        self.finished = finished
        oldest = round - 1 if self.desk.timing.mode == "sync" else round
        self._outgoing = [o for o in self._outgoing if o.round >= oldest]
        kept = {o.serial for o in self._outgoing}
        for link in self.by_name.values():
            link.settled &= kept
        self._moved.set()
        self._moved = asyncio.Event()  # a new one: no lock that a cancelled follower could take with it

    def send(self, to: list[int], tag: str, parcel: Parcel | None) -> None:
        """Send a message (or word that there is none) on its way; may be called from another thread."""
        node, round, fields = self.desk.node, self.desk.round, parcel.message.fields if parcel is not None else {}
        payload = wire.encode(fields, self.expected.half, self._payloads) if fields else memoryview(b"")
        code = self._signatures[parcel.architecture if parcel is not None else node.trainer.architecture.signature]
        size = float(parcel.message.size) if parcel is not None else 0.0
        amount = self.desk.amount(parcel) if parcel is not None else 0
        header = wire.header(self.session, round, tag, code, size, payload).SerializeToString()
        self._serial += 1
        self._outgoing = [*self._outgoing, Outgoing(self._serial, round, header, payload, amount, frozenset(to))]
        for link in map(self.by_number.__getitem__, to):
            if link.status.alive:
                node.ledger.totals["sent_bytes"][node.node] += amount
            self._loop.call_soon_threadsafe(link.wake.set)

    _serial = 0

    async def flush(self, seconds: float) -> None:
        """Wait until the neighbours who are there have all that was sent to them."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(
            link.status.alive and (link.sending or self._pending(link)) for link in self.by_name.values()
        ):
            await asyncio.sleep(0.02)

    # Calling.

    async def _keep(self, link: Link) -> None:
        """Stay in touch with a neighbour for as long as this peer lives."""
        pause = FIRST_PAUSE
        while True:
            try:
                options = [*ALIVE, ("grpc.use_local_subchannel_pool", 1)]
                async with channel(self.home, link.card, options) as line:
                    if await self._stay(link, line):
                        pause = FIRST_PAUSE
            except grpc.aio.AioRpcError as error:
                self._trouble(link, f"{error.code().name.lower()}: {error.details()}")
            except (TimeoutError, ConnectionError) as error:
                self._trouble(link, str(error))
            except DecodeError:
                self._trouble(link, "an answer that cannot be read")
            self._alive(link, False)
            link.greeted.clear()
            # Who has come back and calls us is called at once.
            await happens(link.greeted, pause * random.uniform(0.7, 1.3))
            pause = min(pause * 1.7, LONGEST_PAUSE)

    async def _stay(self, link: Link, line: grpc.aio.Channel) -> bool:
        """Follow a neighbour, and deliver to it, until the line breaks; False if it will not have us."""
        hello = self._hello()
        call = line.unary_stream(f"/{SERVICE}/Follow")(hello.SerializeToString())
        answer = await _within(call.read(), STALL, "no answer to our greeting")
        if answer is grpc.aio.EOF:
            return False
        welcome = Welcome.FromString(answer)
        if not welcome.accepted:
            if welcome.reason.startswith(f"{PHASE}:"):
                return True
            self._disagree(link, welcome.reason)
            await asyncio.sleep(LONGEST_PAUSE)
            return False
        self._hear(link, welcome)
        delivering = asyncio.create_task(self._deliver_all(link, line))
        try:
            while True:
                read = _reading(call)
                done, _ = await asyncio.wait({read, delivering}, timeout=SILENCE, return_when=asyncio.FIRST_COMPLETED)
                if delivering in done:
                    read.cancel()
                    delivering.result()
                if read not in done:
                    read.cancel()
                    raise TimeoutError(f"no sign of life for {SILENCE:g} s")
                said = read.result()
                if said is grpc.aio.EOF:
                    return True
                self._hear(link, Welcome.FromString(said))
        finally:
            call.cancel()
            delivering.cancel()
            await asyncio.wait({delivering})  # which lets our own end through; awaiting the task itself might not

    def _hear(self, link: Link, welcome: Welcome) -> None:
        """A pulse: the neighbour lives, and this is its round."""
        self.desk.neighbours[link.number].first = welcome.first
        self._progress(link, welcome.round, welcome.finished)
        self._alive(link, True)

    def _progress(self, link: Link, round: int, finished: bool) -> None:
        self.desk.neighbours[link.number].reach(min(round, self.desk.rounds), finished)
        link.status.round = min(round, self.desk.rounds)
        link.status.last_heard = time.time()
        if self._pending(link):
            link.wake.set()
        self.desk.changed.set()

    def _alive(self, link: Link, alive: bool) -> None:
        if alive != link.status.alive:
            say(
                self.log, logging.INFO, "neighbour is there" if alive else "neighbour is gone", neighbour=link.card.name
            )
        link.status.alive = self.desk.neighbours[link.number].alive = alive
        self.desk.changed.set()

    def _pending(self, link: Link) -> list[Outgoing]:
        """What a neighbour is to have now: not what it would refuse because it has not come so far."""
        latest = (
            max(self.desk.neighbours[link.number].round, 1) + AHEAD if self.desk.timing.mode == "sync" else math.inf
        )
        return [
            o for o in self._outgoing if link.number in o.targets and o.serial not in link.settled and o.round <= latest
        ]

    async def _deliver_all(self, link: Link, line: grpc.aio.Channel) -> None:
        """Bring a neighbour what it is to have, as it comes up."""
        open_call, call = line.stream_stream(f"/{SERVICE}/Deliver"), None
        while True:
            link.wake.clear()
            for outgoing in self._pending(link):
                call = call or open_call()
                link.sending = True
                seconds = STALL + len(outgoing.payload) / SLOWEST
                try:
                    receipt = await _within(_brought(call, outgoing), seconds, "no receipt")
                finally:
                    link.sending = False
                self._settle(link, outgoing, receipt)
                if not receipt.accepted:  # which ends the call
                    call = None
            await link.wake.wait()

    def _settle(self, link: Link, outgoing: Outgoing, receipt: Receipt) -> None:
        if receipt.accepted:
            link.status.sent += 1
            link.status.sent_bytes += outgoing.bytes
            self.status.sent_bytes += outgoing.bytes
        elif receipt.reason not in HARMLESS:
            self._trouble(link, f"our message was refused: {receipt.reason} ({receipt.detail})")
        if receipt.reason not in AGAIN:
            link.settled.add(outgoing.serial)

    def _trouble(self, link: Link, text: str) -> None:
        if text != link.status.last_error:
            say(self.log, logging.INFO, "trouble", neighbour=link.card.name, error=text)
        link.status.last_error = text[:200]

    def _disagree(self, link: Link, reason: str) -> None:
        text = f"{link.card.name} and I do not agree: {reason}"
        if text != link.status.last_error:
            self.status.add_error(text)
            say(self.log, logging.ERROR, "disagreement", neighbour=link.card.name, reason=reason)
        link.status.last_error = text[:200]

    def _missed(self, sender: int) -> None:
        link = self.by_number[sender]
        link.status.missed += 1
        say(self.log, logging.WARNING, "missed the deadline", neighbour=link.card.name, round=self.desk.round)

    # Being called.

    async def _caller(self, context: grpc.aio.ServicerContext) -> Link:
        try:
            return self.by_name[caller(context, self.cards)]
        except Refused as refusal:
            say(self.log, logging.WARNING, "refused", reason=refusal.reason, detail=refusal.detail)
            self.status.add_error(f"refused: {refusal}")
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "you are not my neighbour")
            raise AssertionError("abort does not return") from None

    async def _follow(self, request: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        """A neighbour begins to follow us: agree or refuse, then tell it our round again and again."""
        link = await self._caller(context)
        try:
            hello = Hello.FromString(request)
            if link.followers >= STREAMS:
                raise Refused("too-many", "follows us already")
        except DecodeError:
            self._refuse(link, Refused("damaged", "a greeting that cannot be read"))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "damaged")
        except Refused as refusal:
            self._refuse(link, refusal)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, refusal.reason)
        if objection := disagreement(self._hello(), hello):
            if not objection.startswith(f"{PHASE}:"):
                self._disagree(link, objection)
                self._refuse(link, Refused("disagreement", objection))
            yield self._pulse(False, disagreement(hello, self._hello()) or "")
            return
        if hello.session != link.session:  # a new process: what it had is lost, and it may have it again
            link.session = hello.session
            link.settled.clear()
        link.wake.set()
        link.greeted.set()
        link.followers += 1
        try:
            while True:
                moved = self._moved
                yield self._pulse(True)
                await asyncio.sleep(LULL)
                await happens(moved, PULSE)
        finally:
            link.followers -= 1

    def _hello(self) -> Hello:
        return self.agreement.hello(self.session, self.desk.round, self.finished)

    def _pulse(self, accepted: bool, reason: str = "") -> bytes:
        said = Welcome(
            accepted=accepted,
            reason=reason,
            version=VERSION,
            session=self.session,
            round=self.desk.round,
            finished=self.finished,
            first=self.desk.first,
        )
        text: bytes = said.SerializeToString()
        return text

    async def _deliver(self, parts: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        """A neighbour brings messages, until one is refused: where the next begins is not known then."""
        link = await self._caller(context)
        link.streams += 1
        try:
            async for first in parts:
                receipt = Receipt(accepted=True, round=self.desk.round, session=self.session, finished=self.finished)
                try:
                    if link.streams > STREAMS:
                        raise Refused("too-many", f"{link.streams} streams at once")
                    await self._take(link, first, parts)
                except Refused as refusal:
                    self._refuse(link, refusal)
                    receipt.accepted, receipt.reason, receipt.detail = False, refusal.reason, refusal.detail
                yield receipt.SerializeToString()
                if not receipt.accepted:
                    return
        finally:
            link.streams -= 1

    async def _take(self, link: Link, first: bytes, parts: AsyncIterator[bytes]) -> None:
        """One message: nothing of it counts before all of it is here and sound."""
        receiver = Receiver(self.expected, lambda header: self._judge(link, header), self._staging)
        receiver.feed(first)
        header = receiver.header
        if header.round > self.desk.neighbours[link.number].round:  # what is offered again may be older
            self._progress(link, header.round, finished=False)
        async with self._slots:
            await _drain(receiver, parts)
            await self.desk.put(self._envelope(link, header), receiver.finish, small=header.bytes <= SMALL)
        link.status.received += 1
        link.status.received_bytes += header.bytes
        self.status.received_bytes += header.bytes
        link.status.last_heard = time.time()

    def _judge(self, link: Link, header: Header) -> None:
        if header.session != link.session:
            raise Refused("session", "it has not greeted, or is not the process that did")
        self.desk.judge(self._envelope(link, header))

    def _envelope(self, link: Link, header: Header) -> Envelope:
        signature = self.agreement.codes[header.architecture]
        return Envelope(link.number, header.round, header.tag, signature, header.size)

    def _refuse(self, link: Link, refusal: Refused) -> None:
        """Count and log; what comes late or twice is nobody's fault and does not fill the log."""
        if refusal.reason not in HARMLESS:
            self.desk.neighbours[link.number].sound = False
            self.desk.changed.set()
        link.status.refuse(refusal.reason, refusal.detail)
        level = logging.DEBUG if refusal.reason in HARMLESS else logging.WARNING
        say(self.log, level, "refused", neighbour=link.card.name, reason=refusal.reason, detail=refusal.detail)


async def _brought(call: grpc.aio.StreamStreamCall, outgoing: Outgoing) -> Receipt:
    """Send a message, and have its receipt; a neighbour may refuse it before it has all of it."""
    reading = _reading(call)
    try:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # what is read says why
            await call.write(outgoing.header)
            for chunk in wire.chunks(outgoing.payload):
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


async def _drain(receiver: Receiver, parts: AsyncIterator[bytes]) -> None:
    """Take the rest of a message; one that stands still, or is too slow on the whole, is cut."""
    clock, came, size = asyncio.get_running_loop().time, 0, receiver.header.bytes
    start = latest = clock()
    try:
        async with asyncio.timeout(STALL) as limit:
            while came < size and (part := await anext(parts, None)) is not None:
                receiver.feed(part)
                came, now = came + len(part), clock()
                if now - start > STALL + came / SLOWEST:
                    raise Refused("slow", f"{came} bytes in {now - start:.0f} s")
                if now - latest > STALL / 10:  # not for every part: a timer costs as much as a part's checks
                    limit.reschedule(now + STALL)
                    latest = now
    except TimeoutError:
        raise Refused("slow", f"nothing for {STALL:g} s") from None


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

"""Being called: the server of a peer, where neighbours follow it and bring what they have to say."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import grpc
import torch
from google.protobuf.message import DecodeError

from coterie.contract import Message
from coterie.errors import Refused
from coterie.net.agreement import PHASE, disagreement
from coterie.net.contacts import SLOWEST, STALL, Contacts, Link
from coterie.net.dialling import Dialling
from coterie.net.doors import Door
from coterie.net.events import happens
from coterie.net.joining import Doorman
from coterie.net.lines import Kind
from coterie.net.places import StagingPlace
from coterie.net.questions import question
from coterie.net.tls import STRANGER, caller
from coterie.net.wire import CHUNK, Expected, Receiver
from coterie.net.wire_pb2 import Answer, Header, Hello, Receipt
from coterie.node.buffers import BufferPool
from coterie.node.bundles import NUMBER
from coterie.node.sums import Packet

PULSE = 1.0
LULL = 0.1
"""Seconds between two pulses, at least: in short rounds messages tell the round often enough."""
STREAMS = 2
"""Streams that one neighbour may have open."""
STAGED = 4
"""Messages that may come in at a time, as long as they flow; further ones wait, and their senders with them."""
SMALL = 4 * CHUNK
"""Bytes of a message that are checked and added up without a thread of their own."""

GREETING = 64 << 10
"""Bytes of a greeting, at most: a real one has about one thousand, and to compare a large one takes long."""
INTRODUCING = 1.0
"""Seconds from one introduction by a neighbour to the next that is looked at."""

REFUSALS = {
    "stranger": (grpc.StatusCode.UNAUTHENTICATED, STRANGER),
    "damaged": (grpc.StatusCode.INVALID_ARGUMENT, "damaged"),
}
"""How calls end that are refused."""

Read = Callable[[], Awaitable[Any]]
"""Gives the next part of a stream, or EOF."""


class Reception:
    """The server of one peer."""

    def __init__(self, contacts: Contacts, expected: Expected) -> None:
        self.contacts, self.expected, self.intake = contacts, expected, contacts.intake
        self._moved = asyncio.Event()
        self._slots, self._staging = asyncio.Semaphore(STAGED), BufferPool(STAGED)
        self._door, self._doorman = Door(contacts.home), Doorman(contacts.home, self._told)
        self._dialling = Dialling(contacts.home, contacts.cards)
        self._introducing: dict[str, float] = {}
        """Until when no other introduction by a neighbour is looked at."""

    async def open(self) -> None:
        """Listen."""
        both = grpc.stream_stream_rpc_method_handler
        handlers = {
            "Follow": both(self.follow),
            "Deliver": both(self.deliver),
            "FollowBack": both(partial(self.lend, "FollowBack")),
            "DeliverBack": both(partial(self.lend, "DeliverBack")),
            "Introduce": question(self.introduce),
            "Introductions": question(self.introductions),
            **self._doorman.handlers(),
            **self._dialling.handlers(),
        }
        await self._door.open(handlers, len(self.contacts.by_name))

    async def close(self) -> None:
        """Hang up."""
        await self._door.close()
        # Who ends the loop while gRPC still winds up calls has a traceback of it on the terminal.
        for _ in range(100):
            await asyncio.sleep(0.01)
            if not any(link.streams or link.followers for link in self.contacts.by_name.values()):
                break

    def move(self) -> None:
        """Tell the followers at once where we are."""
        self._moved.set()
        self._moved = asyncio.Event()  # a new one: no lock that a cancelled follower could take with it

    def _told(self, what: str, about: str) -> None:
        known = self.contacts
        if what == "refused":
            known.seldom.say(known.log, logging.WARNING, "refused", reason="stranger", detail=about)
        else:
            known.seldom.say(known.log, logging.WARNING, what, (about,), neighbour=about)

    async def introduce(self, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """A neighbour says that a third would be a good one."""
        by, now = (await self._caller(context)).card.name, time.monotonic()
        if now < self._introducing.get(by, 0.0):  # to read a card takes a while, and writes to the disk
            said: bytes = Answer(asks=True, reason="too-many").SerializeToString()
            return said
        self._introducing[by] = now + INTRODUCING
        return await self.hear_of(by, request)

    async def hear_of(self, by: str, said: bytes) -> bytes:
        """Somebody is introduced by a neighbour."""
        return await self._doorman.introduced(by, said)

    async def introductions(self, _: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """A neighbour asks whether we would introduce somebody."""
        return self._doorman.introductions((await self._caller(context)).card.name)

    async def _caller(self, context: grpc.aio.ServicerContext) -> Link:
        try:
            return self.contacts.by_name[caller(context, self.contacts.cards)]
        except Refused as refusal:
            known, about = self.contacts, {"reason": refusal.reason, "detail": refusal.detail}
            if known.seldom.say(known.log, logging.WARNING, "refused", **about):
                known.status.add_error(f"refused: {refusal}")
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, STRANGER)
            raise AssertionError("abort does not return") from None

    async def follow(self, _: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        """A neighbour begins to follow us."""
        link = await self._caller(context)
        try:
            async with aclosing(self.greeted(link, context.read)) as answers:
                async for said in answers:
                    yield said
        except Refused as refusal:
            await context.abort(*REFUSALS.get(refusal.reason, (grpc.StatusCode.RESOURCE_EXHAUSTED, refusal.reason)))

    async def deliver(self, _: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        """A neighbour brings messages.

        They are read from the context: gRPC's iterator would hold the last part of each until the next comes.
        """
        link = await self._caller(context)
        try:
            async with aclosing(self.brought(link, context.read)) as receipts:
                async for said in receipts:
                    yield said
        except Refused as refusal:
            await context.abort(*REFUSALS[refusal.reason])

    async def lend(self, kind: Kind, _: Any, context: grpc.aio.ServicerContext) -> None:
        """A neighbour that nobody can dial opens a stream on which we may call it."""
        link = await self._caller(context)
        link.greeted.set()
        try:
            with link.serving():
                await link.lent.take(kind, context)
        except Refused as refusal:
            await context.abort(*REFUSALS[refusal.reason])

    async def greeted(self, link: Link, read: Read) -> AsyncGenerator[bytes]:
        """Agree with a neighbour's greeting or refuse it, then tell it our round again and again.

        It counts before it is read, so that nobody has memory for more greetings than it may have followers.
        """
        if link.followers >= STREAMS:
            refusal = Refused("too-many", "follows us already")
            self.contacts.refuse(link, refusal)
            raise refusal
        link.followers += 1
        try:
            with link.serving():
                try:
                    hello = _greeting(await _part(read))
                except Refused as refusal:
                    self.contacts.refuse(link, refusal)
                    raise
                if objection := disagreement(self.contacts.hello(), hello):
                    if not objection.startswith(f"{PHASE}:"):
                        self.contacts.disagree(link, objection)
                        self.contacts.refuse(link, Refused("disagreement", objection))
                    yield self.contacts.pulse(False, disagreement(hello, self.contacts.hello()) or "")
                    return
                if hello.session != link.session:  # a new process: what it had is lost, and it may have it again
                    link.session = hello.session
                    link.settled.clear()
                link.wake.set()
                link.greeted.set()
                while True:
                    moved = self._moved
                    yield self.contacts.pulse(True)
                    await asyncio.sleep(LULL)
                    await happens(moved, PULSE)
        finally:
            link.followers -= 1

    async def brought(self, link: Link, read: Read) -> AsyncGenerator[bytes]:
        """Take a neighbour's messages until one is refused: where the next begins is not known then."""
        if link.streams >= STREAMS:  # before anything is read: who opens and says nothing has no more than others
            yield self._receipt(link, Refused("too-many", f"{link.streams + 1} streams at once"))
            return
        link.streams += 1
        try:
            with link.serving():
                while (first := await read()) is not grpc.aio.EOF:
                    try:
                        await self._take(link, first, read)
                    except Refused as refusal:
                        if refusal.reason == "slow":
                            link.rest.begin(time.monotonic())
                        yield self._receipt(link, refusal)
                        return
                    yield self._receipt(link)
        finally:
            link.streams -= 1

    def _receipt(self, link: Link, refusal: Refused | None = None) -> bytes:
        known = self.contacts
        said = Receipt(accepted=True, round=known.pace.reached, session=known.session, finished=known.finished)
        if refusal is not None:
            known.refuse(link, refusal)
            said.accepted, said.reason, said.detail = False, refusal.reason, refusal.detail
        text: bytes = said.SerializeToString()
        return text

    async def _take(self, link: Link, first: bytes, read: Read) -> None:
        """One message: nothing of it counts before all of it is here and sound."""
        receiver = Receiver(self.expected, lambda header: self._judge(link, header), self._staging)
        receiver.feed(first)
        header = receiver.header
        if header.round > self.contacts.pace.neighbours[link.number].round:  # what is offered again may be older
            self.contacts.progress(link, header.round, finished=False)
        part = await _part(read) if header.bytes else grpc.aio.EOF  # who promises and sends nothing has no place
        async with StagingPlace(self._slots, link.place) as place:
            await _drain(receiver, part, read, place)
            link.rest.end()
            small = header.bytes <= SMALL
            await self.intake.put(link.number, header.round, header.tag, lambda: self._packet(link, receiver), small)
        link.status.received += 1
        came = header.bytes + NUMBER * len(header.numbers)
        link.status.received_bytes += came
        self.contacts.status.received_bytes += came
        link.status.last_heard = time.time()

    def _judge(self, link: Link, header: Header) -> None:
        if header.session != link.session:
            raise Refused("session", "it has not greeted, or is not the process that did")
        if left := link.rest.left(time.monotonic()):
            raise Refused("too-many", f"not for another {left:.0f} s, after one that was too slow")
        self.intake.judge(link.number, header.round, header.tag)

    def _packet(self, link: Link, receiver: Receiver) -> Packet:
        """The message that a receiver has all of, if it is sound."""
        header = receiver.header
        message = Message(receiver.finish(), torch.tensor([header.size]), header.round, tuple(header.numbers))
        return Packet(link.number, self.contacts.agreement.codes[header.architecture], message)


def _greeting(said: Any) -> Hello:
    """What a neighbour says first; raises `Refused`."""
    if said is not grpc.aio.EOF and len(said) > GREETING:
        raise Refused("oversized", f"a greeting of {len(said)} bytes, at most {GREETING} are allowed")
    try:
        if said is not grpc.aio.EOF:
            hello: Hello = Hello.FromString(said)
            return hello
    except DecodeError:
        pass
    raise Refused("damaged", "a greeting that cannot be read")


async def _part(read: Read) -> Any:
    """The first part of a greeting, or of a message's payload."""
    try:
        async with asyncio.timeout(STALL):
            return await read()
    except TimeoutError:
        raise Refused("slow", f"nothing for {STALL:g} s") from None


async def _drain(receiver: Receiver, part: Any, read: Read, place: StagingPlace) -> None:
    """Take a message from its first part on; one that stands still, or is too slow on the whole, is cut."""
    clock, came, size = asyncio.get_running_loop().time, 0, receiver.header.bytes
    start = latest = clock()
    try:
        async with asyncio.timeout(STALL) as limit:
            while part is not grpc.aio.EOF:
                receiver.feed(part)
                came, now = came + len(part), clock()
                if now - start > STALL + came / SLOWEST:
                    raise Refused("slow", f"{came} bytes in {now - start:.0f} s")
                if now - latest > STALL / 10:  # not for every part: a timer costs as much as a part's checks
                    limit.reschedule(now + STALL)
                    latest = now
                if came >= size:
                    return
                with place.waiting():
                    part = await read()
    except TimeoutError:
        raise Refused("slow", f"nothing for {STALL:g} s") from None

"""A neighbour with a real key that means harm: it lies about its round, its data and its model, and sends rubbish."""

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch

from chaos.acting import BROKEN, MERGED, NOTHING, Tally, act, receipt_of, stream, within
from coterie import records
from coterie.engines import peer as fleet
from coterie.net import wire
from coterie.net.contacts import ALIVE, SERVICE
from coterie.net.identity import Card
from coterie.net.tls import channel, server_credentials
from coterie.net.wire_pb2 import Header, Hello, Receipt, Welcome
from coterie.peers.runtime import PeerRuntime

POISON = 1e6
"""What its messages consist of that are to be refused for another reason, so that it would show if one were merged."""
ENORMOUS, SIZES = "enormous numbers", "a lie about its data"
REFUSED_FOR = {ENORMOUS: "too-large", SIZES: "size"}
"""Kinds of messages that are sound but for one thing, for which some of each must have been refused."""
AT_FIRST = 10
"""Until somebody is in this round it says that it is in the last one; later, now and then."""


def hostile(seed: int, dawdle: float, told: Path, *args: Any) -> None:
    """Play one node of a fleet, with the arguments of its configuration, and mean harm."""

    async def work(tally: Tally) -> None:
        await Hostile(PeerRuntime(fleet.peer_config(*args)), random.Random(seed), dawdle, tally).go()

    act(work, told)
    records.write_frame(args[-1] / "records.parquet", records.empty())
    os._exit(0)


class Hostile:
    """A peer that greets as it should and then sends all that it should not."""

    def __init__(self, running: PeerRuntime, rng: random.Random, dawdle: float, tally: Tally) -> None:
        self.rng, self.tally, self.dawdle = rng, tally, dawdle
        self.home, self.session, self.agreement = running.config.home, running.links.contacts.session, running.agreement
        self.rounds, self.numbers = running.config.settings.rounds, running.config.numbers
        (self.code,) = self.agreement.codes
        self.fields = running.links.expected.architectures("model")[self.code]
        self.sound = self.payload()
        self.size = float(running.config.job.roster.sizes(np.array([running.config.node])))
        self.heard: list[list[bytes]] = []
        self.front = 0

    async def go(self) -> None:
        server = grpc.aio.server(options=ALIVE)
        handlers = {
            "Follow": grpc.unary_stream_rpc_method_handler(self._follow),
            "Deliver": grpc.stream_stream_rpc_method_handler(self._deliver),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        server.add_secure_port(self.home.listen, server_credentials(self.home))
        await server.start()
        cards = [card for name, card in self.home.neighbours.items() if name in self.numbers]
        await asyncio.gather(*(self._haunt(card) for card in cards))

    # As others see it: alive, but not to be relied on.

    async def _follow(self, request: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        while True:
            yield self.rng.randbytes(40) if self.rng.random() < 0.02 else self._pulse()
            await asyncio.sleep(0.3)

    def _pulse(self) -> bytes:
        first = self.rng.choice([0] * 5 + [10**9])
        said = Welcome(accepted=True, version=wire.VERSION, session=self.session, round=self.claim(), first=first)
        text: bytes = said.SerializeToString()
        return text

    def claim(self) -> int:
        """The round that it says it is in."""
        lies = [0, self.rounds, 10**9]
        return self.rounds if self.front < AT_FIRST else self.rng.choice([self.front] * 4 + lies)

    async def _deliver(self, parts: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        """Take what comes, to send it on later."""
        async for first in parts:
            message, left = [first], Header.FromString(first).bytes
            while left > 0:
                message.append(await anext(parts))
                left -= len(message[-1])
            self.heard = [*self.heard[-20:], message]
            receipt = Receipt(accepted=True, round=self.front, session=self.session)
            yield self.rng.randbytes(40) if self.rng.random() < 0.02 else receipt.SerializeToString()

    # What it does to others.

    async def _haunt(self, card: Card) -> None:
        while True:
            with contextlib.suppress(*BROKEN):
                async with channel(self.home, card, [("grpc.use_local_subchannel_pool", 1)]) as line:
                    await Haunting(self, card, line).go()
            await asyncio.sleep(0.5)

    def payload(self, value: float = POISON, **changes: int) -> bytes:
        """A message of one number, whose fields may have other numbers of elements, or other names."""
        counts = {**self.fields, **changes}
        return bytes(wire.encode({name: torch.full((n,), value) for name, n in counts.items()}))

    def header(self, round: int, payload: bytes, **changes: Any) -> bytes:
        said: Header = wire.header(self.session, round, "model", self.code, self.size, payload)
        for key, value in changes.items():
            setattr(said, key, value)
        text: bytes = said.SerializeToString()
        return text


class Haunting:
    """The hostile peer's dealings with one neighbour, for as long as the line holds."""

    def __init__(self, by: Hostile, card: Card, line: grpc.aio.Channel) -> None:
        self.by, self.rng, self.tally, self.card = by, by.rng, by.tally, card
        self.follow = line.unary_stream(f"/{SERVICE}/Follow")
        self.deliver = line.stream_stream(f"/{SERVICE}/Deliver")
        self.round, self.late = 0, False

    async def go(self) -> None:
        call = self.follow(self.by.agreement.hello(self.by.session, self.by.claim(), False).SerializeToString())
        welcome = Welcome.FromString(await within(call.read(), 10))
        self.tally["greeting"][f"accepted by {self.card.name}" if welcome.accepted else welcome.reason] += 1
        self.round = welcome.round
        jobs = [self._listen(call), self._attack(), self._stall(), self._crowd()]
        tasks = [asyncio.create_task(job) for job in jobs]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, call: Any) -> None:
        while (said := await call.read()) is not grpc.aio.EOF:
            self.round = Welcome.FromString(said).round
            self.by.front = max(self.by.front, self.round)

    async def _attack(self) -> None:
        """In every round of the neighbour: all kinds of rubbish, then at last word that there is no model."""
        while True:
            now, loop = self.round, asyncio.get_running_loop()
            until = loop.time() + self.by.dawdle
            if self.late:  # nobody waits for who was late, until it is heard again: be early once
                await self._try("nothing, early", [self.by.header(now + 1, b"")])
            for name, parts in self.rng.sample(kinds := list(self._rubbish(now)), len(kinds)):
                await self._try(name, parts)
            await asyncio.sleep(max(until - loop.time(), 0))
            self.late = await self._try("nothing", [self.by.header(now, b"")]) == "past"
            await self._try("nothing twice", [self.by.header(now, b"")])
            while self.round == now and loop.time() < until + 2:
                await asyncio.sleep(0.05)

    def _rubbish(self, now: int) -> Iterator[tuple[str, list[bytes]]]:
        by, rng, sound = self.by, self.rng, self.by.sound
        start = 8 + int.from_bytes(sound[:8], "little")
        at = start + 4 * rng.randrange((len(sound) - start) // 4)
        for name, number in (("NaN", "nan"), ("infinity", "inf")):
            spoilt = _spoilt(sound, at, float(number))
            yield name, [by.header(now, spoilt), spoilt]
        yield from self._lies(now, at)
        for name, size in (("one element more", 1), ("one element less", -1), ("a million elements more", 10**6)):
            field = rng.choice(sorted(by.fields))
            wrong = by.payload(**{field: by.fields[field] + size})
            yield name, [by.header(now, wrong), *wire.chunks(wrong)]
        other = by.payload(evil=8)
        yield "another field", [by.header(now, other), other]
        yield "ten gigabytes promised", [by.header(now, sound, bytes=10**10), sound]
        yield "more than promised", [by.header(now, sound), sound + sound[:8]]
        yield "a chunk too large", [by.header(now, sound), bytes(wire.CHUNK + 900)]
        yield "a frame too large", [by.header(now, sound), bytes(2 * wire.CHUNK)]
        noise = rng.randbytes(len(sound))
        yield "random payload", [by.header(now, noise), noise]
        noise = sound[:start] + rng.randbytes(len(sound) - start)[:-4] + b"\xff\xff\xff\x7f"  # ends with a NaN
        yield "random numbers", [by.header(now, noise), noise]
        yield "random header", [rng.randbytes(rng.randrange(1, 200)), sound]
        yield "no header", []
        yield "wrong checksum", [by.header(now, sound, checksum=wire.checksum(sound) ^ 1 << rng.randrange(32)), sound]
        yield "half of it", [by.header(now, sound), sound[: len(sound) // 2]]
        yield "of the past", [by.header(rng.choice([0, max(now - 2, 0)]), sound), sound]
        yield "of the far future", [by.header(by.rounds + rng.randrange(1, 10**9), sound), sound]
        yield "another session", [by.header(now, sound, session=rng.randbytes(8).hex()), sound]
        if by.heard:
            yield "another's message", rng.choice(by.heard)
        yield "another version", [by.header(now, sound, version=99), sound]
        yield "another tag", [by.header(now, sound, tag="pickle"), sound]
        yield "another architecture", [by.header(now, sound, architecture="0" * 16), sound]
        yield "weight", [by.header(now, sound, size=rng.choice([-1.0, float("nan"), float("inf"), 1e300])), sound]

    def _lies(self, now: int, at: int) -> Iterator[tuple[str, list[bytes]]]:
        """Sound messages with numbers that no honest peer has, and somebody's model with a wrong amount of data."""
        by, rng = self.by, self.rng
        huge = by.payload(rng.choice([3e38, -3e38, 1e25, 1e4, -1e4]))
        yield ENORMOUS, [by.header(now, huge), huge]
        models = [message for message in by.heard if len(message) > 1]
        if models:
            good = b"".join(rng.choice(models)[1:])
            one = _spoilt(good, at, rng.choice([3e38, -1e30, 1e12]))
            yield ENORMOUS, [by.header(now, one), one]
            size = rng.choice([9.99e11, 3e38, 100 * by.size, by.size + 1, by.size / 2])
            yield SIZES, [by.header(now, good, size=size), good]

    async def _try(self, name: str, parts: list[bytes]) -> str:
        try:
            came = await receipt_of(self.deliver(stream(parts)))
            came = NOTHING if came == MERGED and len(parts) == 1 else came
        except grpc.aio.AioRpcError as error:
            came = f"call failed: {error.code().name.lower()}"
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                self.tally[name][came] += 1
                raise
        self.tally[name][came] += 1
        return came

    async def _stall(self) -> None:
        """Begin a message, and never end it."""
        while True:
            with contextlib.suppress(*BROKEN):
                call = self.deliver(stream([self.by.header(self.round, self.by.sound)], hold=30))
                self.tally["stalled"][await receipt_of(call)] += 1
            await asyncio.sleep(self.rng.uniform(0, 3))

    async def _crowd(self) -> None:
        """Open more streams than anybody may have."""
        while True:
            await asyncio.sleep(self.rng.uniform(1, 3))
            head = self.by.header(self.round, self.by.sound)
            begun = [[head]] * 3 + [[]] * 3
            await asyncio.gather(*(self._hold(self.deliver(stream(parts, hold=0.5))) for parts in begun))
            hello = self.by.agreement.hello(self.by.session, 1, False)
            await asyncio.gather(*(self._hang(hello) for _ in range(4)))
            hello.shared["rule.name"], hello.digest = '"evil"', "0" * 64
            await self._hang(hello)

    async def _hold(self, call: Any) -> None:
        with contextlib.suppress(*BROKEN):
            self.tally["many streams"][await receipt_of(call)] += 1

    async def _hang(self, hello: Hello) -> None:
        call = self.follow(hello.SerializeToString())
        try:
            welcome = Welcome.FromString(await within(call.read(), 10))
            self.tally["many greetings"]["accepted" if welcome.accepted else "disagreement"] += 1
            await asyncio.sleep(0.3)
        except grpc.aio.AioRpcError as error:
            self.tally["many greetings"][f"call failed: {error.code().name.lower()}"] += 1
        except BROKEN:
            pass
        finally:
            call.cancel()


def _spoilt(payload: bytes, at: int, number: float) -> bytes:
    """A payload with another number in one place."""
    return payload[:at] + torch.tensor(number).numpy().tobytes() + payload[at + 4 :]

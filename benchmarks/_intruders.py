"""Who means harm in `chaos.py`: a neighbour with a real key that sends rubbish, and strangers whom nobody knows.

Each runs as a process of its own until it is terminated, and leaves a file of what it tried and what came of it.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import ssl
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import torch

from coterie import files, records
from coterie.engines import peer as fleet
from coterie.net import wire
from coterie.net.certificates import SERVER
from coterie.net.contacts import ALIVE, SERVICE
from coterie.net.identity import Card, Home
from coterie.net.tls import channel, server_credentials
from coterie.net.wire_pb2 import Header, Hello, Receipt, Welcome
from coterie.peers.runtime import PeerRuntime

Tally = defaultdict[str, Counter[str]]
"""What was tried -> what came of it, and how often."""
MERGED, NOTHING = "accepted a model", "accepted word of nothing"
BROKEN = (grpc.aio.AioRpcError, asyncio.TimeoutError, grpc.aio.UsageError)
POISON = 1e6
"""What its sound messages consist of, so that one that were merged would show in the accuracy."""


def hostile(seed: int, dawdle: float, lying: bool, told: Path, *args: Any) -> None:
    """Play one node of a fleet, with the arguments of its configuration, and mean harm."""

    async def work(tally: Tally) -> None:
        await Hostile(PeerRuntime(fleet.peer_config(*args)), random.Random(seed), dawdle, lying, tally).go()

    _live(work, told)
    records.write_frame(args[-1] / "records.parquet", records.empty())
    os._exit(0)


def strangers(seed: int, told: Path, homes: list[Path]) -> None:
    """Knock at all these peers' doors with what does not open them."""
    _live(lambda tally: Strangers(told.parent / "strangers", homes, random.Random(seed), tally).go(), told)
    os._exit(0)


def _live(work: Callable[[Tally], Awaitable[None]], told: Path) -> None:
    """Work until terminated; then write down what was seen."""
    tally: Tally = defaultdict(Counter)

    async def until_told() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)  # type: ignore[union-attr]
        with contextlib.suppress(asyncio.CancelledError):
            await work(tally)

    try:
        asyncio.run(until_told())
    except Exception:  # an intruder that broke down proves nothing: let it be seen
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    files.write(told, json.dumps(tally).encode())


class Hostile:
    """A peer that greets as it should and then sends all that it should not."""

    def __init__(self, running: PeerRuntime, rng: random.Random, dawdle: float, lying: bool, tally: Tally) -> None:
        self.rng, self.tally, self.dawdle, self.lying = rng, tally, dawdle, lying
        self.home, self.session, self.agreement = running.config.home, running.links.contacts.session, running.agreement
        self.rounds, self.numbers = running.config.settings.rounds, running.config.numbers
        (self.code,) = self.agreement.codes
        self.fields = running.links.expected.architectures("model")[self.code]
        self.sound = bytes(wire.encode({name: torch.full((n,), POISON) for name, n in self.fields.items()}))
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
        yield self._pulse(self.front)
        while True:
            await asyncio.sleep(0.3)
            said = self.rng.choice([self.front] * 4 + [0, self.rounds, 10**9]) if self.lying else self.front
            yield self.rng.randbytes(40) if self.rng.random() < 0.02 else self._pulse(said)

    def _pulse(self, round: int) -> bytes:
        said = Welcome(accepted=True, version=wire.VERSION, session=self.session, round=round)
        text: bytes = said.SerializeToString()
        return text

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

    def payload(self, **changes: int) -> bytes:
        """A message whose fields have other numbers of elements, or other names."""
        counts = {**self.fields, **changes}
        return bytes(wire.encode({name: torch.full((n,), POISON) for name, n in counts.items()}))

    def header(self, round: int, payload: bytes, **changes: Any) -> bytes:
        said: Header = wire.header(self.session, round, "model", self.code, 1000.0, payload)
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
        call = self.follow(self.by.agreement.hello(self.by.session, self.by.front, False).SerializeToString())
        welcome = Welcome.FromString(await _within(call.read(), 10))
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
            spoilt = sound[:at] + torch.tensor(float(number)).numpy().tobytes() + sound[at + 4 :]
            yield name, [by.header(now, spoilt), spoilt]
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

    async def _try(self, name: str, parts: list[bytes]) -> str:
        try:
            came = await _receipt(self.deliver(_stream(parts)))
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
                call = self.deliver(_stream([self.by.header(self.round, self.by.sound)], hold=30))
                self.tally["stalled"][await _receipt(call)] += 1
            await asyncio.sleep(self.rng.uniform(0, 3))

    async def _crowd(self) -> None:
        """Open more streams than anybody may have."""
        while True:
            await asyncio.sleep(self.rng.uniform(1, 3))
            head = self.by.header(self.round, self.by.sound)
            begun = [[head]] * 3 + [[]] * 3
            await asyncio.gather(*(self._hold(self.deliver(_stream(parts, hold=0.5))) for parts in begun))
            hello = self.by.agreement.hello(self.by.session, 1, False)
            await asyncio.gather(*(self._hang(hello) for _ in range(4)))
            hello.shared["rule.name"], hello.digest = '"evil"', "0" * 64
            await self._hang(hello)

    async def _hold(self, call: Any) -> None:
        with contextlib.suppress(*BROKEN):
            self.tally["many streams"][await _receipt(call)] += 1

    async def _hang(self, hello: Hello) -> None:
        call = self.follow(hello.SerializeToString())
        try:
            welcome = Welcome.FromString(await _within(call.read(), 10))
            self.tally["many greetings"]["accepted" if welcome.accepted else "disagreement"] += 1
            await asyncio.sleep(0.3)
        except grpc.aio.AioRpcError as error:
            self.tally["many greetings"][f"call failed: {error.code().name.lower()}"] += 1
        except BROKEN:
            pass
        finally:
            call.cancel()


async def _within(answer: Awaitable[Any], seconds: float) -> Any:
    """Not `wait_for`, which may lose that the waiting task is cancelled."""
    async with asyncio.timeout(seconds):
        return await answer


async def _receipt(call: Any) -> str:
    """What became of a message."""
    try:
        answer = await _within(call.read(), 25)
    finally:
        call.cancel()
    if answer is grpc.aio.EOF:
        return "no receipt"
    receipt = Receipt.FromString(answer)
    return MERGED if receipt.accepted else str(receipt.reason)


async def _stream(parts: list[bytes], hold: float = 0) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    await asyncio.sleep(hold)


class Strangers:
    """Whoever is on nobody's card, or does not even speak TLS."""

    def __init__(self, folder: Path, homes: list[Path], rng: random.Random, tally: Tally) -> None:
        self.rng, self.tally = rng, tally
        self.cards = [Home(home).card for home in homes]
        names = [card.name for card in self.cards]
        self.own = Home.create(folder / "own", "stranger", "127.0.0.1:9")
        self.forged = {name: Home.create(folder / name, name, "127.0.0.1:9") for name in names}
        """Keys of its own in the neighbours' names."""

    async def go(self) -> None:
        await asyncio.gather(*(self._knock(card) for card in self.cards))

    async def _knock(self, card: Card) -> None:
        while True:
            another = self.rng.choice([name for name in self.forged if name != card.name])
            trusted = grpc.ssl_channel_credentials("".join(card.certificates).encode())
            named = [("grpc.ssl_target_name_override", SERVER), ("grpc.use_local_subchannel_pool", 1)]
            for way, line in (
                ("own certificate", channel(self.own, card, named[1:])),
                ("a neighbour's name", channel(self.forged[another], card, named[1:])),
                ("no certificate", grpc.aio.secure_channel(card.address, trusted, options=named)),
                ("no TLS", grpc.aio.insecure_channel(card.address, options=named[1:])),
            ):
                async with line:
                    follow = line.unary_stream(f"/{SERVICE}/Follow")(Hello(version=wire.VERSION).SerializeToString())
                    await self._call(f"{way}: Follow", follow.read())
                    deliver = line.stream_stream(f"/{SERVICE}/Deliver")(_stream([b"x"]))
                    await self._call(f"{way}: Deliver", deliver.read())
            await self._talk("HTTP", card, b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await self._talk("random bytes", card, self.rng.randbytes(200))
            await self._talk("TLS without a certificate, HTTP", card, b"GET / HTTP/1.1\r\n\r\n", encrypted=True)
            await asyncio.sleep(self.rng.uniform(0.3, 1.0))

    async def _call(self, way: str, answer: Awaitable[Any]) -> None:
        try:
            said = await _within(answer, 5)
            self.tally[way]["failed" if said is grpc.aio.EOF else "let in"] += 1
        except BROKEN as error:
            why = error.code().name.lower() if isinstance(error, grpc.aio.AioRpcError) else "no answer"
            self.tally[way][f"failed: {why}"] += 1

    async def _talk(self, way: str, card: Card, words: bytes, encrypted: bool = False) -> None:
        """Say something without gRPC; a TLS alert is the only answer that there may be."""
        host, _, port = card.address.rpartition(":")
        blind = ssl.create_default_context()
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        blind.set_alpn_protocols(["h2"])
        try:
            async with asyncio.timeout(5):
                reader, writer = await asyncio.open_connection(host, int(port), ssl=blind if encrypted else None)
                with contextlib.closing(writer):
                    writer.write(words)
                    said = await reader.read(100)
            self.tally[way]["let in" if said and said[0] != 0x15 else "failed"] += 1
        except (OSError, TimeoutError) as error:
            self.tally[way][f"failed: {type(error).__name__}"] += 1

"""Whoever is on nobody's card: they knock at all doors with what does not open them, or say nothing and stay."""

import asyncio
import contextlib
import os
import random
import socket
import ssl
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc

from chaos.acting import BROKEN, Tally, act, stream, within
from coterie.net import descriptors, wire
from coterie.net.addresses import split_address
from coterie.net.certificates import SERVER
from coterie.net.contacts import SERVICE
from coterie.net.doors import HANDSHAKE
from coterie.net.identity import Card, Home
from coterie.net.tls import channel
from coterie.net.wire_pb2 import Hello

SILENT = "silent connections"
PATIENCE = 150.0
"""Seconds beyond those that a peer gives a caller, after which one that is still there was not hung up on. A peer that
is stopped hangs up when it goes on."""
ANSWER = 10.0
"""Seconds in which a byte to who knows nothing of the connection is answered."""
BEGUN = bytes.fromhex("1603010200010001fc0303")
"""The first bytes of a TLS handshake that never goes on."""


def strangers(seed: int, silent: int, told: Path, homes: list[Path]) -> None:
    """Knock at all these peers' doors, now and then with so many silent connections at once."""
    act(lambda tally: Strangers(told.parent / "strangers", homes, random.Random(seed), tally).go(silent), told)
    os._exit(0)


class Strangers:
    """Whoever is on nobody's card, or does not even speak TLS."""

    def __init__(self, folder: Path, homes: list[Path], rng: random.Random, tally: Tally) -> None:
        self.rng, self.tally = rng, tally
        self.cards = [Home(home).card for home in homes]
        names = [card.name for card in self.cards]
        self.own = Home.create(folder / "own", "stranger", "127.0.0.1:9")
        self.forged = {name: Home.create(folder / name, name, "127.0.0.1:9") for name in names}
        """Keys of its own in the neighbours' names."""

    async def go(self, silent: int) -> None:
        await asyncio.gather(*(self._knock(card) for card in self.cards), self._besiege(silent))

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
                    deliver = line.stream_stream(f"/{SERVICE}/Deliver")(stream([b"x"]))
                    await self._call(f"{way}: Deliver", deliver.read())
            await self._talk("HTTP", card, b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await self._talk("random bytes", card, self.rng.randbytes(200))
            await self._talk("TLS without a certificate, HTTP", card, b"GET / HTTP/1.1\r\n\r\n", encrypted=True)
            await asyncio.sleep(self.rng.uniform(0.3, 1.0))

    async def _call(self, way: str, answer: Awaitable[Any]) -> None:
        try:
            said = await within(answer, 5)
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

    async def _besiege(self, count: int) -> None:
        """Open many connections to one peer after the other and say nothing, or only the beginning of a greeting."""
        free = descriptors.raise_limit() - len(os.listdir("/dev/fd")) - descriptors.RESERVED
        while True:
            card = self.rng.choice(self.cards)
            with contextlib.ExitStack() as stack:
                callers = [stack.enter_context(socket.socket()) for _ in range(min(count, free))]
                for caller in callers:
                    caller.setblocking(False)
                    caller.connect_ex(split_address(card.address))
                await asyncio.sleep(1)
                callers = [caller for caller in callers if _connected(caller)]  # not those whose call got lost
                for caller in callers[::2]:
                    with contextlib.suppress(OSError):
                        caller.send(BEGUN)
                await self._wait_out(callers, card.name)

    async def _wait_out(self, callers: list[socket.socket], name: str) -> None:
        loop = asyncio.get_running_loop()
        end, left = loop.time() + HANDSHAKE + PATIENCE, callers
        while left and loop.time() < end:
            await asyncio.sleep(0.5)
            left = [caller for caller in left if _held(caller)]
        for caller in left:  # one whose call came when the peer's queue was full only believes that it was taken
            with contextlib.suppress(OSError):
                caller.send(b"x")
        await asyncio.sleep(ANSWER if left else 0)
        left = [caller for caller in left if _held(caller)]
        self.tally[SILENT]["hung up on"] += len(callers) - len(left)
        if left:
            self.tally[SILENT][f"still at {name}"] += len(left)


def _connected(caller: socket.socket) -> bool:
    try:
        caller.getpeername()
    except OSError:
        return False
    return True


def _held(caller: socket.socket) -> bool:
    """Whether a silent connection is still there."""
    try:
        return bool(caller.recv(100))
    except BlockingIOError:
        return True
    except OSError:
        return False

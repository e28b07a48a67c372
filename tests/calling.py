"""A neighbour by hand: real sockets, keys and TLS, and of the protocol as much as a test wants."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import torch

from coterie.net import wire
from coterie.net.addresses import split_address
from coterie.net.contacts import SERVICE
from coterie.net.tls import channel
from coterie.net.wire_pb2 import Receipt, Welcome
from coterie.peers.runtime import PeerConfig, PeerRuntime
from peering import cancelled, given


class Caller:
    """Node 1 by hand: it keeps to the protocol only as far as the test wants."""

    def __init__(self, running: PeerRuntime, to: PeerConfig) -> None:
        self.self, self.to = running, to
        self.payload = wire.encode({"w": torch.ones(running.node.params.numel())})
        (self.code,) = running.agreement.codes
        self.size = float(running.node.trainer.me(running.node.row, 0).size)

    @asynccontextmanager
    async def line(self) -> AsyncIterator[grpc.aio.Channel]:
        async with channel(self.self.config.home, self.to.home.card) as line:
            call = line.unary_stream(f"/{SERVICE}/Follow")(self.self.links.contacts.hello().SerializeToString())
            assert Welcome.FromString(await call.read()).accepted
            yield line
            call.cancel()

    def header(self, **changes: Any) -> bytes:
        made = wire.header(self.self.links.contacts.session, 1, "model", self.code, self.size, self.payload)
        for name, value in changes.items():
            setattr(made, name, value)
        text: bytes = made.SerializeToString()
        return text

    async def whole(self, **changes: Any) -> AsyncIterator[bytes]:
        yield self.header(**changes)
        for chunk in wire.chunks(self.payload):
            yield chunk

    async def half(self, *, then: "asyncio.Event") -> AsyncIterator[bytes]:
        yield self.header()
        yield bytes(self.payload[: len(self.payload) // 2])
        await then.wait()

    async def bring(self, line: grpc.aio.Channel, parts: AsyncIterator[bytes]) -> Receipt:
        """The receipt of the first message; calls are ended by those who opened them."""
        call = line.stream_stream(f"/{SERVICE}/Deliver")(parts, timeout=60)
        answer = await call.read()
        call.cancel()
        return Receipt.FromString(answer)


@asynccontextmanager
async def called(folder: Path, **settings: Any) -> AsyncIterator[tuple[PeerRuntime, Caller]]:
    """Node 0, waiting for its neighbours, and node 1 by hand."""
    crew = given(folder, **settings)
    peer, other = PeerRuntime(crew[0]), PeerRuntime(crew[1])
    task = asyncio.create_task(peer.go())
    try:
        await listening(peer, task)
        yield peer, Caller(other, crew[0])
    finally:
        await cancelled([task])


async def listening(peer: PeerRuntime, task: "asyncio.Task[Any]") -> None:
    """Wait until a peer can be called, or has ended."""
    host, port = split_address(peer.config.home.listen)
    while not task.done():
        with suppress(OSError):
            (await asyncio.open_connection(host, port))[1].close()
            return
        await asyncio.sleep(0.01)


def taken(peer: PeerRuntime) -> int:
    return sum(len(box.bytes) for box in peer.mailroom.mailbox.boxes.values())

"""Lines to a neighbour: over a connection that we dialled, or over streams that it lent us because nobody can dial it.

Behind a router that translates addresses a peer can call and cannot be called. It then opens streams to its neighbour
and serves them as if the neighbour had: the same greetings, pulses, messages and receipts, in the other direction. Both
ends have shown their certificates when the connection was made, so it does not matter who dialled.
"""

import asyncio
from typing import Any, Literal, Protocol

import grpc

Kind = Literal["FollowBack", "DeliverBack"]


class Call(Protocol):
    """A stream on which both ends speak."""

    async def read(self) -> Any:
        """What comes next, or EOF."""
        ...

    async def write(self, part: bytes) -> None:
        """Say something."""
        ...

    def cancel(self) -> bool:
        """End it."""
        ...


class Way(Protocol):
    """A way to a neighbour."""

    async def follow(self, hello: bytes) -> Call:
        """Greet it; what is read from then on are its pulses."""
        ...

    async def deliver(self) -> Call:
        """A stream to bring it messages on."""
        ...


class Dialled:
    """Over a connection that we made."""

    def __init__(self, channel: grpc.aio.Channel, service: str) -> None:
        self.channel, self._service = channel, service

    async def follow(self, hello: bytes) -> Any:
        """One call, which begins with a greeting."""
        return self.channel.unary_stream(f"/{self._service}/Follow")(hello)

    async def deliver(self) -> Any:
        """Another call."""
        return self.open("Deliver")

    async def unary(self, name: str, seconds: float = 10.0) -> bytes:
        """The answer to a question of this name."""
        answer: bytes = await self.channel.unary_unary(f"/{self._service}/{name}")(b"", timeout=seconds)
        return answer

    def open(self, name: str) -> Any:
        """A stream for a call of this name."""
        return self.channel.stream_stream(f"/{self._service}/{name}")()


class LentCall:
    """A stream that the neighbour has opened, and that we use as if we had."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.over = asyncio.Event()

    async def read(self) -> Any:
        """What comes next, or EOF."""
        return await self._context.read()

    async def write(self, part: bytes) -> None:
        """Say something."""
        await self._context.write(part)

    def cancel(self) -> bool:
        """Give it back."""
        self.over.set()
        return True


class Lent:
    """Over streams that the neighbour lends us: at most one of a kind lies ready, and the newest counts."""

    def __init__(self) -> None:
        self._ready: dict[Kind, LentCall] = {}
        self.arrived = asyncio.Event()
        """Set while there is one on which to greet."""
        self._more = asyncio.Event()

    async def take(self, kind: Kind, context: Any) -> None:
        """Have a stream, until it has been used or a newer one has come."""
        call = LentCall(context)
        if kind in self._ready:
            self._ready[kind].cancel()
        self._ready[kind] = call
        self._note()
        try:
            await call.over.wait()
        finally:
            call.cancel()
            if self._ready.get(kind) is call:
                del self._ready[kind]
            self._note()

    async def follow(self, hello: bytes) -> LentCall:
        """Greet the neighbour."""
        call = self._ready.pop("FollowBack")
        self._note()
        await call.write(hello)
        return call

    async def deliver(self) -> LentCall:
        """A stream to bring messages on, as soon as there is one."""
        while "DeliverBack" not in self._ready:
            self._more.clear()
            await self._more.wait()
        return self._ready.pop("DeliverBack")

    def _note(self) -> None:
        self._more.set()
        if "FollowBack" in self._ready:
            self.arrived.set()
        else:
            self.arrived.clear()

"""Dialling a neighbour to see how far one comes, and having it dial back."""

import asyncio
import contextlib
import errno
import time
from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from coterie.errors import PeerError, Refused
from coterie.net.addresses import split_address
from coterie.net.contacts import SERVICE
from coterie.net.identity import Card, Home
from coterie.net.questions import question
from coterie.net.tls import STRANGER, caller, channel
from coterie.net.wire_pb2 import Reached

PATIENCE = 5.0
"""Seconds in which somebody must answer."""
REST = 5.0
"""Seconds between two times of dialling one neighbour back."""

WORDS = {
    "": "reached",
    "name": "the host's name is not known",
    "closed": "nobody listens on that port, or a firewall refuses",
    "silence": "no answer: a firewall that drops it, or an address that is not reached from there (a router, NAT)",
    "route": "there is no way to that network",
    "another": "somebody answers, but not with the keys on the cards: exchange cards anew, or another program is there",
    "stranger": "it does not know this peer: its card is missing there, or it must be started again",
    "too-many": "asked too often: wait some seconds",
}
"""What may go wrong, by the short words that peers tell each other."""


async def reach(home: Home, card: Card) -> str:
    """Dial a neighbour at the address on its card, and hang up: what went wrong, if something did."""
    host, port = split_address(card.address)
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
    except TimeoutError:
        return "silence"
    except OSError as error:
        return _word(error)
    async with channel(home, card) as line:
        try:
            await line.unary_unary(f"/{SERVICE}/Ping")(b"", timeout=PATIENCE)
        except grpc.aio.AioRpcError as error:
            return "stranger" if error.code() == grpc.StatusCode.UNAUTHENTICATED else "another"
    return ""


def _word(error: OSError) -> str:
    if error.errno == errno.ECONNREFUSED:
        return "closed"
    if error.errno == errno.ETIMEDOUT:
        return "silence"
    return "route" if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EPERM) else "name"


REASONS = {
    "refused": "closed",
    "timed out": "silence",
    "timeout": "silence",
    "unreachable": "route",
    "no route": "route",
    "resolution": "name",
    "not known": "name",
}
"""What gRPC says when it comes nowhere -> a short word."""


def in_words(error: grpc.aio.AioRpcError, address: str) -> str:
    """Why a call to this address has come to nothing."""
    said = str(error.details())
    reason = next((word for part, word in REASONS.items() if part in said.lower()), None)
    if error.code() != grpc.StatusCode.UNAVAILABLE or reason is None:
        return f"{error.code().name.lower()}: {said}"
    return f"{address}: {WORDS[reason]}"


async def ask_back(home: Home, card: Card) -> Reached:
    """Ask a neighbour that can be reached to dial us."""
    async with channel(home, card) as line:
        try:
            call = line.unary_unary(f"/{SERVICE}/DialBack")
            found: Reached = Reached.FromString(await call(b"", timeout=3 * PATIENCE))
        except (grpc.aio.AioRpcError, DecodeError):
            raise PeerError(f"{card.name} did not say how dialling back went") from None
    return found


class Dialling:
    """Answers neighbours who look for what keeps us apart. It dials no address but the one on the caller's card."""

    def __init__(self, home: Home, cards: Mapping[str, Card]) -> None:
        self.home, self.cards = home, cards
        self._next: dict[str, float] = {}

    def handlers(self) -> dict[str, Any]:
        """By the names of calls."""
        return {"Ping": question(self.ping), "DialBack": question(self.dial_back)}

    async def ping(self, _: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """Nothing, to a neighbour."""
        await self._neighbour(context)
        return b""

    async def dial_back(self, _: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """How far one comes from here to who calls."""
        card = await self._neighbour(context)
        now, found = time.monotonic(), Reached(address=card.address, clock=time.time())
        if now < self._next.get(card.name, 0.0):
            found.trouble = "too-many"
        else:
            self._next[card.name] = now + REST + 2 * PATIENCE
            try:
                found.trouble = await reach(self.home, card)
            except Exception:  # whatever it was, it tells no more than that
                found.trouble = "another"
            self._next[card.name] = time.monotonic() + REST
        text: bytes = found.SerializeToString()
        return text

    async def _neighbour(self, context: grpc.aio.ServicerContext) -> Card:
        with contextlib.suppress(Refused, KeyError):
            return self.cards[caller(context, self.cards)]
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, STRANGER)
        raise AssertionError("abort does not return")

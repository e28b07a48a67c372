"""Doing without being dialled: a neighbour calls us over streams that we open, and we ask for what it would tell."""

import asyncio
import contextlib

import grpc
from google.protobuf.message import DecodeError

from coterie.errors import Refused
from coterie.net.acquaintances import EACH
from coterie.net.contacts import Link
from coterie.net.lines import Dialled
from coterie.net.reception import Reception
from coterie.net.wire_pb2 import Introductions

GRACE = 2.0
"""Seconds in which a neighbour that we reach should have reached us."""

ASK = 5.0
"""Seconds between two questions whether there are introductions."""


async def lend(link: Link, line: Dialled, reception: Reception) -> None:
    """While we follow a neighbour that does not follow us: it may, over a stream of ours."""
    while True:
        await asyncio.sleep(GRACE)
        if link.followers:
            continue
        call = line.open("FollowBack")
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, Refused):  # the line breaks, or so
            try:
                hello = await call.read()
                if hello is not grpc.aio.EOF:
                    await _be_followed(link, line, reception, call, hello)
            finally:
                call.cancel()


async def _be_followed(
    link: Link, line: Dialled, reception: Reception, call: grpc.aio.StreamStreamCall, hello: bytes
) -> None:
    async def read() -> bytes:
        return hello

    taking = asyncio.create_task(_be_brought(link, line, reception))
    try:
        async with contextlib.aclosing(reception.greeted(link, read)) as answers:
            async for said in answers:
                await call.write(said)
    finally:
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)


async def _be_brought(link: Link, line: Dialled, reception: Reception) -> None:
    """Take messages on streams of ours, one after the other: each ends with the first message that is refused."""
    while True:
        call = line.open("DeliverBack")
        try:
            async with contextlib.aclosing(reception.brought(link, call.read)) as receipts:
                async for said in receipts:
                    await call.write(said)
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:  # the neighbour ends it, when it has our receipt
                pass
        finally:
            call.cancel()
        await asyncio.sleep(0.1)


async def ask(link: Link, line: Dialled, reception: Reception) -> None:
    """Ask a neighbour now and then whether it would introduce somebody: perhaps it cannot dial us to say so."""
    while True:
        await asyncio.sleep(ASK)
        with contextlib.suppress(grpc.aio.AioRpcError, DecodeError):
            found = Introductions.FromString(await line.unary("Introductions"))
            for each in found.all[:EACH]:
                await reception.hear_of(link.card.name, each.SerializeToString())

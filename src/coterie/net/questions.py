"""Calls with one question and one answer."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from coterie.errors import Refused
from coterie.net.contacts import STALL
from coterie.net.tls import STRANGER, shown

Answering = Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]]

FEW = 2
"""Questions of a name that one caller may have begun and not ended."""


def question(answer: Answering) -> Any:
    """The handler of such a call, for gRPC.

    The question is read from the context, so that a caller has memory for few of them: gRPC itself would read each to
    its end, however many they are and however long that takes, before we heard of them.
    """
    begun: Counter[str] = Counter()

    async def serve(_: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        try:
            who = shown(context)
        except Refused:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, STRANGER)
        if begun[who] >= FEW:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too-many")
        begun[who] += 1
        try:
            said = await _within(STALL, context)
            yield await answer(b"" if said is grpc.aio.EOF else said, context)
        finally:
            begun[who] -= 1
            if not begun[who]:
                del begun[who]

    return grpc.stream_stream_rpc_method_handler(serve)


async def _within(seconds: float, context: grpc.aio.ServicerContext) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await context.read()
    except TimeoutError:
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "slow")
        raise AssertionError("abort does not return") from None

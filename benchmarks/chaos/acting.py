"""What all who mean harm have in common: they act until they are terminated, and leave a file of what came of it."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from coterie import files
from coterie.net.wire_pb2 import Receipt

Tally = defaultdict[str, Counter[str]]
"""What was tried -> what came of it, and how often."""
MERGED, NOTHING = "accepted a model", "accepted word of nothing"
BROKEN = (grpc.aio.AioRpcError, asyncio.TimeoutError, grpc.aio.UsageError)


def act(work: Callable[[Tally], Awaitable[None]], told: Path) -> None:
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


async def within(answer: Awaitable[Any], seconds: float) -> Any:
    """Not `wait_for`, which may lose that the waiting task is cancelled."""
    async with asyncio.timeout(seconds):
        return await answer


async def receipt_of(call: Any) -> str:
    """What became of a message."""
    try:
        answer = await within(call.read(), 25)
    finally:
        call.cancel()
    if answer is grpc.aio.EOF:
        return "no receipt"
    receipt = Receipt.FromString(answer)
    return MERGED if receipt.accepted else str(receipt.reason)


async def stream(parts: list[bytes], hold: float = 0) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    await asyncio.sleep(hold)

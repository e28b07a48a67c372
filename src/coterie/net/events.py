"""Waiting for events on the event loop."""

import asyncio
import contextlib


async def happens(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, so long at most. Not with `wait_for`, which may lose that the waiting task is cancelled."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()

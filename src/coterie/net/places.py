"""Places for messages on their way in: few, so that memory is bounded, and held by nobody who keeps us waiting."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

PATIENCE = 3.0
"""Seconds that a message may keep us waiting for its parts, all in all, before its place goes to another."""


class StagingPlace:
    """One of the shared places, of which each neighbour has one at most; given back at the end, or to the more lively.

    Whoever has lost its place goes on without: it is slow, and there are no more of these than neighbours have streams.
    """

    def __init__(self, shared: asyncio.Semaphore, own: asyncio.Lock) -> None:
        self._shared, self._own, self._loop = shared, own, asyncio.get_running_loop()
        self._held = False
        self._idle, self._since = 0.0, 0.0
        """Seconds of waiting so far, and when that of the present began, if there is one."""

    async def __aenter__(self) -> "StagingPlace":
        async with contextlib.AsyncExitStack() as safe:
            await safe.enter_async_context(self._own)
            await self._shared.acquire()
            safe.pop_all()
        self._held = True
        self._timer = self._loop.call_later(PATIENCE, self._look)
        return self

    async def __aexit__(self, *_: Any) -> None:
        self._timer.cancel()
        self._leave()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While the neighbour is waited for."""
        self._since = self._loop.time()
        try:
            yield
        finally:
            self._idle += self._loop.time() - self._since
            self._since = 0.0

    def _look(self) -> None:
        idle = self._idle + (self._loop.time() - self._since if self._since else 0.0)
        if idle >= PATIENCE:
            self._leave()
        else:
            self._timer = self._loop.call_later(PATIENCE - idle, self._look)

    def _leave(self) -> None:
        if self._held:
            self._held = False
            self._shared.release()
            self._own.release()


class Rest:
    """How long a neighbour's messages are not taken after one that was too slow: longer each time, until one comes."""

    FIRST, LONGEST = 10.0, 320.0

    def __init__(self) -> None:
        self._pause, self._until = 0.0, 0.0

    def begin(self, now: float) -> None:
        """A message was too slow."""
        self._pause = min(2 * self._pause, self.LONGEST) if self._pause else self.FIRST
        self._until = now + self._pause

    def end(self) -> None:
        """A message came in time."""
        self._pause = self._until = 0.0

    def left(self, now: float) -> float:
        """Seconds until the next message is taken."""
        return max(self._until - now, 0.0)

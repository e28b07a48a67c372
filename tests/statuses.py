"""A status to show, and a visit to where it is shown."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from coterie.net import web
from coterie.net.status import NeighbourStatus, Status, serve

NASTY = 'x\x1b[2J\n{"level":"critical"}\r\u202e\u2028[bold]"\\'
"""Text as a neighbour might send it to break a line, steer a terminal or pass for markup."""


def example() -> Status:
    """Alice in round 7 of 20; bob is with her, carol has gone."""
    bob = NeighbourStatus("bob", "b:1", True, round=7, sent=7, received=6, sent_bytes=700, received_bytes=600)
    bob.last_heard = time.time()
    carol = NeighbourStatus("carol", "c:1", round=4, missed=3, last_error="connection refused")
    carol.refuse("not-finite", "weights hold nan")
    carol.refuse("shape")
    carol.refuse("shape", "3 for 4")
    known = {"bob": bob, "carol": carol, "dave": NeighbourStatus("dave")}
    return Status("alice", "s1", "dechw", 3, 7, 20, "training", 0.75, score=0.75, sent_bytes=1400, neighbours=known)


def visiting(
    visit: Callable[[web.Server], Awaitable[Any]], status: Status | None = None, host: str = "127.0.0.1"
) -> Any:
    """What a visit to the served status brings home."""

    async def there_and_back() -> Any:
        server = await serve(status or example(), host)
        try:
            return await asyncio.wait_for(visit(server), 20)
        finally:
            server.close()
            await server.wait_closed()

    return asyncio.run(there_and_back())


def row(text: str, name: str) -> list[str]:
    """The words of the line that starts with a name."""
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [name])

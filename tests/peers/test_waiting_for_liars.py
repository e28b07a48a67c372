"""A neighbour that says it has not begun holds nobody up for good who is away and waits to join."""

import asyncio
from pathlib import Path

import pytest

from coterie.mail.pace import Timing
from coterie.peers import runtime
from coterie.peers.runtime import PeerRuntime
from peering import given, kept, run


def test_one_that_never_begins_keeps_nobody_from_joining(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "LINGER", 0.5)
    timing = {"timing": Timing(deadline=1.0), "wait": 0.5}
    crew = given(tmp_path, timing, nodes=4, rounds=6, total=160, joins={0: 4})

    async def scene() -> None:
        *honest, liar = [PeerRuntime(config) for config in crew]
        await liar.links.open()  # it greets and lives, and does nothing else
        await asyncio.gather(*(peer.go() for peer in honest))
        await liar.links.close()

    run(scene(), 90)
    assert kept(crew[0])[0]["round"] == "6"
    assert kept(crew[0])[2]["batches"].to_list()[-1] == 2 * 3

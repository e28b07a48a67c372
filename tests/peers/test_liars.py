"""Neighbours who say that they are further than they are."""

import asyncio
from pathlib import Path

import pytest

from coterie.peers import runtime
from coterie.peers.runtime import PeerRuntime
from peering import given, kept, run, until


def test_a_liar_who_is_up_first_makes_nobody_skip_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three says that it is in the last round, long before the other two are up."""
    monkeypatch.setattr(runtime, "LATE", 0.05)
    crew = given(tmp_path, nodes=4, rounds=5, total=160)

    async def scene() -> None:
        running = [PeerRuntime(a) for a in crew]
        victim, liar = running[:2]
        tasks = [asyncio.create_task(r.go()) for r in running[:2]]
        await until(lambda: victim.pace.neighbours[1].alive and liar.pace.neighbours[0].alive)
        liar.pace.reached = 5
        await until(lambda: victim.pace.neighbours[1].round == 5)
        await asyncio.sleep(0.5)  # as long as a few looks, and many times what a peer waits that is late
        assert victim.status.round == 0
        await asyncio.gather(*tasks, *(r.go() for r in running[2:]))

    run(scene(), 60)
    rows = kept(crew[0])[2]
    assert rows["batches"].to_list()[-1] == 2 * 5
    assert rows["round"].to_list() == [0, 1, 2, 3, 4, 5]


def test_a_liar_who_is_alone_with_a_peer_hurries_it_by_a_quarter_at_most(tmp_path: Path) -> None:
    crew = given(tmp_path, {"wait": 0.5}, nodes=4, rounds=40, evaluate=40, total=160)

    async def scene() -> None:
        victim, _ = running = [PeerRuntime(a) for a in crew[:2]]

        async def lie() -> None:
            while victim.status.state != "finished":
                victim.pace.neighbours[1].reach(40, False, 0.0)
                await asyncio.sleep(0)

        lying = asyncio.create_task(lie())
        await asyncio.gather(*(r.go() for r in running), lying)

    run(scene(), 60)
    assert kept(crew[0])[0]["round"] == "40"
    assert kept(crew[0])[2]["batches"].to_list()[-1] >= 2 * 30

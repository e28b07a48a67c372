"""Peers of which one cannot be dialled: both directions over the connection that it opened itself."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calling import listening
from coterie.engines.peer import free_ports
from coterie.mail.pace import Timing
from coterie.net import lending
from coterie.net.contacts import SERVICE
from coterie.net.tls import channel
from coterie.peers.runtime import PeerConfig, PeerRuntime
from peering import cancelled, equal, given, run, together, until


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "GRACE", 0.1)


def hidden(crew: list[PeerConfig], who: int) -> list[PeerConfig]:
    """The same peers, of which one has a card with an address where nobody answers."""
    card = crew[who].home.card
    for config in crew:
        if config is not crew[who]:
            config.home.add(replace(card, address=f"127.0.0.1:{free_ports(1)[0]}"))
    return crew


@pytest.mark.parametrize("method", ["decavg", "cfa-ge"])
def test_who_cannot_be_dialled_takes_part_as_any_other(method: str, tmp_path: Path) -> None:
    quiet = given(tmp_path / "open", rounds=4, methods=method)
    run(together(quiet, in_turn=True))
    crew = hidden(given(tmp_path / "hidden", rounds=4, methods=method), 2)
    run(together(crew, in_turn=True))
    equal(quiet, crew)


def test_it_is_found_again_after_it_has_stopped(tmp_path: Path) -> None:
    timing = {"timing": Timing(deadline=20), "wait": 20.0}
    crew = hidden(given(tmp_path, timing, rounds=100_000, evaluate=100_000), 0)

    async def scene() -> None:
        running = [PeerRuntime(config) for config in crew]
        tasks = [asyncio.create_task(peer.go()) for peer in running]

        def heard(by: PeerRuntime) -> int:
            return by.status.neighbours["node-0"].received

        await until(lambda: heard(running[1]) >= 3 and heard(running[2]) >= 3)
        tasks[0].cancel()
        await until(lambda: not any(each.status.neighbours["node-0"].alive for each in running[1:]))
        before = heard(running[1])
        tasks.append(asyncio.create_task(PeerRuntime(crew[0]).go()))
        await until(lambda: heard(running[1]) >= before + 3)
        await cancelled(tasks)

    run(scene())


def test_who_lends_many_streams_holds_two(tmp_path: Path) -> None:
    """Of those that lie ready the newest counts, and the others are given back at once."""
    crew = hidden(given(tmp_path, rounds=100_000, evaluate=100_000), 0)

    async def scene() -> None:
        peer = PeerRuntime(crew[1])
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(peer.go())]
        await listening(peer, tasks[0])
        async with channel(crew[0].home, crew[1].home.card) as line:
            open_ = line.stream_stream(f"/{SERVICE}/DeliverBack")
            calls = [open_() for _ in range(5)]
            ends = [asyncio.create_task(call.read()) for call in calls]
            await until(lambda: sum(end.done() for end in ends) == 4)
            assert len(peer.links.contacts.by_name["node-0"].calls) == 1
            for call in calls:
                call.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        await cancelled(tasks)

    run(scene())

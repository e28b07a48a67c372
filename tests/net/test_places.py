"""Whose messages come in, where some neighbours send theirs slowly, or promise them and send nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from calling import Caller, listening
from coterie.net import places, reception
from coterie.net.contacts import SERVICE
from coterie.net.places import Rest, StagingPlace
from coterie.net.reception import STAGED
from coterie.net.wire_pb2 import Receipt
from coterie.peers.runtime import PeerRuntime
from peering import cancelled, given, run, until


@asynccontextmanager
async def hub(folder: Path, hostile: int) -> AsyncIterator[tuple[PeerRuntime, list[Caller]]]:
    """Node 0, and each of its neighbours by hand: so many hostile ones, then an honest one."""
    crew = given(folder, {"wait": 600.0}, nodes=hostile + 2, topology="star", total=(hostile + 2) * 12, partition="iid")
    peer, other = PeerRuntime(crew[0]), PeerRuntime(crew[1])
    task = asyncio.create_task(peer.go())
    await listening(peer, task)
    template, callers = Caller(other, crew[0]), []
    for config in crew[1:]:
        caller = Caller.__new__(Caller)
        caller.__dict__.update(template.__dict__, self=SimpleNamespace(config=config, links=other.links))
        callers.append(caller)
    try:
        yield peer, callers
    finally:
        await cancelled([task])


@pytest.mark.parametrize(
    ("hostile", "parts", "patience"),
    [(STAGED // 2, 2, 600.0), (STAGED, 1, 600.0), (STAGED + 1, 2, 0.1)],
    ids=["a few who begin to send", "many who only promise", "many who begin to send"],
)
def test_who_sends_slowly_starves_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: int, parts: int, patience: float
) -> None:
    """A neighbour has one place at most, none before its data come, and none any more when they cease to."""
    monkeypatch.setattr(places, "PATIENCE", patience)
    monkeypatch.setattr(reception, "STALL", 600.0)

    async def scene() -> None:
        async with hub(tmp_path, hostile) as (peer, callers), AsyncExitStack() as lines:
            *slow, good = callers
            for caller in slow:
                line = await lines.enter_async_context(caller.line())
                for _ in range(reception.STREAMS):
                    call = line.stream_stream(f"/{SERVICE}/Deliver")()
                    lines.callback(call.cancel)
                    for part in [caller.header(), bytes(caller.payload[:100])][:parts]:
                        await call.write(part)
            links = list(peer.links.contacts.by_name.values())[:hostile]
            await until(lambda: all(link.streams == reception.STREAMS for link in links))
            await asyncio.sleep(0.3)  # for what was sent to be read
            async with good.line() as line:
                assert (await good.bring(line, good.whole())).accepted

    run(scene(), 30)


def test_after_a_slow_message_nothing_is_taken_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rest, "FIRST", 600.0)
    monkeypatch.setattr(reception, "STALL", 0.2)

    async def scene() -> None:
        async with hub(tmp_path, 1) as (peer, (slow, good)):
            async with slow.line() as line:
                receipt: Receipt = await slow.bring(line, slow.half(then=asyncio.Event()))
                assert receipt.reason == "slow"
                assert (await slow.bring(line, slow.whole())).reason == "too-many"
                peer.links.contacts.by_name["node-1"].rest.end()
                assert (await slow.bring(line, slow.whole())).accepted
            async with good.line() as line:
                assert (await good.bring(line, good.whole())).accepted

    run(scene(), 30)


def test_rests_grow_until_a_message_comes_in_time() -> None:
    rest, now = Rest(), 1000.0
    assert rest.left(now) == 0
    for pause in (10, 20, 40, 80, 160, 320, 320):
        rest.begin(now)
        assert rest.left(now) == pause
        assert rest.left(now + pause) == 0
    rest.end()
    rest.begin(now)
    assert rest.left(now) == 10


def test_a_place_that_was_waited_for_in_vain_is_not_lost() -> None:
    async def scene() -> None:
        shared, own = asyncio.Semaphore(1), asyncio.Lock()

        async def stay() -> None:
            async with StagingPlace(shared, own):
                await asyncio.Event().wait()

        holder = asyncio.create_task(stay())
        await until(own.locked)
        others = [asyncio.create_task(stay()), asyncio.create_task(StagingPlace(shared, asyncio.Lock()).__aenter__())]
        await asyncio.sleep(0)
        await cancelled([*others, holder])
        assert not own.locked()
        async with StagingPlace(shared, own):
            assert own.locked()

    run(scene(), 30)

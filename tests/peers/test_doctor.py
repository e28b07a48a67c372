"""The doctor: what it finds between two peers, from both sides, and what it advises."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from coterie.app.cli import main
from coterie.engines.peer import free_ports
from coterie.net import dialling
from coterie.net.dialling import Dialling, ask_back
from coterie.net.doors import Door
from coterie.net.identity import Home
from coterie.peers.doctor import Finding, examine
from peering import run


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Home, Home]:
    alice, bob = (
        Home.create(tmp_path / n, n, f"127.0.0.1:{p}") for n, p in zip(("alice", "bob"), free_ports(2), strict=True)
    )
    alice.add(bob.card)
    bob.add(alice.card)
    return alice, bob


@asynccontextmanager
async def at_work(home: Home) -> AsyncIterator[None]:
    door = Door(home)
    await door.open(Dialling(home, home.neighbours).handlers(), 1)
    try:
        yield
    finally:
        await door.close()


def found(home: Home, other: Home | None = None) -> dict[str, Finding]:
    async def scene() -> list[Finding]:
        if other is None:
            return await examine(home)
        async with at_work(other):
            return await examine(home)

    return {each.about: each for each in run(scene())}


def test_all_is_well(pair: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = pair
    said = found(alice, bob)
    assert {about: each.state for about, each in said.items() if about not in ("disk", "memory")} == {
        "listens": "ok",
        "certificate": "ok",
        "bob, from here": "ok",
        "bob, to here": "ok",
    }
    assert said["disk"].state != "fail"


def test_nobody_is_there(pair: tuple[Home, Home]) -> None:
    alice, bob = pair
    there = found(alice)["bob, from here"]
    assert there.state == "fail"
    assert "nobody listens" in there.text
    assert bob.listen.rpartition(":")[2] in there.cure


def test_the_way_back_fails(pair: tuple[Home, Home]) -> None:
    alice, bob = pair
    bob.add(replace(alice.card, address=f"127.0.0.1:{free_ports(1)[0]}"))
    said = found(alice, bob)
    assert said["bob, from here"].state == "ok"
    back = said["bob, to here"]
    assert back.state == "look"
    assert "its card of us says so" in back.text
    assert "NAT" in back.cure


@pytest.mark.parametrize("known", [True, False])
def test_cards_differ(known: bool, pair: tuple[Home, Home], tmp_path: Path) -> None:
    alice, bob = pair
    bob.remove("alice")
    bob.add(Home.create(tmp_path / "other", "alice" if known else "carol", alice.listen).card)
    said = found(alice, bob)
    assert said["bob, from here"].state == "fail"
    assert "coterie peer invite" in said["bob, from here"].cure


def test_clocks_differ(pair: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = SimpleNamespace(time=lambda: time.time() + 7200, monotonic=time.monotonic)
    monkeypatch.setattr(dialling, "time", ahead)
    clock = found(*pair)["clock"]
    assert clock.state == "look"
    assert "120 minutes" in clock.text


@pytest.mark.parametrize("clock", [math.inf, math.nan, 1e300, -1e18])
def test_a_clock_that_cannot_be_is_told(clock: float, pair: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "time", SimpleNamespace(time=lambda: clock, monotonic=time.monotonic))
    said = found(*pair)["clock"]
    assert said.state == "fail"
    assert "a time that cannot be" in said.text


def test_the_port_is_taken(pair: tuple[Home, Home]) -> None:
    alice, _ = pair

    async def scene() -> list[Finding]:
        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        host, _, port = alice.listen.rpartition(":")
        async with await asyncio.start_server(hang_up, host, int(port)):
            return await examine(alice)

    assert {each.about: each.state for each in run(scene())}["listens"] == "fail"


def test_nobody_is_dialled_back_often_or_elsewhere(pair: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour has us dial the address on its card, now and then, and no other."""
    alice, bob = pair
    dialled = []
    reach = dialling.reach

    async def noted(home: Home, card: object) -> str:
        dialled.append(card)
        return await reach(home, card)  # type: ignore[arg-type]

    monkeypatch.setattr(dialling, "reach", noted)

    async def scene() -> list[str]:
        async with at_work(bob), at_work(alice):
            return [(await ask_back(alice, bob.card)).trouble for _ in range(3)]

    assert run(scene()) == ["", "too-many", "too-many"]
    assert dialled == [alice.card]


def test_the_command_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pair: tuple[Home, Home]
) -> None:
    alice, _ = pair
    assert main(["peer", "doctor", "--home", str(alice.path)]) == 1
    said = capsys.readouterr().out
    assert "bob, from here" in said
    assert "→ There: is `coterie peer run` running" in said
    alone = Home.create(tmp_path / "carol", "carol", f"127.0.0.1:{free_ports(1)[0]}")
    assert main(["peer", "doctor", "--home", str(alone.path)]) == 1
    assert "coterie peer invite" in capsys.readouterr().out

"""Peers at work that take in who comes with a ticket, and whom a neighbour introduces."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coterie.engines.peer import free_ports
from coterie.errors import PeerError
from coterie.net import acquaintances, joining, lending
from coterie.net.acquaintances import EACH, POLICY, Acquaintances
from coterie.net.doors import Invited
from coterie.net.identity import Home
from coterie.net.tickets import Tickets
from coterie.net.wire_pb2 import Answer, Introduction
from coterie.peers import deployment, introductions
from coterie.peers.introductions import Introduced
from coterie.peers.runtime import PeerRuntime
from coterie.runs.experiment import Experiment
from peering import TINY, cancelled, run, until

LONG = Experiment(**{**TINY, "rounds": 100_000, "evaluate": 100_000, "engine": {"name": "peer", "wait": 0.1}})


def peers(folder: Path, *names: str) -> list[Home]:
    ports = free_ports(len(names))
    return [Home.create(folder / n, n, f"127.0.0.1:{port}") for n, port in zip(names, ports, strict=True)]


def know(one: Home, other: Home) -> None:
    one.add(other.card)
    other.add(one.card)


async def life(home: Home, lives: dict[str, PeerRuntime]) -> None:
    while True:
        with suppress(Introduced):
            lives[home.name] = PeerRuntime(
                deployment.peer_config(LONG, home, None, None, 0, port=0, verbose=False),
            )
            await lives[home.name].go()


async def heard(what: Any, *about: Any) -> Any:
    """The same, asked again while a peer goes on with other neighbours."""
    while True:
        try:
            return await what(*about)
        except PeerError:
            await asyncio.sleep(0.1)


def test_a_peer_at_work_takes_in_who_has_a_ticket_and_whom_a_neighbour_introduces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introductions, "GLANCE", 0.1)
    monkeypatch.setattr(Invited, "EVERY", 0.1)
    alice, bob, carol, dave = peers(tmp_path, "alice", "bob", "carol", "dave")
    know(alice, bob)
    lives: dict[str, PeerRuntime] = {}

    def meets(one: Home, *others: Home) -> bool:
        known = lives[one.name].status.neighbours if one.name in lives else {}
        return {n for n, each in known.items() if each.alive} == {other.name for other in others}

    async def scene() -> None:
        tasks = [asyncio.create_task(life(home, lives)) for home in (alice, bob)]
        await until(lambda: meets(alice, bob))
        await heard(joining.join, carol, Tickets(alice).issue(1))
        tasks.append(asyncio.create_task(life(carol, lives)))
        await until(lambda: meets(alice, bob, carol) and meets(carol, alice))
        # Alice brings bob and carol together: bob is asked, carol has a policy.
        (carol.path / POLICY).write_text('introductions = "accept"\nfrom = ["alice"]\n')
        assert (await heard(joining.introduce, alice, bob.card, carol.card)).asks
        assert not (await heard(joining.introduce, alice, carol.card, bob.card)).asks
        assert list(carol.neighbours) == ["alice", "bob"]
        assert list(bob.neighbours) == ["alice"]
        assert [each.by for each in Acquaintances(bob).waiting()] == ["alice"]
        assert Acquaintances(bob).approve("carol") == carol.card
        await until(lambda: meets(bob, alice, carol) and meets(carol, alice, bob))
        with pytest.raises(PeerError, match="does not answer"):
            await joining.introduce(dave, alice.card, bob.card)  # who is no neighbour introduces nobody
        await cancelled(tasks)

    run(scene())


def test_introductions_are_few_and_a_refusal_stands(tmp_path: Path) -> None:
    alice, *others = peers(tmp_path, "alice", *(f"peer-{i}" for i in range(EACH + 2)))
    known = Acquaintances(alice)
    assert [known.hear(each.card, "bob") for each in others[:EACH]] == [(True, "", True)] * EACH
    assert known.hear(others[EACH].card, "bob") == (True, "too-many", False)
    assert known.hear(others[0].card, "carol") == (True, "", False)  # there already: nobody takes it over
    assert {each.by for each in known.everyone().values()} == {"bob"}
    assert known.refuse("peer-0") == others[0].card
    assert known.hear(others[0].card, "bob") == (True, "", False)
    assert [each.card.name for each in known.waiting()] == [f"peer-{i}" for i in range(1, EACH)]
    assert not alice.neighbours
    with pytest.raises(PeerError, match="whom"):
        known.approve("peer-0")


def test_a_policy_takes_in_so_many_and_asks_about_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquaintances, "MOST", 2)
    alice, *others = peers(tmp_path, "alice", "peer-0", "peer-1", "peer-2")
    (alice.path / POLICY).write_text('introductions = "accept"\n')
    known = Acquaintances(alice)
    assert [known.hear(each.card, "bob") for each in others] == [(False, "", True)] * 2 + [(True, "", True)]
    assert {*alice.neighbours} == {"peer-0", "peer-1"}
    assert [each.card.name for each in known.waiting()] == ["peer-2"]


def test_nobody_fills_the_log_by_introducing_one_peer_under_many_names(tmp_path: Path) -> None:
    alice, third = peers(tmp_path, "alice", "third")
    told: list[tuple[str, str]] = []
    doorman = joining.Doorman(alice, lambda what, name: told.append((what, name)))

    async def scene() -> None:
        for number in range(20):
            card = replace(third.card, name=f"third-{number}")
            said = Introduction(card=card.text).SerializeToString()
            answer = Answer.FromString(await doorman.introduced("bob", said))
            assert answer.asks
            assert not answer.reason

    run(scene())
    assert told == [("introduced", "third-0")]


def test_who_cannot_be_dialled_asks_for_introductions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "ASK", 0.1)
    alice, bob, carol = peers(tmp_path, "alice", "bob", "carol")
    know(alice, bob)
    Acquaintances(alice).leave(carol.card, "bob")
    Acquaintances(alice).leave(carol.card, "dave")
    lives: dict[str, PeerRuntime] = {}

    async def scene() -> None:
        tasks = [asyncio.create_task(life(home, lives)) for home in (alice, bob)]
        await until(lambda: Acquaintances(bob).waiting())
        await cancelled(tasks)

    run(scene())
    assert [(each.card, each.by) for each in Acquaintances(bob).waiting()] == [(carol.card, "alice")]
    assert not Acquaintances(alice).left("bob")
    assert Acquaintances(alice).left("dave") == [carol.card]


def test_an_introduction_replaces_nobody_and_tells_nothing(tmp_path: Path) -> None:
    """A neighbour that gives a known name another key is not believed, whatever the policy says."""
    (alice, bob), (false,) = peers(tmp_path, "alice", "bob"), peers(tmp_path / "false", "bob")
    alice.add(bob.card)
    known = Acquaintances(alice)
    assert known.hear(bob.card, "carol") == (True, "", False)
    assert not known.waiting()  # it is a neighbour: the answer is the same
    (alice.path / POLICY).write_text('introductions = "accept"\n')
    assert known.hear(false.card, "carol") == (True, "", True)
    assert alice.neighbours == {"bob": bob.card}
    assert known.hear(replace(bob.card, address="127.0.0.1:9"), "carol") == (False, "", False)
    assert alice.neighbours == {"bob": bob.card}  # nor sends it us elsewhere
    with pytest.raises(PeerError, match="known with another certificate"):
        known.approve("bob")
    for text, decision in (
        ('introductions = "refuse"', "refuse"),
        ('introductions = "accept"\nfrom = ["dave"]', "ask"),
        ('introductions = "accept"\nfrom = "carol"', "ask"),
        ("introductions = [", "ask"),
    ):
        (alice.path / POLICY).write_text(text)
        assert known.policy("carol") == decision

"""Tickets: real doors, keys and TLS on this machine."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from coterie import files
from coterie.engines.peer import free_ports
from coterie.errors import PeerError
from coterie.net import certificates, joining, tickets
from coterie.net.addresses import split_address
from coterie.net.contacts import SERVICE
from coterie.net.dialling import Dialling
from coterie.net.doors import Door, Invited
from coterie.net.identity import Home
from coterie.net.joining import Doorman, Nobody, join
from coterie.net.tickets import Ticket, Tickets
from coterie.net.tls import dial
from coterie.net.wire_pb2 import Application
from peering import run


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Invited, "EVERY", 0.0)


@pytest.fixture
def homes(tmp_path: Path) -> Callable[[str], Home]:
    return lambda name: Home.create(tmp_path / name, name, f"127.0.0.1:{free_ports(1)[0]}")


@asynccontextmanager
async def at_the_door(home: Home, told: list[str] | None = None) -> AsyncIterator[Door]:
    door = Door(home)
    doorman = Doorman(home, lambda what, about: told.append(f"{what} {about}") if told is not None else None)
    await door.open(doorman.handlers(), 1)
    try:
        yield door
    finally:
        await door.close()


def test_ten_peers_join_with_nine_tickets(homes: Callable[[str], Home]) -> None:
    crew = [homes(f"peer-{i}") for i in range(10)]

    async def scene() -> None:
        for i, home in enumerate(crew[1:], 1):
            inviter = crew[(i - 1) // 2]
            ticket = Tickets(inviter).issue(1)
            async with at_the_door(inviter):
                assert (await join(home, Ticket.read(ticket.line))).name == inviter.name

    run(scene())
    for i, home in enumerate(crew[1:], 1):
        assert crew[(i - 1) // 2].card in home.neighbours.values()
        assert home.card in crew[(i - 1) // 2].neighbours.values()
    assert sum(len(home.neighbours) for home in crew) == 18


def test_a_ticket_counts_once_and_for_who_used_it_alone(homes: Callable[[str], Home]) -> None:
    alice, bob, eve, told = homes("alice"), homes("bob"), homes("eve"), list[str]()
    ticket = Tickets(alice).issue(1)

    async def scene() -> None:
        async with at_the_door(alice, told):
            await join(bob, ticket)
            await join(bob, ticket)  # the answer was lost, perhaps
            with pytest.raises(Nobody, match="has been used or withdrawn, or has ended"):
                await join(eve, ticket)
            alice.remove("bob")
            with pytest.raises(Nobody):  # who was sent away does not come back with it
                await join(bob, ticket)

    run(scene())
    assert not alice.neighbours
    assert not eve.neighbours
    assert [each.partition(" ")[0] for each in told] == ["joined", "refused", "refused"]


@pytest.mark.parametrize("how", ["ended", "withdrawn", "of a peer that died", "made up"])
def test_what_is_no_ticket_any_more_is_told_nothing(how: str, homes: Callable[[str], Home]) -> None:
    """The handshake fails as for any stranger: no call goes through that could tell more."""
    alice, bob = homes("alice"), homes("bob")
    Tickets(alice).issue(1)  # so that there is a door at all
    given = Tickets(alice)
    ticket = given.issue(1)

    async def scene() -> None:
        async with at_the_door(alice):
            if how == "ended":
                (path,) = [each.path for each in given.pending().values() if each.certificate == ticket.pair[1]]
                said = files.read_json(path)
                files.write_json(path, {**said, "ends": time.time() - 1})
            elif how == "withdrawn":
                assert given.withdraw() == 2
            elif how == "of a peer that died":
                for path in given.folder.iterdir():
                    path.write_bytes(b"{")
            shown = Ticket(ticket.address, ticket.fingerprint, bytes(16), ticket.ends) if how == "made up" else ticket
            assert await refusal(alice, shown) == grpc.StatusCode.UNAVAILABLE
            with pytest.raises(Nobody):
                await join(bob, shown)

    run(scene())
    assert not alice.neighbours


async def refusal(home: Home, ticket: Ticket, call: str = "Join", request: bytes = b"") -> grpc.StatusCode | bytes:
    """How a call with a ticket's key ends."""
    key, certificate = ticket.pair
    pair = key.encode(), certificate.encode()
    async with dial(home.listen, home.certificate, pair, [("grpc.use_local_subchannel_pool", 1)]) as line:
        try:
            answer: bytes = await line.unary_unary(f"/{SERVICE}/{call}")(request, timeout=20)
        except grpc.aio.AioRpcError as error:
            code: grpc.StatusCode = error.code()
            if code == grpc.StatusCode.UNAUTHENTICATED and error.details() != "you are not my neighbour":
                raise ValueError("a stranger is told more than that") from None
            return code
    return answer


def test_the_card_must_be_the_joiners_own(homes: Callable[[str], Home]) -> None:
    """Nobody makes a neighbour of a third, and no rubbish is taken or ends anything."""
    alice, bob, eve = homes("alice"), homes("bob"), homes("eve")
    ticket = Tickets(alice).issue(1)
    proof = certificates.sign(eve.key, b"something else")
    forged = [
        Application(card=bob.card.text, proof=proof),
        Application(card=eve.card.text, proof=proof),
        Application(card="", proof=b""),
        Application(card="x" * 200_000, proof=bytes(70_000)),
    ]

    async def scene() -> None:
        async with at_the_door(alice):
            for request in [*(each.SerializeToString() for each in forged), b"\xff\xff", b""]:
                assert await refusal(alice, ticket, request=request) == grpc.StatusCode.UNAUTHENTICATED
            await join(bob, ticket)

    run(scene())
    assert list(alice.neighbours) == ["bob"]


def test_who_tries_again_and_again_loses_the_ticket(
    homes: Callable[[str], Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = homes("alice"), homes("bob")
    Tickets(alice).issue(1)
    ticket = Tickets(alice).issue(1)
    monkeypatch.setattr(tickets, "TRIES", 3)

    async def scene() -> None:
        async with at_the_door(alice):
            for _ in range(4):
                await refusal(alice, ticket)
            with pytest.raises(Nobody):
                await join(bob, ticket)

    run(scene())


def test_a_ticket_opens_no_call_but_one(homes: Callable[[str], Home]) -> None:
    alice, bob = homes("alice"), homes("bob")
    alice.add(bob.card)
    ticket = Tickets(alice).issue(1)

    async def scene() -> None:
        door = Door(alice)
        await door.open({**Doorman(alice).handlers(), **Dialling(alice, alice.neighbours).handlers()}, 1)
        try:
            for call in ("Ping", "DialBack"):
                assert await refusal(alice, ticket, call) == grpc.StatusCode.UNAUTHENTICATED
        finally:
            await door.close()

    run(scene())


def test_the_secret_never_goes_to_who_is_not_the_inviter(homes: Callable[[str], Home]) -> None:
    """Who answers at the address with another certificate sees a connection without one of ours, and that is all."""
    alice, bob, eve = homes("alice"), homes("bob"), homes("eve")
    ticket = Tickets(alice).issue(1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(eve.path / "certificate.pem", eve.path / "key.pem")
    seen = list[Any]()

    async def scene() -> None:
        async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(writer.get_extra_info("ssl_object").getpeercert(True))
            seen.append(await reader.read())
            writer.close()

        host, port = split_address(alice.listen)
        server = await asyncio.start_server(heard, host, port, ssl=context)
        async with server:
            with pytest.raises(PeerError, match="is not who gave this ticket"):
                await join(bob, ticket)
            await asyncio.sleep(0.1)

    run(scene())
    assert seen in ([None, b""], [None])
    assert not bob.neighbours


def test_a_name_that_is_taken_spends_no_ticket(homes: Callable[[str], Home], tmp_path: Path) -> None:
    alice, bob, other = homes("alice"), homes("bob"), Home.create(tmp_path / "other", "bob", "127.0.0.1:7001")
    alice.add(other.card)
    ticket = Tickets(alice).issue(1)

    async def scene() -> None:
        async with at_the_door(alice):
            with pytest.raises(PeerError, match="knows another peer by the name"):
                await join(bob, ticket)
            alice.remove("bob")
            await join(bob, ticket)

    run(scene())
    assert alice.neighbours == {"bob": bob.card}


def test_who_waits_is_told_and_who_has_a_running_peer_looks_on(homes: Callable[[str], Home]) -> None:
    alice, bob, carol = homes("alice"), homes("bob"), homes("carol")
    one, two = Tickets(alice).issue(1), Tickets(alice).issue(1)

    async def scene() -> None:
        waits = [asyncio.create_task(joining.receive(alice, lambda *_: None, each)) for each in (one, two)]
        for peer, ticket in ((bob, one), (carol, two)):
            while True:
                try:
                    await join(peer, ticket)
                    break
                except Nobody:
                    await asyncio.sleep(0.05)
            if ticket is one:
                assert await waits[0]
        assert await waits[1]

    # The second looks on while the first has the door; when that has closed it, nobody answers for the second.
    async def both() -> None:
        async with at_the_door(alice):
            await scene()

    run(both())
    assert list(alice.neighbours) == ["bob", "carol"]


def test_tickets_are_few_and_bounded_in_time(homes: Callable[[str], Home], monkeypatch: pytest.MonkeyPatch) -> None:
    given = Tickets(homes("alice"))
    for hours in (0.0, -1.0, 721.0, float("nan")):
        with pytest.raises(PeerError, match="--hours"):
            given.issue(hours)
    monkeypatch.setattr(tickets, "MOST", 2)
    given.issue(1), given.issue(1)
    with pytest.raises(PeerError, match="too many tickets are open"):
        given.issue(1)


def test_no_secret_stays_with_the_inviter(homes: Callable[[str], Home]) -> None:
    alice = homes("alice")
    ticket = Tickets(alice).issue(1)
    (path,) = Tickets(alice).folder.iterdir()
    assert ticket.secret.hex() not in path.read_text()
    assert "PRIVATE" not in path.read_text()
    assert ticket.pair == Ticket.read(ticket.line).pair  # made anew from the secret alone, bit by bit


@drawn(st.data())
def test_a_ticket_that_was_not_copied_whole_is_none(data: st.DataObject) -> None:
    line = Ticket("alice.example:7001", "ab" * 32, bytes(range(16)), 1_800_000_000).line
    assert Ticket.read(f" {line}\n").line == line
    place = data.draw(st.integers(0, len(line) - 2))
    other = data.draw(st.characters(min_codepoint=33, max_codepoint=126).filter(lambda c: c != line[place]))
    for broken in (line[:place], line[:place] + other + line[place + 1 :], data.draw(st.text())):
        with pytest.raises(PeerError):
            Ticket.read(broken)

"""Peers prove who they are: real TLS connections on this machine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coterie.errors import PeerError, Refused
from coterie.net import identity
from coterie.net.certificates import SERVER, certify, key_text, new_key
from coterie.net.identity import Card, Home
from coterie.net.tls import caller, channel, server_credentials
from identities import LONG_AGO, authority, befriend, named, wear

CALL = "/test/Who"


def key_of(home: Home) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(home.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def signed(by: Home, key: ec.EllipticCurvePrivateKey, name: str) -> str:
    """A certificate for somebody else's key that a peer signed with its own."""
    issuer = x509.load_pem_x509_certificate(by.certificate.encode())
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER)]), critical=False)
        .sign(key_of(by), hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


@asynccontextmanager
async def serving(home: Home, trusted: dict[str, Card] | None = None) -> AsyncIterator[tuple[int, list[str]]]:
    """A server of a peer that answers who calls; its port, and whom it let in."""
    let_in: list[str] = []
    neighbours = home.neighbours if trusted is None else trusted

    async def who(request: bytes, context: Any) -> bytes:
        try:
            name = caller(context, neighbours)
        except Refused as refused:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, refused.reason)
        let_in.append(name)
        return name.encode()

    server = grpc.aio.server()
    handlers = {"Who": grpc.unary_unary_rpc_method_handler(who)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    port = server.add_secure_port("127.0.0.1:0", server_credentials(home))
    await server.start()
    try:
        yield port, let_in
    finally:
        await server.stop(None)


async def ask(link: grpc.aio.Channel) -> str:
    async with link:
        answer: bytes = await link.unary_unary(CALL)(b"", timeout=20)
        return answer.decode()


async def refused(link: grpc.aio.Channel, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(link)
    assert caught.value.code() == code, caught.value
    return str(caught.value.details())


def at(card: Card, port: int) -> Card:
    return replace(card, address=f"127.0.0.1:{port}")


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 60))


# ---- Over a real connection


def test_no_card_keeps_others_out_or_a_peer_from_listening(homes: Callable[[str], Home]) -> None:
    """At a certificate that it cannot read gRPC stops: those after it would be strangers, or none be left at all."""
    bob, carol, dave = homes("bob"), homes("carol"), homes("dave")
    befriend(bob, dave)
    _, odd = named("carol", old=b"carol", new=b"\xff\xfe\xfd\xfc\xfb")
    path = bob.path / "neighbours" / "carol.peer"
    path.write_text(carol.card.text.replace(carol.certificate, odd))

    async def scene() -> None:
        async with serving(bob, bob.look()[0]) as (port, _):
            assert await ask(channel(dave, at(bob.card, port))) == "dave"

    run(scene)
    assert [*bob.look()[0]] == ["dave"]
    (wrong,) = bob.look()[1]
    assert "carol.peer" in wrong


def test_neighbours_know_each_other_by_certificate_wherever_they_are(homes: Callable[[str], Home]) -> None:
    alice, bob, carol = homes("alice"), homes("bob"), homes("carol")
    befriend(alice, bob)
    befriend(alice, carol)

    async def scene() -> None:
        async with serving(alice) as (port, _):
            assert await ask(channel(bob, at(alice.card, port))) == "bob"
            assert await ask(channel(carol, at(alice.card, port))) == "carol"
            assert await ask(channel(bob, replace(alice.card, address=f"localhost:{port}"))) == "bob"

    run(scene)


def test_a_stranger_is_not_let_in(homes: Callable[[str], Home]) -> None:
    alice, bob, mallory = homes("alice"), homes("bob"), homes("mallory")
    befriend(alice, bob)
    wear(mallory, key := new_key(), certify(key, "bob"))  # a name is no proof

    async def scene() -> None:
        async with serving(alice) as (port, let_in):
            await refused(channel(mallory, at(alice.card, port)))
            wear(mallory, new_key(), bob.certificate)  # nor is another's certificate, without its key
            await refused(channel(mallory, at(alice.card, port)))
            assert await ask(channel(bob, at(alice.card, port))) == "bob"
            assert let_in == ["bob"]

    run(scene)


def test_a_removed_neighbour_is_a_stranger_even_to_a_running_server(homes: Callable[[str], Home]) -> None:
    alice, bob, carol = homes("alice"), homes("bob"), homes("carol")
    befriend(alice, bob)
    befriend(alice, carol)
    trusted = alice.neighbours

    async def scene() -> None:
        async with serving(alice, trusted) as (port, let_in):
            del trusted["bob"]
            assert await refused(channel(bob, at(alice.card, port)), grpc.StatusCode.PERMISSION_DENIED) == "stranger"
            assert await ask(channel(carol, at(alice.card, port))) == "carol"
            assert let_in == ["carol"]

    run(scene)


def test_there_is_no_way_in_without_tls_or_without_a_certificate(homes: Callable[[str], Home]) -> None:
    alice, bob = homes("alice"), homes("bob")
    befriend(alice, bob)

    async def scene() -> None:
        async with serving(alice) as (port, let_in):
            await refused(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
            bare = grpc.ssl_channel_credentials(alice.certificate.encode())
            name = [("grpc.ssl_target_name_override", SERVER)]
            await refused(grpc.aio.secure_channel(f"127.0.0.1:{port}", bare, options=name))
            assert await ask(channel(bob, at(alice.card, port))) == "bob"
            assert let_in == ["bob"]

    run(scene)


def test_expired_certificates_open_nothing(homes: Callable[[str], Home]) -> None:
    alice, bob, carol = homes("alice"), homes("bob"), homes("carol")
    wear(bob, key := new_key(), certify(key, "bob", LONG_AGO))
    befriend(alice, bob)
    befriend(alice, carol)
    befriend(bob, carol)

    async def scene() -> None:
        async with serving(alice) as (port, let_in):
            await refused(channel(bob, at(alice.card, port)))
            assert await ask(channel(carol, at(alice.card, port))) == "carol"
            assert let_in == ["carol"]
        async with serving(bob) as (port, let_in):
            assert "expired" in (await refused(channel(carol, at(bob.card, port)))).lower()
            assert let_in == []

    run(scene)


@pytest.mark.parametrize("chain", [False, True], ids=["alone", "with its issuer"])
@pytest.mark.parametrize("name", ["bob", "eve"])  # with the issuer's name it looks self-signed, which is another path
def test_neighbours_cannot_sign_for_others(homes: Callable[[str], Home], name: str, chain: bool) -> None:
    alice, bob = homes("alice"), homes("bob")
    befriend(alice, bob)
    key = new_key()
    forged = signed(bob, key, name) + (bob.certificate if chain else "")

    async def scene() -> None:
        async with serving(alice) as (port, let_in):
            await refused(_raw_channel(key, forged, alice.card, port))
            assert await ask(channel(bob, at(alice.card, port))) == "bob"
            assert let_in == ["bob"]
        async with _raw_server(key, forged, alice.card) as port:  # nor answer in their stead
            await refused(channel(alice, at(bob.card, port)))
        async with _raw_server(key_of(bob), bob.certificate, alice.card) as port:
            assert await ask(channel(alice, at(bob.card, port))) == "hello"

    run(scene)


@pytest.mark.parametrize("ca", [True, False])
def test_where_tls_would_let_a_signed_certificate_in_the_fingerprint_does_not(
    homes: Callable[[str], Home], monkeypatch: pytest.MonkeyPatch, ca: bool
) -> None:
    alice, bob = homes("alice"), homes("bob")
    monkeypatch.setattr(identity, "checked", lambda text: text)  # else such a card could not be added
    wear(bob, *authority(ca))
    befriend(alice, bob)
    key = new_key()

    async def scene() -> None:
        async with serving(alice) as (port, let_in):
            link = _raw_channel(key, signed(bob, key, "eve"), alice.card, port)
            assert await refused(link, grpc.StatusCode.PERMISSION_DENIED) == "stranger"
            assert let_in == []

    run(scene)


def _raw_channel(key: ec.EllipticCurvePrivateKey, chain: str, card: Card, port: int) -> grpc.aio.Channel:
    trust = card.certificates[0].encode()
    credentials = grpc.ssl_channel_credentials(trust, key_text(key).encode(), chain.encode())
    name = [("grpc.ssl_target_name_override", SERVER)]
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=name)


@asynccontextmanager
async def _raw_server(key: ec.EllipticCurvePrivateKey, chain: str, trusted: Card) -> AsyncIterator[int]:
    async def hello(request: bytes, context: Any) -> bytes:
        return b"hello"

    server = grpc.aio.server()
    handlers = {"Who": grpc.unary_unary_rpc_method_handler(hello)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    pair = (key_text(key).encode(), chain.encode())
    trust = trusted.certificates[0].encode()
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair], trust, True))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


def test_who_answers_must_be_who_was_called(homes: Callable[[str], Home]) -> None:
    alice, bob, mallory = homes("alice"), homes("bob"), homes("mallory")
    befriend(alice, bob)
    befriend(alice, mallory)

    async def scene() -> None:
        async with serving(mallory) as (port, let_in):  # a neighbour too, but not the one on this card
            await refused(channel(alice, at(bob.card, port)))
            assert let_in == []
            assert await ask(channel(alice, at(mallory.card, port))) == "alice"

    run(scene)


def test_equal_common_names_do_not_confuse(homes: Callable[[str], Home]) -> None:
    alice, bob, other = homes("alice"), homes("bob"), homes("other")
    wear(other, key := new_key(), certify(key, "bob"))
    befriend(alice, bob)
    befriend(alice, other)

    async def scene() -> None:
        async with serving(alice) as (port, _):
            assert await ask(channel(other, at(alice.card, port))) == "other"
            assert await ask(channel(bob, at(alice.card, port))) == "bob"

    run(scene)


def test_no_neighbour_is_lost_while_a_key_rotates(homes: Callable[[str], Home]) -> None:
    alice, bob, carol = homes("alice"), homes("bob"), homes("carol")
    befriend(alice, bob)
    befriend(alice, carol)
    before = alice.card

    async def both_ways(*others: Home) -> None:
        for other in others:
            async with serving(alice) as (port, _):
                assert await ask(channel(other, at(other.neighbours["alice"], port))) == other.name
            async with serving(other) as (port, _):
                assert await ask(channel(alice, at(other.card, port))) == "alice"

    async def scene() -> None:
        overlap = alice.rotate()
        assert overlap.certificates[1:] == before.certificates
        bob.add(overlap, replace=True)
        await both_ways(bob, carol)  # the old key is in use, which the new card lists as well
        carol.add(overlap, replace=True)
        after = alice.finish_rotation()
        assert after.certificates == overlap.certificates[:1]
        await both_ways(bob, carol)
        bob.add(after, replace=True)
        await both_ways(bob)
        wear(alice, old, before.certificates[0])  # what was stolen is now worth nothing
        async with serving(bob) as (port, let_in):
            await refused(channel(alice, at(bob.card, port)))
            assert let_in == []

    old = key_of(alice)
    run(scene)


class _Context:
    def __init__(self, **given: list[bytes]) -> None:
        self.given = given

    def auth_context(self) -> dict[str, list[bytes]]:
        return self.given


def test_a_caller_is_told_by_fingerprint_alone(homes: Callable[[str], Home]) -> None:
    alice, bob = homes("alice"), homes("bob")
    befriend(alice, bob)
    known, mine = alice.neighbours, bob.certificate.encode()
    assert caller(_Context(x509_pem_cert=[mine]), known) == "bob"
    forged = signed(bob, new_key(), "bob").encode()
    for shown in ([], [forged], [b"junk"], [b"\xff"], [mine, mine], [certify(new_key(), "bob").encode()]):
        with pytest.raises(Refused) as caught:
            caller(_Context(x509_pem_cert=shown), known)
        assert caught.value.reason == "stranger"
    with pytest.raises(Refused):
        caller(_Context(), known)


def test_a_peer_without_neighbours_has_no_server(homes: Callable[[str], Home]) -> None:
    with pytest.raises(PeerError, match="no neighbours"):
        server_credentials(homes("alice"))

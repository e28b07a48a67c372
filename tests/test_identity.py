"""Peers prove who they are: cards, keys on disk, and real TLS connections on this machine."""

import asyncio
import os
import re
import socket
import stat
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import PeerError
from coterie.net import certificates, commands, identity
from coterie.net.certificates import SERVER, certify, key_text, new_key
from coterie.net.identity import Card, Home, caller, channel, server_credentials, split_address
from coterie.net.wire import Refused

CALL = "/test/Who"
LONG_AGO = datetime.now(UTC) - timedelta(days=4000)


@pytest.fixture
def homes(tmp_path: Path) -> Callable[[str], Home]:
    """Homes by name, made when first asked for."""
    made: dict[str, Home] = {}

    def home(name: str) -> Home:
        if name not in made:
            made[name] = Home.create(tmp_path / name, name, "127.0.0.1:7001")
        return made[name]

    return home


def befriend(one: Home, other: Home) -> None:
    one.add(other.card, replace=True)
    other.add(one.card, replace=True)


def wear(home: Home, key: ec.EllipticCurvePrivateKey, certificate: str) -> None:
    """Let a peer use any key and certificate, as one could who does not play by the rules."""
    (home.path / "key.pem").write_text(key_text(key))
    (home.path / "certificate.pem").write_text(certificate)


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


def authority(ca: bool = True) -> tuple[ec.EllipticCurvePrivateKey, str]:
    """A key and a certificate that may sign for others, or that at least does not say what its key is for."""
    key, name = new_key(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bob")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 7, now - timedelta(days=1), now + timedelta(days=9))
    made = made.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER)]), critical=False)
    return key, made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


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


# ---- Keys on disk


def test_a_key_is_never_readable_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    real = os.open

    def spy(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        made = real(path, flags, mode, **more)
        seen.append((str(path), stat.S_IMODE(os.fstat(made).st_mode)))
        return made

    monkeypatch.setattr(os, "open", spy)
    before = os.umask(0)
    try:
        home = Home.create(tmp_path / "a", "alice", "127.0.0.1:7001")
        home.rotate()
        home.finish_rotation()
    finally:
        os.umask(before)
    born = [mode for path, mode in seen if "key" in Path(path).name]
    assert born == [0o600, 0o600]
    assert stat.S_IMODE((home.path / "key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    assert not list(home.path.glob(".*"))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o620])
def test_a_key_that_others_could_read_is_not_used(homes: Callable[[str], Home], mode: int) -> None:
    alice, bob = homes("alice"), homes("bob")
    befriend(alice, bob)
    (alice.path / "key.pem").chmod(mode)
    for use in (alice.check, lambda: server_credentials(alice), lambda: channel(alice, bob.card)):
        with pytest.raises(PeerError, match=f"mode 600, got {mode:o}.*chmod 600"):
            use()


def test_an_identity_is_never_overwritten(homes: Callable[[str], Home]) -> None:
    alice = homes("alice")
    before = {path.name: path.read_bytes() for path in alice.path.iterdir() if path.is_file()}
    assert set(before) == {"key.pem", "certificate.pem", "peer.toml"}
    with pytest.raises(PeerError, match="lives here already"):
        Home.create(alice.path, "other", "127.0.0.1:7002")
    (alice.path / "peer.toml").unlink()
    with pytest.raises(PeerError, match=r"lives here already.*key\.pem"):
        Home.create(alice.path, "other", "127.0.0.1:7002")
    assert (alice.path / "key.pem").read_bytes() == before["key.pem"]


def test_what_is_wrong_with_a_new_peer_is_said_before_anything_is_written(tmp_path: Path) -> None:
    for name, listen, address in [
        ("alice", "127.0.0.1:0", None),
        ("alice", "127.0.0.1", None),
        ("alice", "::1:7001", None),
        ("alice", "127.0.0.1:7001", "0.0.0.0:7001"),
        ("alice", "127.0.0.1:7001", "[::]:7001"),
        ("alice", "here:there", "127.0.0.1:7001"),
        ("../alice", "127.0.0.1:7001", None),
        ("", "127.0.0.1:7001", None),
        ("a" * 64, "127.0.0.1:7001", None),
        ("alice\n", "127.0.0.1:7001", None),
    ]:
        with pytest.raises(PeerError):
            Home.create(tmp_path / "new", name, listen, address)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("listen", ["0.0.0.0:7001", "[::]:7001"])
def test_who_listens_everywhere_is_dialled_somewhere(tmp_path: Path, listen: str) -> None:
    home = Home.create(tmp_path / "a", "a" * 63, listen)
    host, port = split_address(home.card.address)
    assert port == 7001
    assert host not in ("0.0.0.0", "::", "127.0.0.1", "::1")
    assert Home(home.path).listen == listen


def test_without_a_network_the_hosts_name_is_dialled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: Any) -> Any:
        raise OSError("no network")

    monkeypatch.setattr(socket, "socket", nothing)
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    assert Home.create(tmp_path / "a", "alice", "[::]:7001").card.address == "box:7001"


def test_check_sees_what_cannot_work(homes: Callable[[str], Home]) -> None:
    alice, bob = homes("alice"), homes("bob")
    assert alice.check() == []
    end = alice.card.expiry
    assert end - datetime.now(UTC) > timedelta(days=3650)
    assert alice.check(datetime.now(UTC) - timedelta(hours=23)) == []  # a neighbour's clock may be behind
    with pytest.raises(PeerError, match=r"not valid yet.*clock"):
        alice.check(datetime.now(UTC) - timedelta(days=2))
    with pytest.raises(PeerError, match=r"expired.*rotate"):
        alice.check(end + timedelta(days=1))
    wear(alice, new_key(), bob.certificate)
    with pytest.raises(PeerError, match="do not belong together"):
        alice.check()
    (alice.path / "key.pem").write_text("junk")
    with pytest.raises(PeerError, match="damaged"):
        alice.check()
    (alice.path / "key.pem").unlink()
    with pytest.raises(PeerError, match="cannot read"):
        alice.check()


def test_check_warns_of_neighbours_whose_certificates_end(homes: Callable[[str], Home]) -> None:
    alice, now = homes("alice"), datetime.now(UTC)
    for name, days in {"bob": -5, "carol": 13, "dave": 15}.items():
        begin = now + timedelta(days=days) + certificates.SKEW - certificates.LIFETIME
        wear(homes(name), key := new_key(), certify(key, name, begin))
        alice.add(homes(name).card)
    first, second = alice.check(now)
    assert "bob expired on" in first
    assert "carol expires on" in second


def test_a_rotation_cut_short_can_be_finished(homes: Callable[[str], Home], monkeypatch: pytest.MonkeyPatch) -> None:
    alice = homes("alice")
    with pytest.raises(PeerError, match="no rotation"):
        alice.finish_rotation()
    overlap = alice.rotate()
    assert alice.rotate() == overlap  # a second call does not throw away what neighbours may have
    assert alice.check() == []
    real = identity._rename

    def cut(source: Path, target: Path) -> None:
        if target.name == "certificate.pem":
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(identity, "_rename", cut)
    with pytest.raises(KeyboardInterrupt):
        alice.finish_rotation()
    monkeypatch.setattr(identity, "_rename", real)
    with pytest.raises(PeerError, match="rotate --finish"):
        alice.check()
    assert alice.rotate() == overlap
    assert alice.finish_rotation().certificates == overlap.certificates[:1]
    assert Home(alice.path).check() == []
    assert sorted(p.name for p in alice.path.glob("*.pem")) == ["certificate.pem", "key.pem"]


# ---- Cards and neighbours


@given(
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", fullmatch=True),
    host=st.one_of(st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map("[{}]".format), st.just("box.example")),
    port=st.integers(1, 65535),
)
def test_cards_survive_paper(tmp_path_factory: pytest.TempPathFactory, name: str, host: str, port: int) -> None:
    if host.strip("[]") in ("0.0.0.0", "::"):
        return
    card = Card(name, f"{host}:{port}", (PEM, OTHER))
    path = tmp_path_factory.getbasetemp() / "some.peer"
    card.write(path)
    assert Card.read(path) == card
    assert re.fullmatch("[0-9a-f]{64}", card.fingerprints[0])
    assert split_address(card.address) == (host.strip("[]"), port)


PEM, OTHER = certify(new_key(), "alice"), certify(new_key(), "alice")


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_anything_else_is_not_a_card(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "junk.peer"
    path.write_bytes(content)
    with pytest.raises(PeerError):
        Card.read(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text + "#" * 70_000, "too large"),
        (lambda text: text + f"# {key_text(new_key())[:27]}", "private key"),
        (lambda text: text.replace("alice", "../alice"), "not a peer's name"),
        (lambda text: text.replace("alice", ""), "not a peer's name"),
        (lambda text: text.replace('"alice"', "5"), "not a peer's name"),
        (lambda text: text.replace("127.0.0.1:7001", "unix:/tmp/x"), "not an address"),
        (lambda text: text.replace("127.0.0.1:7001", "0.0.0.0:7001"), "nobody can dial"),
        (lambda text: text.replace("127.0.0.1:7001", "127.0.0.1:99999"), "not a port"),
        (lambda text: text.replace("certificates", "certificate"), "damaged"),
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: "x = " + "[" * 30_000, "damaged"),
        (lambda text: text.split("certificates")[0] + "certificates = []", "one certificate"),
        (lambda text: text.split("certificates")[0] + "certificates = [3]", "damaged"),
        (lambda text: text.replace("MII", "MIA"), "not a peer's certificate"),
        (lambda text: text.replace("'''\n-", f"'''\n{OTHER}-"), "not a peer's certificate"),
        (lambda text: text.replace(PEM, authority()[1]), "sign for others"),
        (lambda text: text.replace(PEM, authority(ca=False)[1]), "sign for others"),
    ],
)
def test_a_bad_card_says_what_is_wrong(tmp_path: Path, change: Callable[[str], str], says: str) -> None:
    path = tmp_path / "alice.peer"
    Card("alice", "127.0.0.1:7001", (PEM,)).write(path)
    changed = change(path.read_text())
    assert changed != path.read_text()
    path.write_text(changed)
    with pytest.raises(PeerError, match=says) as caught:
        Card.read(path)
    assert "alice.peer" in str(caught.value)


def test_neighbours_are_sorted_and_oneself_is_none(homes: Callable[[str], Home]) -> None:
    alice = homes("alice")
    for name in ("carol", "bob", "B-2"):
        alice.add(homes(name).card)
    assert list(alice.neighbours) == ["B-2", "bob", "carol"]
    alice.add(homes("bob").card)  # once more does no harm
    for card in (alice.card, replace(alice.card, name="dave"), replace(homes("dave").card, name="Alice")):
        with pytest.raises(PeerError, match="itself"):
            alice.add(card)
    alice.remove("bob")
    with pytest.raises(PeerError, match=r"expected B-2, carol, got bob"):
        alice.remove("bob")
    with pytest.raises(PeerError):
        alice.remove("../peer")
    assert list(Home(alice.path).neighbours) == ["B-2", "carol"]


def test_a_card_cannot_take_anothers_place_unasked(homes: Callable[[str], Home]) -> None:
    alice, bob, mallory = homes("alice"), homes("bob"), homes("mallory")
    befriend(alice, bob)
    swapped = replace(mallory.card, name="bob")
    with pytest.raises(PeerError, match="--replace"):
        alice.add(swapped)
    with pytest.raises(PeerError, match="--replace"):
        alice.add(replace(bob.card, address="127.0.0.1:7999"))
    with pytest.raises(PeerError, match="certificate of bob"):
        alice.add(replace(bob.card, name="mallory"), replace=True)
    with pytest.raises(PeerError, match="too alike"):
        alice.add(replace(mallory.card, name="Bob"), replace=True)
    assert alice.neighbours == {"bob": bob.card}
    swapped.write(alice.path / "neighbours" / "carol.peer")
    with pytest.raises(PeerError, match=r"carol\.peer is another's card"):
        _ = alice.neighbours
    alice.remove("carol")
    alice.add(swapped, replace=True)
    assert alice.neighbours == {"bob": swapped}


# ---- The commands


def test_two_peers_by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTERIE_HOME", "a")
    assert commands.init(name="alice", listen="0.0.0.0:7001", address="alice.example:7001") == 0
    said = capsys.readouterr().out
    assert "coterie peer add alice.peer" in said
    assert Card.read("alice.peer").fingerprints[0] in said
    assert commands.init(name="bob", listen="127.0.0.1:7002", home="b") == 0
    assert commands.add("bob.peer") == 0
    assert commands.add("alice.peer", home="b") == 0
    assert Home("a").neighbours == {"bob": Home("b").card}
    assert Home("b").neighbours["alice"].address == "alice.example:7001"
    commands.rotate()
    with pytest.raises(PeerError, match="--replace"):
        commands.add("alice.peer", home="b")
    commands.add("alice.peer", replace=True, home="b")
    assert len(Home("b").neighbours["alice"].certificates) == 2
    commands.rotate(finish=True)
    assert Card.read("alice.peer") == Home("a").card
    assert set(Home("a").card.fingerprints) < set(Home("b").neighbours["alice"].fingerprints)
    assert commands.remove("bob") == 0
    assert Home("a").neighbours == {}
    monkeypatch.delenv("COTERIE_HOME")
    with pytest.raises(PeerError, match=r"got coterie-peer\..*peer init"):
        commands.remove("bob")


def test_a_file_in_the_way_of_a_card_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("alice.peer").write_text("mine")
    with pytest.raises(PeerError, match="in the way"):
        commands.init(name="alice", listen="127.0.0.1:7001")
    assert [p.name for p in tmp_path.iterdir()] == ["alice.peer"]
    with pytest.raises(PeerError, match="not a peer's name"):
        commands.init(name="../alice", listen="127.0.0.1:7001")


def test_commands_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the command line will call them: names, flags, and several cards."""
    from cyclopts import App

    monkeypatch.chdir(tmp_path)
    app = App(result_action="return_value", exit_on_error=False, print_error=False)
    for command in (commands.init, commands.add, commands.remove, commands.rotate):
        app.command(command)
    for name in ("alice", "bob", "carol"):
        app(["init", "--name", name, "--listen", "127.0.0.1:7001", "--home", name])
    app(["add", "bob.peer", "carol.peer", "--home", "alice", "--replace"])
    assert list(Home("alice").neighbours) == ["bob", "carol"]
    app(["remove", "bob", "--home", "alice"])
    app(["rotate", "--home", "alice"])
    app(["rotate", "--finish", "--home", "alice"])
    assert list(Home("alice").neighbours) == ["carol"]
    assert not Home("alice").rotating

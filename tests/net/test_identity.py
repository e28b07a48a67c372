"""Who a peer is: keys on disk, cards, and the commands that write them."""

import os
import re
import socket
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.app import peer_commands
from coterie.errors import PeerError
from coterie.net import certificates
from coterie.net.addresses import split_address
from coterie.net.certificates import certify, key_text, new_key
from coterie.net.identity import Card, Home
from coterie.net.tls import channel, server_credentials
from identities import authority, befriend, named, wear

# ---- Keys on disk


def test_a_key_is_never_readable_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    real = os.open

    def spy(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        made = real(path, flags, mode, **more)
        if flags & os.O_CREAT:
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
    replace = os.replace

    def cut(source: Path, target: Path) -> None:
        if target.name == "certificate.pem":
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", cut)
        with pytest.raises(KeyboardInterrupt):
            alice.finish_rotation()
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
        (lambda text: "x = " + "[" * 500, "damaged"),
        (lambda text: "a." * 30_000 + "a = 1", "at most 512 dots"),
        (lambda text: f"[{'a.' * 500}a]\n" + "".join(f"k{i} = {{}}\n" for i in range(5000)), "at most 512 dots, keys"),
        (lambda text: "x = {" + ",".join(f"k{i}=1" for i in range(6000)) + "}", "at most 512 dots, keys"),
        (lambda text: text.replace('"alice"', "0x" + "f" * 20_000), "an enormous int"),
        (lambda text: text.split("certificates")[0] + "certificates = []", "one certificate"),
        (lambda text: text.split("certificates")[0] + "certificates = [3]", "damaged"),
        (lambda text: text.replace("MII", "MIA"), "not a peer's certificate"),
        (lambda text: text.replace("'''\n-", f"'''\n{OTHER}-"), "not a peer's certificate"),
        (lambda text: text.replace(PEM, authority()[1]), "sign for others"),
        (lambda text: text.replace(PEM, authority(ca=False)[1]), "sign for others"),
        (lambda text: text.replace(PEM, named("alice", "bob")[1]), "one name and no more"),
        (lambda text: text.replace(PEM, named(*["alice" * 12] * 60)[1]), "one name and no more"),
        (
            lambda text: text.replace(PEM, named("bob", old=b"\x0c\x03bob", new=b"\x0c\x03\xff\xfe\xfd")[1]),
            "one name and no more",
        ),
        (
            lambda text: text.replace(PEM, named("bob", old=b"\x0c\x03bob", new=b"\x03\x03bob")[1]),
            "one name and no more",
        ),
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


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device"])
def test_only_plain_files_are_read(homes: Callable[[str], Home], kind: str) -> None:
    """Who opens a named pipe that nobody writes to would wait for ever."""
    alice, bob = homes("alice"), homes("bob")
    alice.add(bob.card)
    put = {
        "pipe": os.mkfifo,
        "socket": lambda path: os.mknod(path, 0o600 | stat.S_IFSOCK),
        "folder": os.mkdir,
        "device": lambda path: os.symlink("/dev/zero", path),
    }[kind]
    put(alice.path / "neighbours" / "eve.peer")
    found: list[Any] = []

    def read() -> None:
        found.append(alice.look())
        for name in ("certificate.pem", "key.pem"):
            (alice.path / name).unlink()
            put(alice.path / name)
            with pytest.raises(PeerError, match=f"cannot read .*{name}") as refused:
                alice.check()
            found.append(refused.value)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(30)
    assert len(found) == 3
    cards, wrong = found[0]
    assert list(cards) == ["bob"]
    assert "eve.peer" in wrong[0]


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
        alice.add(replace(bob.card, certificates=(*mallory.card.certificates, *bob.card.certificates)))
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


def test_who_moves_is_found_by_its_new_card(homes: Callable[[str], Home]) -> None:
    alice, bob = homes("alice"), homes("bob")
    befriend(alice, bob)
    before = alice.stamp
    moved = bob.move("127.0.0.1:7999", listen="0.0.0.0:7999")
    assert Home(bob.path).card == moved
    assert Home(bob.path).listen == "0.0.0.0:7999"
    alice.add(moved)
    assert alice.neighbours == {"bob": moved}
    assert alice.stamp != before
    overlap = bob.rotate()
    with pytest.raises(PeerError, match=r"another certificate.*--replace"):
        alice.add(overlap)
    alice.add(overlap, replace=True)
    alice.add(bob.finish_rotation())
    assert alice.neighbours["bob"].fingerprints == bob.card.fingerprints
    with pytest.raises(PeerError, match="nobody can dial"):
        bob.move("0.0.0.0:1")


# ---- The commands


def test_two_peers_by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTERIE_HOME", "a")
    assert peer_commands.init(name="alice", listen="0.0.0.0:7001", address="alice.example:7001") == 0
    said = capsys.readouterr().out
    assert "coterie peer add alice.peer" in said
    assert Card.read("alice.peer").fingerprints[0] in said
    assert peer_commands.init(name="bob", listen="127.0.0.1:7002", home="b") == 0
    assert peer_commands.add("bob.peer") == 0
    assert peer_commands.add("alice.peer", home="b") == 0
    assert Home("a").neighbours == {"bob": Home("b").card}
    assert Home("b").neighbours["alice"].address == "alice.example:7001"
    peer_commands.rotate()
    with pytest.raises(PeerError, match="--replace"):
        peer_commands.add("alice.peer", home="b")
    peer_commands.add("alice.peer", replace=True, home="b")
    assert len(Home("b").neighbours["alice"].certificates) == 2
    peer_commands.rotate(finish=True)
    assert Card.read("alice.peer") == Home("a").card
    assert set(Home("a").card.fingerprints) < set(Home("b").neighbours["alice"].fingerprints)
    assert peer_commands.remove("bob") == 0
    assert Home("a").neighbours == {}
    monkeypatch.delenv("COTERIE_HOME")
    with pytest.raises(PeerError, match=r"got coterie-peer\..*peer init"):
        peer_commands.remove("bob")


def test_a_file_in_the_way_of_a_card_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("alice.peer").write_text("mine")
    with pytest.raises(PeerError, match="in the way"):
        peer_commands.init(name="alice", listen="127.0.0.1:7001")
    assert [p.name for p in tmp_path.iterdir()] == ["alice.peer"]
    peer_commands.init(name="bob", listen="127.0.0.1:7001")
    with pytest.raises(PeerError, match="a peer lives here already"):  # which says more than that bob.peer is there
        peer_commands.init(name="bob", listen="127.0.0.1:7001")
    with pytest.raises(PeerError, match="not a peer's name"):
        peer_commands.init(name="../alice", listen="127.0.0.1:7001")


def test_commands_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the command line will call them: names, flags, and several cards."""
    from cyclopts import App

    monkeypatch.chdir(tmp_path)
    app = App(result_action="return_value", exit_on_error=False, print_error=False)
    for command in (peer_commands.init, peer_commands.add, peer_commands.remove, peer_commands.rotate):
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

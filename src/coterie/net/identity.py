"""Who a peer is: its folder with its key, its certificate and the cards of its neighbours."""

import contextlib
import os
import re
import secrets
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_pem_private_key

from coterie import files
from coterie.errors import PeerError
from coterie.net.addresses import anywhere, quoted, reachable, split_address
from coterie.net.certificates import ASK, LEAKED, certify, checked, fingerprint, key_text, new_key, parsed

LARGEST = 64 * 1024
"""Bytes of a card; a real one has about one thousand."""
MARKS, MOST = b".=[{,#\n", 512
"""Dots, keys, lists, comments and lines of a card, and how many there may be in all: a real one has about fifty.

A table of hundreds of dots (`[a.a.a.…]`) takes the reader of TOML so many steps for each of thousands of keys in it.
"""
SOON = timedelta(days=14)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True)
class Card:
    """What a peer tells others about itself: a name, where to dial, and its certificates, newest first."""

    name: str
    address: str
    certificates: tuple[str, ...]

    def __post_init__(self) -> None:
        check_name(self.name)
        host, _ = split_address(self.address)
        if anywhere(host):
            cure = "Name the host as others reach it, with --address HOST:PORT."
            raise PeerError("nobody can dial this address", expected="a host", got=quoted(self.address), cure=cure)
        if len(self.certificates) not in (1, 2):
            got = f"{len(self.certificates)}"
            raise PeerError("a card has one certificate, or two while rotating", got=got, cure=ASK)
        object.__setattr__(self, "certificates", tuple(checked(text) for text in self.certificates))

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """SHA-256 of each certificate, in hexadecimal."""
        return tuple(map(fingerprint, self.certificates))

    @property
    def expiry(self) -> datetime:
        """When the newest certificate ends."""
        return parsed(self.certificates[0]).not_valid_after_utc

    @property
    def text(self) -> str:
        """The card as a small TOML file."""
        listed = "".join(f"'''\n{text}''',\n" for text in self.certificates)
        about = "# A peer's card: `coterie peer add` makes it a neighbour."
        return f'{about}\nname = "{self.name}"\naddress = "{self.address}"\ncertificates = [\n{listed}]\n'

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the card down."""
        _write(Path(path), self.text)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Card":
        """Read a card that somebody gave us, and believe none of it."""
        return cls.parse(_content(Path(path), ASK), path)

    @classmethod
    def parse(cls, content: bytes, path: object = "the card") -> "Card":
        """The same of a card's bytes; `path` says where they are from."""
        table = _table(content, path, ("name", "address", "certificates"), ASK)
        listed = table["certificates"]
        if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
            raise PeerError(f"{path} is damaged", expected="a list of certificates", got=quoted(listed), cure=ASK)
        try:
            return cls(table["name"], table["address"], tuple(listed))
        except PeerError as error:
            raise PeerError(f"{path}: {error}") from None


class Home:
    """A peer's folder: `peer.toml`, `key.pem` (which never leaves it), `certificate.pem`, and `neighbours/NAME.peer`.

    While rotating, `key-next.pem` and `certificate-next.pem` stand beside.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / "peer.toml").is_file():
            cure = "Make one with `coterie peer init`, or name another folder with --home."
            raise PeerError("no peer lives here", expected="a folder with peer.toml", got=str(path), cure=cure)
        table = _read(self.path / "peer.toml", ("name", "listen", "address"), "Mend it by hand.")
        self.name: str = check_name(table["name"])
        self.listen: str = table["listen"]
        self.address: str = table["address"]
        split_address(self.listen)
        split_address(self.address)
        self._seen: dict[str, Card] = {}
        """Neighbours' cards as they were when they could be read last."""

    @classmethod
    def create(cls, path: str | os.PathLike[str], name: str, listen: str, address: str | None = None) -> "Home":
        """Make a peer with a fresh key; an identity that is there already stays as it is."""
        folder = cls.check_vacant(path)
        key = new_key()
        card = Card(check_name(name), address or reachable(listen), (certify(key, name),))
        split_address(listen)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "neighbours").mkdir(exist_ok=True)
        _write(folder / "key.pem", key_text(key), 0o600)
        _write(folder / "certificate.pem", card.certificates[0])
        # Last: without it nobody lives here.
        _write(folder / "peer.toml", f'name = "{name}"\nlisten = "{listen}"\naddress = "{card.address}"\n')
        return cls(folder)

    @staticmethod
    def check_vacant(path: str | os.PathLike[str]) -> Path:
        """The folder, in which no peer may live yet."""
        folder = Path(path)
        for file in ("key.pem", "certificate.pem", "peer.toml"):
            if os.path.lexists(folder / file):
                cure = "Name another folder with --home; to renew the key, `coterie peer rotate`."
                raise PeerError("a peer lives here already", got=str(folder / file), cure=cure)
        return folder

    @property
    def rotating(self) -> bool:
        """Whether a new certificate stands beside the one in use."""
        return (self.path / "certificate-next.pem").exists()

    @property
    def certificate(self) -> str:
        """The certificate in use, as PEM."""
        return _own(self.path / "certificate.pem")

    @property
    def key(self) -> bytes:
        """The key in use, as PEM; refused when others could have read it."""
        return _private(self.path / "key.pem")

    @property
    def card(self) -> Card:
        """The card to give to others."""
        beside = (_own(self.path / "certificate-next.pem"),) if self.rotating else ()
        return Card(self.name, self.address, (*beside, self.certificate))

    @property
    def neighbours(self) -> dict[str, Card]:
        """Whom we trust, read from their cards and sorted by name."""
        return {name: self._card(name) for name in self._listed()}

    def look(self) -> tuple[dict[str, Card], list[str]]:
        """Whom we trust, and what is wrong with cards: one that cannot be read counts as when it could, or not at all.

        Whatever is wrong (a damaged card, a dangling link, too many open files), a peer at work goes on with the rest.
        """
        wrong = []
        try:
            names = self._listed()
        except OSError as error:
            return dict(self._seen), [f"cannot read {self.path / 'neighbours'}: {error.strerror or error}"]
        cards = {name: card for name, card in self._seen.items() if name in names}
        for name in names:
            try:
                cards[name] = self._card(name)
            except PeerError as error:
                wrong.append(str(error))
        self._seen = dict(sorted(cards.items()))
        return dict(self._seen), wrong

    @property
    def stamp(self) -> dict[str, int]:
        """When each neighbour's card was written, if that can be told: a cheap way to see that cards have changed."""
        return {name: _written(self._neighbour(name)) for name in self._listed()}

    def _listed(self) -> list[str]:
        folder = self.path / "neighbours"
        there = os.listdir(folder) if folder.exists() or self._seen else []
        return sorted(name.removesuffix(".peer") for name in there if name.endswith(".peer") and name[0] != ".")

    def _card(self, name: str) -> Card:
        card = Card.read(self._neighbour(name))
        if card.name != name:
            cure = f"Take it away with `coterie peer remove {name}`."
            raise PeerError(f"{name}.peer is another's card", expected=name, got=card.name, cure=cure)
        return card

    def move(self, address: str, listen: str | None = None) -> Card:
        """Be found at another address from the next start on; the card that says so."""
        card, listen = Card(self.name, address, self.card.certificates), listen or self.listen
        split_address(listen)
        _write(self.path / "peer.toml", f'name = "{self.name}"\nlisten = "{listen}"\naddress = "{address}"\n')
        self.listen, self.address = listen, address
        return card

    def add(self, card: Card, replace: bool = False) -> None:
        """Make a peer our neighbour, or give one we know a newer card."""
        self.judge(card, replace)
        (self.path / "neighbours").mkdir(exist_ok=True)
        card.write(self._neighbour(card.name))

    def judge(self, card: Card, replace: bool = False) -> None:
        """Refuse a card that cannot be a neighbour's beside those that are.

        Another address needs no more than that, since who answers there must own the same key; certificates that we do
        not know are taken with `replace` only.
        """
        mine = self.card
        if card.name.casefold() == mine.name.casefold() or set(card.fingerprints) & set(mine.fingerprints):
            cure = "Peers that are to be neighbours need names and keys of their own."
            raise PeerError("a peer is no neighbour of itself", got=card.name, cure=cure)
        for name, known in self.neighbours.items():
            if name != card.name and set(card.fingerprints) & set(known.fingerprints):
                cure = f"First `coterie peer remove {name}`, if it has a new name."
                raise PeerError(f"{card.name} has the certificate of {name}", cure=cure)
            if name != card.name and name.casefold() == card.name.casefold():  # one file, where case does not count
                raise PeerError(f"{card.name} and {name} are too alike", cure="Choose names that differ in letters.")
            if name == card.name and not set(card.fingerprints) <= set(known.fingerprints) and not replace:
                cure = "If it is really the same peer, for example after rotating its key: --replace."
                raise PeerError(f"{name} is known with another certificate", cure=cure)

    def remove(self, name: str) -> None:
        """Trust a neighbour no more."""
        path = self._neighbour(check_name(name))
        if not os.path.lexists(path):
            known = ", ".join(sorted(p.stem for p in path.parent.glob("*.peer")))
            raise PeerError("no such neighbour", expected=known or "a neighbour (there is none)", got=name)
        path.unlink()

    def _neighbour(self, name: str) -> Path:
        return self.path / "neighbours" / f"{name}.peer"

    def rotate(self) -> Card:
        """Let a new key and certificate stand beside the old, which is still in use; the card lists both.

        A second call while rotating changes nothing: neighbours may trust the new certificate by now.
        """
        if not self.rotating:
            key = new_key()
            _write(self.path / "key-next.pem", key_text(key), 0o600)
            _write(self.path / "certificate-next.pem", certify(key, self.name))
        return self.card

    def finish_rotation(self) -> Card:
        """Put the new key and certificate in use; the card lists the new certificate alone.

        When interrupted between the two files, it can be called again.
        """
        if not self.rotating:
            raise PeerError("there is no rotation to finish", cure="Begin one with `coterie peer rotate`.")
        key, beside = self.path / "key.pem", self.path / "key-next.pem"
        _check_pair(beside if beside.exists() else key, self.path / "certificate-next.pem")
        if beside.exists():
            _rename(beside, key)
        _rename(self.path / "certificate-next.pem", self.path / "certificate.pem")
        return self.card

    def check(self, now: datetime | None = None) -> list[str]:
        """Refuse to go on with an identity that cannot work; warn of certificates that end soon."""
        now = now or datetime.now(UTC)
        _check_pair(self.path / "key.pem", self.path / "certificate.pem", self.rotating)
        own = parsed(self.certificate)
        if now < own.not_valid_before_utc:
            cure = "Set this machine's clock."
            raise PeerError("our certificate is not valid yet", got=f"{now:%Y-%m-%d %H:%M} UTC", cure=cure)
        if now > own.not_valid_after_utc:
            cure = "Renew it with `coterie peer rotate`, or set this machine's clock."
            ended = f"one that ended on {own.not_valid_after_utc:%Y-%m-%d}"
            raise PeerError("our certificate has expired", got=ended, cure=cure)
        ends = {("our certificate", "renew it with `coterie peer rotate`"): own.not_valid_after_utc}
        cards, wrong = self.look()
        for name, card in cards.items():
            ends[f"the certificate of {name}", "ask for a new card, and `coterie peer add --replace` it"] = card.expiry
        return wrong + [
            f"{whose} {'expired' if end < now else 'expires'} on {end:%Y-%m-%d}: {cure}"
            for (whose, cure), end in ends.items()
            if end < now + SOON
        ]


def trusted(card: Card, now: Card | None) -> bool:
    """Whether whoever was let in by a card still is by what there is of it now."""
    return now is not None and set(card.fingerprints) <= set(now.fingerprints)


def check_name(name: object) -> str:
    """The name, if it is one that can be a file's and a certificate's."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        expected = "up to 63 letters, digits, '_', '.' and '-', the first a letter or digit"
        raise PeerError("not a peer's name", expected=expected, got=quoted(name))
    return name


def _content(path: Path, cure: str) -> bytes:
    try:
        with files.opened(path) as file:
            return file.read(LARGEST + 1)
    except OSError as error:
        raise PeerError(f"cannot read {path}", got=error.strerror or str(error), cure=cure) from None


def _read(path: Path, keys: tuple[str, ...], cure: str) -> dict[str, Any]:
    return _table(_content(path, cure), path, keys, cure)


def _table(content: bytes, path: object, keys: tuple[str, ...], cure: str) -> dict[str, Any]:
    """A small TOML file with exactly these keys."""
    if len(content) > LARGEST:
        raise PeerError(f"{path} is too large", expected=f"at most {LARGEST} bytes", cure=cure)
    if b"PRIVATE KEY" in content:
        raise PeerError(f"there is a private key in {path}", cure=LEAKED)
    if (marks := len(content) - len(content.translate(None, MARKS))) > MOST:
        expected = f"at most {MOST} dots, keys and lines"
        raise PeerError(f"{path} is damaged", expected=expected, got=f"{marks}", cure=cure)
    try:
        table = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise PeerError(f"{path} is damaged", expected="TOML", got=quoted(str(error)), cure=cure) from None
    if set(table) != set(keys):
        raise PeerError(f"{path} is damaged", expected=", ".join(keys), got=quoted(sorted(table)), cure=cure)
    return table


def _written(path: Path) -> int:
    with contextlib.suppress(OSError):  # a dangling link, or one that has just been taken away
        return path.stat().st_mtime_ns
    return -1


def _own(path: Path) -> str:
    try:
        with files.opened(path) as file:
            return checked(file.read(LARGEST).decode("ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise PeerError(f"cannot read {path}", got=str(error), cure="Bring it back from a backup.") from None
    except PeerError as error:
        raise PeerError(f"{path}: {error}") from None


def _private(path: Path) -> bytes:
    try:
        with files.opened(path) as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            if os.name == "posix" and mode & 0o077:
                cure = f"`chmod 600 {path}`; if others may have read it, `coterie peer rotate`."
                raise PeerError(f"others may read {path}", expected="mode 600", got=f"{mode:o}", cure=cure)
            return file.read(LARGEST)
    except OSError as error:
        cure = "Bring it back from a backup."
        raise PeerError(f"cannot read {path}", got=error.strerror or str(error), cure=cure) from None


def _check_pair(key: Path, certificate: Path, rotating: bool = False) -> None:
    try:
        public = load_pem_private_key(_private(key), password=None).public_key()
    except (ValueError, TypeError):
        raise PeerError(f"{key} is damaged", cure="Bring it back from a backup.") from None
    if public != parsed(_own(certificate)).public_key():
        cure = "Go on with `coterie peer rotate --finish`." if rotating else "Bring both back from a backup."
        raise PeerError(f"{key} and {certificate} do not belong together", cure=cure)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file that is there in full or not at all, and never more open than `mode`."""
    making = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _rename(making, path)
    finally:
        making.unlink(missing_ok=True)


def _rename(source: Path, target: Path) -> None:
    """Rename, and let it reach the disk before what comes next."""
    os.replace(source, target)
    if os.name == "posix":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

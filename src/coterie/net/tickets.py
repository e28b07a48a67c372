"""Tickets: one line with which a stranger becomes a neighbour, once.

A ticket holds an address, the fingerprint of who waits there, a secret and the moment it ends. From the secret follow a
key and a certificate; the inviter keeps the certificate alone and trusts it as it trusts a neighbour's, for one call.
So TLS proves both ends, the secret never travels, and who has no ticket finds no other door than before.
"""

import base64
import contextlib
import json
import os
import secrets
import time
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from coterie import files
from coterie.errors import PeerError
from coterie.net.addresses import split_address
from coterie.net.certificates import checked, fingerprint, one_time
from coterie.net.identity import Home

START = "coterie-ticket-"
FOLDER = "tickets"
MOST = 64
"""Tickets of one peer that may be open at a time."""
LONGEST = 30 * 24.0
"""Hours that a ticket may be open."""
TRIES = 20
"""Calls with one ticket, after which it is withdrawn."""
_SECRET, _PRINT, _MARK = 16, 32, 4
_PRINTED = "the line that `coterie peer invite` printed"
_WHOLE = "Copy it whole, from `coterie-ticket-` to the end of the line, or ask for another."


@dataclass(frozen=True)
class Ticket:
    """What an inviter gives to who is to be its neighbour."""

    address: str
    fingerprint: str
    """Of the inviter's certificate, in hexadecimal."""
    secret: bytes
    ends: int
    """Unix seconds; the inviter's clock counts."""

    @property
    def line(self) -> str:
        """The ticket to hand over."""
        body = self.ends.to_bytes(5) + bytes.fromhex(self.fingerprint) + self.secret + self.address.encode()
        return START + base64.urlsafe_b64encode(body + sha256(body).digest()[:_MARK]).decode().rstrip("=")

    @classmethod
    def read(cls, line: str) -> "Ticket":
        """A ticket that somebody gave us."""
        text = line.strip()
        try:
            coded = text.removeprefix(START).encode("ascii")
            whole = base64.b64decode(coded + b"=" * (-len(coded) % 4), altchars=b"-_", validate=True)
        except ValueError:
            whole = b""
        body, mark = whole[:-_MARK], whole[-_MARK:]
        if not text.startswith(START) or len(text) > 1000 or sha256(body).digest()[:_MARK] != mark:
            raise PeerError("not a ticket, or not all of it", expected=_PRINTED, cure=_WHOLE)
        ends, rest = int.from_bytes(body[:5]), body[5:]
        shown, secret, address = rest[:_PRINT], rest[_PRINT : _PRINT + _SECRET], rest[_PRINT + _SECRET :]
        try:
            split_address(address.decode("ascii"))
        except (ValueError, PeerError):
            raise PeerError("not a ticket", expected=_PRINTED, cure=_WHOLE) from None
        return cls(address.decode("ascii"), shown.hex(), secret, ends)

    @cached_property
    def pair(self) -> tuple[str, str]:
        """The key and the certificate of who holds it, as PEM."""
        return one_time(self.secret)


@dataclass(frozen=True)
class Pending:
    """A ticket as its inviter keeps it."""

    path: Path
    certificate: str
    ends: float
    taken: str
    """The certificate that it let in, as a fingerprint; empty as long as it let in nobody."""


class Tickets:
    """The tickets that a peer has given away and that still count, each a small file in its home."""

    def __init__(self, home: Home) -> None:
        self.home, self.folder = home, home.path / FOLDER
        self._tries: dict[str, int] = {}

    def issue(self, hours: float, address: str | None = None) -> Ticket:
        """A new ticket."""
        if not 0 < hours <= LONGEST:
            raise PeerError("--hours", expected=f"above 0, at most {LONGEST:g}", got=f"{hours:g}")
        if len(self.pending()) >= MOST:
            cure = "Wait until they end, or withdraw all with `coterie peer invite --withdraw`."
            raise PeerError("too many tickets are open", expected=f"at most {MOST}", cure=cure)
        address = address or self.home.address
        split_address(address)
        shown = fingerprint(self.home.certificate)
        ticket = Ticket(address, shown, secrets.token_bytes(_SECRET), int(time.time() + 3600 * hours))
        certificate = ticket.pair[1]
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._keep(Pending(self._path(fingerprint(certificate)), certificate, ticket.ends, ""))
        return ticket

    def pending(self) -> dict[str, Pending]:
        """Tickets that count, by their certificates' fingerprints; those that have ended are cleared away."""
        found = {}
        for path in sorted(self.folder.glob("*.json")):
            with contextlib.suppress(PeerError, *files.UNREADABLE):  # what cannot be read opens nothing
                said = files.read_json(path)
                ticket = Pending(path, checked_ticket(said["certificate"]), float(said["ends"]), str(said["taken"]))
                if ticket.ends > time.time():
                    found[fingerprint(ticket.certificate)] = ticket
                else:
                    path.unlink(missing_ok=True)
        return found

    @property
    def stamp(self) -> dict[str, int]:
        """When each was written: a cheap way to see that there are others."""
        with contextlib.suppress(OSError):
            return {each.name: each.stat().st_mtime_ns for each in os.scandir(self.folder)}
        return {}

    def of(self, shown: str) -> Pending | None:
        """The ticket of who showed this certificate, if it counts; one that is tried again and again does not."""
        ticket = self.pending().get(shown)
        if ticket is not None:
            self._tries[shown] = self._tries.get(shown, 0) + 1
            if self._tries[shown] > TRIES:
                ticket.path.unlink(missing_ok=True)
                return None
        return ticket

    def take(self, ticket: Pending, by: str) -> None:
        """Let it count for one peer alone from now on, which may ask again in case our answer was lost."""
        self._keep(Pending(ticket.path, ticket.certificate, ticket.ends, by))

    def withdraw(self) -> int:
        """Let no ticket count any more; how many did."""
        there = [ticket for ticket in self.pending().values() if not ticket.taken]
        for path in self.folder.glob("*.json"):
            path.unlink(missing_ok=True)
        return len(there)

    def _keep(self, ticket: Pending) -> None:
        said = {"certificate": ticket.certificate, "ends": ticket.ends, "taken": ticket.taken}
        with files.disk(self.folder, "Make room on the disk, then ask again."):
            files.write_json(ticket.path, json.loads(json.dumps(said)))

    def _path(self, shown: str) -> Path:
        return self.folder / f"{shown[:32]}.json"


def checked_ticket(certificate: object) -> str:
    """A ticket's certificate, in its plain form."""
    return checked(str(certificate))

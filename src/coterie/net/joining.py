"""How strangers become neighbours: with a ticket, or introduced by a neighbour of both."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from google.protobuf.message import DecodeError

from coterie.errors import CoterieError, PeerError, Refused
from coterie.net import certificates
from coterie.net.acquaintances import EACH, Acquaintances
from coterie.net.addresses import split_address
from coterie.net.contacts import SERVICE
from coterie.net.doors import Door
from coterie.net.identity import LARGEST, Card, Home
from coterie.net.questions import question
from coterie.net.tickets import Ticket, Tickets
from coterie.net.tls import STRANGER, channel, dial, shown
from coterie.net.wire_pb2 import Answer, Application, Introduction, Introductions

CALL = 10.0
"""Seconds that one step of joining may take."""
NEW = "Ask for another: `coterie peer invite`."

Told = Callable[[str, str], None]


class Nobody(PeerError):
    """Nobody answers, or not to this ticket: perhaps not yet."""


class Doorman:
    """Answers who comes with a ticket, and neighbours who introduce somebody."""

    def __init__(self, home: Home, told: Told = lambda what, name: None) -> None:
        self.home, self.told = home, told
        self.tickets = Tickets(home)

    def handlers(self) -> dict[str, Any]:
        """By the names of calls."""
        return {"Join": question(self.join)}

    async def join(self, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        """Who shows a ticket that counts becomes a neighbour; anybody else is told what every stranger is."""
        try:
            seen = shown(context)
            ticket = self.tickets.of(seen)
            if ticket is None:
                raise Refused("stranger", "no ticket that counts")
            said = Application.FromString(request)
            card = Card.parse(said.card.encode()[: LARGEST + 1])
            (theirs,) = card.certificates
            if not certificates.signed(theirs, said.proof, _agreed(seen, self.home.certificate, said.card)):
                raise Refused("stranger", "the card is not its own")
            (print_,) = card.fingerprints
            if ticket.taken and not (ticket.taken == print_ and self._knows(card)):
                raise Refused("stranger", "the ticket has been used")
        except (Refused, PeerError, DecodeError, ValueError) as error:
            self.told("refused", str(error))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, STRANGER)
            raise AssertionError("abort does not return") from None
        answer = Answer()
        try:
            self.home.judge(card)  # a ticket is not spent on a card that cannot be taken
            if not ticket.taken:
                self.tickets.take(ticket, print_)
                self.home.add(card)
                self.told("joined", card.name)
            answer.card = self.home.card.text
        except PeerError:
            answer.reason = "name"
        except (CoterieError, OSError):
            answer.reason = "disk"
        text: bytes = answer.SerializeToString()
        return text

    def _knows(self, card: Card) -> bool:
        known = self.home.look()[0].get(card.name)
        return known is not None and set(card.fingerprints) <= set(known.fingerprints)

    async def introduced(self, by: str, request: bytes) -> bytes:
        """A neighbour says that a third would be a good one."""
        answer = Answer(asks=True)
        try:
            card = Card.parse(Introduction.FromString(request).card.encode()[: LARGEST + 1])
            answer.asks, answer.reason, new = Acquaintances(self.home).hear(card, by)
            if new:
                self.told("introduced" if answer.asks else "joined", card.name)
        except (CoterieError, DecodeError, OSError):
            answer.reason = "card"
        text: bytes = answer.SerializeToString()
        return text

    def introductions(self, to: str) -> bytes:
        """Those that were kept for a neighbour."""
        kept = Acquaintances(self.home).left(to)
        text: bytes = Introductions(all=[Introduction(card=card.text) for card in kept[:EACH]]).SerializeToString()
        return text


def _agreed(ticket: str, inviter: str, card: str) -> bytes:
    """What a joiner signs: this card, for this ticket, at this inviter."""
    about = ["coterie join", ticket, certificates.fingerprint(inviter), sha256(card.encode()).hexdigest()]
    return "\n".join(about).encode()


async def join(home: Home, ticket: Ticket, replace: bool = False) -> Card:
    """Go to who gave us a ticket, and be neighbours from then on; gives the inviter's card."""
    if ticket.ends < time.time() - certificates.SKEW.total_seconds():
        raise PeerError("this ticket ended more than a day ago", cure=NEW)
    if len(home.card.certificates) != 1:
        cure = "First `coterie peer rotate --finish`."
        raise PeerError("this peer is about to change its key", cure=cure)
    trusted = await _pinned(ticket)
    key, certificate = ticket.pair
    card = home.card.text
    agreed = _agreed(certificates.fingerprint(certificate), trusted, card)
    application = Application(card=card, proof=certificates.sign(home.key, agreed))
    async with dial(ticket.address, trusted, (key.encode(), certificate.encode())) as line:
        try:
            call = line.unary_unary(f"/{SERVICE}/Join")
            answer = Answer.FromString(await call(application.SerializeToString(), timeout=CALL))
        except (grpc.aio.AioRpcError, DecodeError):
            what = f"{ticket.address} does not take this ticket: it has been used or withdrawn, or has ended"
            raise Nobody(what, cure=NEW) from None
    if answer.reason == "disk":
        raise PeerError(f"{ticket.address} cannot write down who joins", cure="Its disk may be full: try again later.")
    if answer.reason:
        cure = "Either there `coterie peer remove` the old one, or make this one anew with another --name."
        raise PeerError(f"{ticket.address} knows another peer by the name or the key of {home.name}", cure=cure)
    found = Card.parse(answer.card.encode())
    if ticket.fingerprint not in found.fingerprints:
        raise PeerError(f"{ticket.address} gave us somebody else's card", cure=NEW)
    home.add(found, replace)
    return found


async def _pinned(ticket: Ticket) -> str:
    """The certificate, as PEM, of who answers: that of the ticket, or nobody's. We show none ourselves."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the fingerprint says who it must be
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    host, port = split_address(ticket.address)
    try:
        async with asyncio.timeout(CALL):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=certificates.SERVER)
    except (OSError, TimeoutError) as error:
        what = f"nobody answers at {ticket.address} ({getattr(error, 'strerror', None) or 'no answer in time'})"
        cure = "There, `coterie peer run` or `coterie peer invite --wait` must be running, and the port be open."
        raise Nobody(what, cure=cure) from None
    try:
        found = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(True))
        text = found.public_bytes(Encoding.PEM).decode()
    except (ValueError, TypeError):
        text = ""
    finally:
        writer.transport.abort()
    if not text or certificates.fingerprint(text) != ticket.fingerprint:
        cure = "Compare the address with the inviter's; somebody may be in between."
        raise PeerError(f"who answers at {ticket.address} is not who gave this ticket", cure=cure)
    return certificates.checked(text)


async def receive(home: Home, told: Told, ticket: Ticket | None = None) -> bool:
    """Wait at the door until a ticket (this one, or any) has been used; False if it ended before.

    If the peer is at work it answers itself, and this looks on.
    """
    tickets, door = Tickets(home), Door(home)
    known = set(home.look()[0])
    awaited = certificates.fingerprint(ticket.pair[1]) if ticket else ""
    doorman = Doorman(home, told)
    with contextlib.suppress(PeerError):  # somebody else listens there: the peer itself
        await door.open(doorman.handlers(), 1)
    try:
        while True:
            pending = tickets.pending()
            if awaited in pending and pending[awaited].taken:
                return True
            if not awaited and set(home.look()[0]) - known:
                return True
            if not any(not each.taken and (not awaited or shown == awaited) for shown, each in pending.items()):
                return False
            await asyncio.sleep(0.2)
    finally:
        await asyncio.sleep(0.5)  # the answer is on its way
        await door.close()


async def introduce(home: Home, to: Card, third: Card) -> Answer:
    """Tell a neighbour that a third would be a good one."""
    async with channel(home, to) as line:
        try:
            call = line.unary_unary(f"/{SERVICE}/Introduce")
            answer = await call(Introduction(card=third.text).SerializeToString(), timeout=CALL)
            found: Answer = Answer.FromString(answer)
        except (grpc.aio.AioRpcError, DecodeError):
            cure = f"See that {to.name} is running: `coterie peer doctor`."
            raise Nobody(f"{to.name} does not answer at {to.address}", cure=cure) from None
    return found

"""Whom a peer is in touch with: what it knows of each neighbour, says of itself, and notes of their dealings."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from coterie.errors import Refused
from coterie.mail.pace import Pace
from coterie.net.agreement import Agreement
from coterie.net.identity import Card, Home
from coterie.net.logs import clean, say
from coterie.net.status import NeighbourStatus, Status
from coterie.net.wire import CHUNK, VERSION
from coterie.net.wire_pb2 import Hello, Welcome
from coterie.node.sums import Packet

SERVICE = "coterie.v1.Peers"
STALL = 10.0
"""Seconds that a message may stand still on its way."""
SLOWEST = 64 * 1024
"""Bytes a second that a message must make on the whole."""
WINDOW = 4 * CHUNK
"""Bytes of a stream that may lie in gRPC's memory, unread; by itself it takes many times that from a fast neighbour."""
HARMLESS = ("past", "future", "duplicate", "session", "disk", "too-many")
"""Reasons to refuse what an honest neighbour sends: after a restart, a delay or a dead line, or if our disk is full."""
ALIVE = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW),
    ("grpc.max_receive_message_length", CHUNK + 1024),
    ("grpc.max_send_message_length", CHUNK + 1024),
]


class Intake(Protocol):
    """What the wires need of a peer's mail room."""

    pace: Pace
    changed: asyncio.Event

    def judge(self, sender: int, round: int, tag: str) -> None:
        """Refuse what comes twice, too late or too early."""
        ...

    async def put(self, sender: int, round: int, tag: str, opened: Callable[[], Packet], small: bool = False) -> None:
        """Take a message in once it has been opened and found sound."""
        ...


@dataclass
class Link:
    """One neighbour, and how far the exchange with it is."""

    number: int
    card: Card
    status: NeighbourStatus
    session: str = ""
    """Of the neighbour's process, as it said when it began to follow us."""
    streams: int = 0
    followers: int = 0
    settled: set[int] = field(default_factory=set)
    """The serials of packets that need no further try."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    greeted: asyncio.Event = field(default_factory=asyncio.Event)
    sending: bool = False


class Contacts:
    """All neighbours of one peer."""

    def __init__(
        self,
        home: Home,
        numbers: dict[str, int],
        intake: Intake,
        agreement: Agreement,
        status: Status,
        log: logging.Logger,
    ) -> None:
        self.home, self.agreement, self.status, self.log = home, agreement, status, log
        self.intake, self.pace = intake, intake.pace
        self.session = secrets.token_hex(8)
        self.cards = {name: card for name, card in home.neighbours.items() if name in numbers}
        self.by_name = {n: Link(numbers[n], c, NeighbourStatus(n, c.address)) for n, c in self.cards.items()}
        self.by_number = {link.number: link for link in self.by_name.values()}
        self.finished = False
        self.noted: Callable[[str, str, str], None] = lambda what, neighbour, why: None
        """Told of neighbours that are `gone` or `back`, that were `missed`, and of what was `refused`, and why."""
        status.neighbours = {name: link.status for name, link in self.by_name.items()}
        status.session = self.session

    # What is said of this peer.

    def hello(self) -> Hello:
        """The greeting with which this peer begins to follow another."""
        return self.agreement.hello(self.session, self.pace.reached, self.finished)

    def pulse(self, accepted: bool, reason: str = "") -> bytes:
        """The answer to a greeting, and the sign of life."""
        said = Welcome(
            accepted=accepted,
            reason=reason,
            version=VERSION,
            session=self.session,
            round=self.pace.reached,
            finished=self.finished,
            first=self.pace.first,
        )
        text: bytes = said.SerializeToString()
        return text

    # What is heard of others.

    def hear(self, link: Link, welcome: Welcome) -> None:
        """A pulse: the neighbour lives, and this is its round."""
        self.pace.neighbours[link.number].first = welcome.first
        self.progress(link, welcome.round, welcome.finished)
        self.alive(link, True)

    def progress(self, link: Link, round: int, finished: bool) -> None:
        """The neighbour is in this round: what was too early for it may not be any more."""
        self.pace.neighbours[link.number].reach(min(round, self.pace.rounds), finished, time.monotonic())
        link.status.round = min(round, self.pace.rounds)
        link.status.last_heard = time.time()
        link.wake.set()
        self.intake.changed.set()

    def alive(self, link: Link, alive: bool) -> None:
        """The neighbour is there, or gone."""
        known = self.pace.neighbours[link.number]
        if alive and not known.alive:
            link.status.last_error = ""  # it is over
            say(self.log, logging.INFO, "neighbour is there", neighbour=link.card.name)
        elif known.alive and not alive:
            level = logging.INFO if known.finished or self.finished else logging.WARNING
            say(self.log, level, "neighbour is gone", neighbour=link.card.name)
        changed = alive != known.alive
        link.status.alive = known.alive = alive
        self.intake.changed.set()
        if changed:
            self.noted("back" if alive else "gone", link.card.name, "")

    def trouble(self, link: Link, text: str) -> None:
        """Something went wrong with a neighbour; what goes on going wrong is logged once."""
        text = clean(text)
        if text != link.status.last_error:
            say(self.log, logging.INFO, "trouble", neighbour=link.card.name, error=text)
        link.status.last_error = text

    def disagree(self, link: Link, reason: str) -> None:
        """A neighbour has other settings: nothing will come of it until somebody changes them."""
        text = clean(f"{link.card.name} and I do not agree: {reason}")
        if text != link.status.last_error:
            self.status.add_error(text)
            say(self.log, logging.ERROR, "disagreement", neighbour=link.card.name, reason=reason)
        link.status.last_error = text

    def missed(self, sender: int) -> None:
        """A neighbour was waited for in vain."""
        link = self.by_number[sender]
        link.status.missed += 1
        say(self.log, logging.WARNING, "missed the deadline", neighbour=link.card.name, round=self.pace.round)
        self.noted("missed", link.card.name, "")

    def refuse(self, link: Link, refusal: Refused) -> None:
        """Count and log; what comes late or twice is nobody's fault and does not fill the log."""
        harmless = refusal.reason in HARMLESS
        if not harmless:
            self.pace.neighbours[link.number].sound = False
            self.intake.changed.set()
        link.status.refuse(refusal.reason, refusal.detail)
        level = logging.DEBUG if harmless else logging.WARNING
        say(self.log, level, "refused", neighbour=link.card.name, reason=refusal.reason, detail=refusal.detail)
        self.noted("refused", link.card.name, refusal.reason)

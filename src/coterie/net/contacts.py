"""Whom a peer is in touch with: what it knows of each neighbour, says of itself, and notes of their dealings."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from coterie.errors import Refused
from coterie.mail.pace import Pace
from coterie.net.agreement import Agreement
from coterie.net.identity import Card, Home
from coterie.net.lines import Lent
from coterie.net.logs import Seldom, clean
from coterie.net.places import Rest
from coterie.net.status import NeighbourStatus, Status
from coterie.net.wire import CHUNK, VERSION
from coterie.net.wire_pb2 import Hello, Welcome
from coterie.node.sums import Packet

SERVICE = "coterie.v1.Peers"
STALL = 10.0
"""Seconds that a message may stand still on its way."""
SLOWEST = 64 * 1024
"""Bytes a second that a message must make on the whole."""
WINDOW = CHUNK
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
    told: str = ""
    """The trouble with it that was logged last."""
    calls: set["asyncio.Task[Any]"] = field(default_factory=set)
    """What serves the neighbour's calls now."""
    dropped: bool = False
    place: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one message of the neighbour that has a place among those that come in."""
    rest: Rest = field(default_factory=Rest)
    lent: Lent = field(default_factory=Lent)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """While a call of the neighbour is served: if its card is taken away, that ends at once, and is refused."""
        task = asyncio.current_task()
        assert task is not None
        self.calls.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self.dropped:
                raise
            task.uncancel()
            raise Refused("stranger", "its card is gone") from None
        finally:
            self.calls.discard(task)


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
        self.cards = {name: card for name, card in home.look()[0].items() if name in numbers}
        self.by_name = {n: Link(numbers[n], c, NeighbourStatus(n, c.address)) for n, c in self.cards.items()}
        self.by_number = {link.number: link for link in self.by_name.values()}
        self.finished = False
        self.seldom = Seldom()
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
            link.status.last_error = link.told = ""  # it is over
            self._tell(logging.INFO, "neighbour is there", link.card.name)
        elif known.alive and not alive:
            level = logging.INFO if known.finished or self.finished else logging.WARNING
            self._tell(level, "neighbour is gone", link.card.name)
        changed = alive != known.alive
        if changed and not alive:
            self.pace.lose(link.number, time.monotonic())
        link.status.alive = known.alive = alive
        self.intake.changed.set()
        if changed:
            self.noted("back" if alive else "gone", link.card.name, "")

    def _tell(self, level: int, event: str, name: str, **more: Any) -> None:
        """Log what a neighbour can bring about all day: more and more seldom."""
        self.seldom.say(self.log, level, event, (name,), neighbour=name, **more)

    def drop(self, name: str) -> None:
        """Hang up on a neighbour whose card is gone: from now on it is a stranger."""
        link = self.by_name[name]
        self.cards.pop(name, None)
        link.dropped = True
        for call in list(link.calls):
            call.cancel()
        self.alive(link, False)
        self.pace.neighbours[link.number].back_by = None

    def trouble(self, link: Link, text: str) -> None:
        """Something went wrong with a neighbour; what goes on going wrong is logged once."""
        text = link.status.last_error = clean(text)
        name = link.card.name
        if text != link.told and self.seldom.say(
            self.log, logging.INFO, "trouble", (name,), neighbour=name, error=text
        ):
            link.told = text

    def disagree(self, link: Link, reason: str) -> None:
        """A neighbour has other settings: nothing will come of it until somebody changes them."""
        text = clean(f"{link.card.name} and I do not agree: {reason}")
        link.status.last_error, name = text, link.card.name
        about = {"neighbour": name, "reason": reason}
        if text != link.told and self.seldom.say(self.log, logging.ERROR, "disagreement", (name,), **about):
            link.told = text
            self.status.add_error(text)

    def missed(self, sender: int) -> None:
        """A neighbour was waited for in vain."""
        link = self.by_number[sender]
        link.status.missed += 1
        self._tell(logging.WARNING, "missed the deadline", link.card.name, round=self.pace.round)
        self.noted("missed", link.card.name, "")

    def strange(self, sender: int, text: str) -> None:
        """What a neighbour says is odd, and yet taken."""
        self._tell(logging.WARNING, "strange", self.by_number[sender].card.name, detail=text)

    def harmed(self, senders: list[int], text: str) -> None:
        """What some neighbours said did harm, which is undone: whose fault of theirs it was is not known."""
        names = [self.by_number[sender].card.name for sender in senders if sender in self.by_number]
        for name in names:
            self.by_name[name].status.refuse("harmful", text)
            self.noted("refused", name, "harmful")
            self._tell(logging.WARNING, "harmful", name, detail=text, heard=names)

    def refuse(self, link: Link, refusal: Refused) -> None:
        """Count and log, more and more seldom if it goes on: nobody fills the log by going wrong all day."""
        harmless = refusal.reason in HARMLESS
        if not harmless:
            self.pace.neighbours[link.number].sound = False
            self.intake.changed.set()
        link.status.refuse(refusal.reason, refusal.detail)
        level, name = logging.DEBUG if harmless else logging.WARNING, link.card.name
        about = {"neighbour": name, "reason": refusal.reason, "detail": refusal.detail}
        self.seldom.say(self.log, level, "refused", (name, refusal.reason), **about)
        self.noted("refused", link.card.name, refusal.reason)

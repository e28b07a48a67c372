"""A peer's mail room: what it takes in, what it refuses, and how long it waits. It knows no sockets."""

import asyncio
import contextlib
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from coterie.contract import Fields, Message
from coterie.errors import Refused
from coterie.node.node import Node
from coterie.node.sums import Kept, Packet, Summed
from coterie.protocols import Heard

T = TypeVar("T")

SHORTEST_DEADLINE = 2.0
AHEAD = 1
"""How many rounds ahead of mine a neighbour may be: it can have ended my round, but not another without me."""
MISSES = 3
"""Deadlines that a neighbour may miss in a row: delays travel through a network, and who is held up is not slow."""
HASTE = 1.25
"""How much faster than me a few neighbours may be and still be believed."""


@dataclass(frozen=True)
class Timing:
    """How a peer waits for its neighbours."""

    mode: Literal["sync", "async"] = "sync"
    deadline: float = 30.0
    """Seconds to wait for neighbours while nothing is known of how long rounds take."""
    stretch: float = 4.0
    """Later: this many times what rounds have taken."""
    quorum: int = 0
    """After the deadline a merge still waits for so many models."""
    discount: float = 1.0
    """What a model's weight is multiplied with for each round that it is behind (asynchronous mode)."""


@dataclass
class Envelope:
    """What the header of a delivery says, once it has been checked."""

    sender: int
    round: int
    tag: str
    architecture: str
    size: float


@dataclass
class Neighbour:
    """What a peer knows of one neighbour."""

    alive: bool = False
    round: int = 0
    since: float = 0.0
    """When it was first seen in its round."""
    first: int = 0
    """The first of an unbroken row of rounds that it takes part in: of earlier ones nothing will come any more."""
    finished: bool = False
    misses: int = 0
    """Deadlines missed since it was last heard; after a few nobody waits for it, but for a chance now and then."""
    chance: int = 0
    """The round from which it has another, if it says that it keeps pace."""
    pause: int = 1
    """Rounds from that chance to the next: doubled by each, since who only says so would hold up every round."""
    sound: bool | None = None
    """Whether the last that came from it could be used; None while nothing came. Rubbish is not waited for."""

    @property
    def hopeful(self) -> bool:
        """Whether anything can be expected of it."""
        return self.alive and self.sound is not False

    def reach(self, round: int, finished: bool) -> None:
        """It is in this round now."""
        if round != self.round:
            self.round, self.since = round, time.monotonic()
        self.finished = finished


@dataclass
class Box:
    """The mail of one round and tag."""

    heard: Summed
    packets: dict[int, Packet] = field(default_factory=dict)
    """What must be kept; what can be added up on arrival is in `heard` alone."""
    bytes: dict[int, int] = field(default_factory=dict)
    """Who has sent how much; 0 from those who had nothing to say."""
    closed: bool = False


class Desk:
    """Takes what neighbours send, once each and in its time, and hands it to the node."""

    def __init__(
        self,
        node: Node,
        neighbours: Iterable[int],
        timing: Timing,
        rounds: int,
        spool: Path,
        keep: bool,
        half: bool = False,
    ) -> None:
        self.node, self.timing, self.rounds, self.spool, self.keep, self.half = node, timing, rounds, spool, keep, half
        self.neighbours = {n: Neighbour() for n in neighbours}
        self.round = self.first = 0
        self._done = 0
        self.audible: set[int] = set()
        """Whom injected faults let through this round."""
        self.changed = asyncio.Event()
        self.here: Callable[[int, int], bool] = lambda neighbour, round: True
        """Whether a neighbour belongs to the network in a round."""
        self.missed: Callable[[int], None] = lambda sender: None
        self.lacking: Callable[[int, int], None] = lambda heard, quorum: None
        """Told, once for each wait, that so many models are here and so many must be."""
        self.staleness: list[int] = []
        self._boxes: dict[tuple[int, str], Box] = {}
        self._newest: dict[int, Envelope] = {}
        self._last: dict[tuple[int, str], int] = {}
        self._took: deque[float] = deque(maxlen=9)
        self._worked: deque[float] = deque(maxlen=9)
        self._patience = 1.0
        """Doubled by each round in which nobody came in time: then not they are slow, but the deadline is short."""
        self._stood = self._idle = 0.0
        """Seconds before this round in which others caught up, and in it in which this peer waited."""
        self._given_up: set[int] = set()
        """Whom this round did not wait for any longer before it began."""
        self._lock = asyncio.Lock()
        self._clerk = ThreadPoolExecutor(1, "mail", torch.set_num_threads, (1,))
        self._anchor = self._since = 0
        """A round that this peer was in for good reasons, and how many it has done since."""
        if timing.mode == "async":
            spool.mkdir(parents=True, exist_ok=True)

    # Rounds.

    def resume(self, done: int) -> None:
        """This process begins with what an earlier one has done."""
        self.round = self.first = done + 1
        self._done = done

    @property
    def pace(self) -> list[list[float]]:
        """What rounds have taken, for the next process: else a peer that comes back would wait longer than others."""
        return [list(self._took), list(self._worked)]

    @pace.setter
    def pace(self, seconds: list[list[float]]) -> None:
        for kept, given in zip((self._took, self._worked), seconds, strict=True):
            kept.extend(given)

    def begin(self, round: int, audible: Iterable[int]) -> None:
        """A round begins: older mail is of no use any more."""
        if round != self._done + 1:
            self.first = round
        self._done = round
        self._began, self._idle = time.monotonic(), 0.0
        self._waited = self._spoken = False
        if not self._anchor or self.round + 1 < round <= self._rounds()[1]:
            self._anchor, self._since = round, 0
        self.round, self.audible = round, set(audible)
        self._boxes = {key: box for key, box in self._boxes.items() if key[0] >= round}
        self.staleness = []
        for neighbour in self.neighbours.values():
            if neighbour.misses >= MISSES and neighbour.round + AHEAD >= round >= neighbour.chance:
                neighbour.misses = MISSES - 1
                neighbour.chance, neighbour.pause = round + neighbour.pause, 2 * neighbour.pause

    def end(self) -> None:
        """A round is over; one that waited in vain says nothing of how long rounds take."""
        took = time.monotonic() - self._began
        self._since += 1
        self._worked.append(took - self._idle)
        vain = (self._waited or bool(self._given_up)) and not self._spoken
        self._patience = 2 * self._patience if vain else 1.0
        if not (self._waited or vain):
            self._took.append(self._stood + took)

    @property
    def round_seconds(self) -> float:
        """What a round takes, as far as is known."""
        return statistics.median(self._took) if self._took else 0.0

    @property
    def deadline(self) -> float:
        """Seconds to wait for neighbours now: what rounds have taken decides, but waiting alone cannot drive it up."""
        if len(self._took) < 3:
            return self.timing.deadline
        most = max(self.timing.deadline, self.timing.stretch * statistics.median(self._worked))
        return max(SHORTEST_DEADLINE, min(self._patience * self.timing.stretch * self.round_seconds, most))

    def front(self) -> int:
        """How far the neighbours are; 0 if there are none.

        What more than half of them say is believed. What fewer say is believed of those who have sent something sound,
        and as far as it can be: a neighbour that was out of reach may have gone on at about my pace, but nobody can
        make me skip to the end alone.
        """
        first, most = self._rounds()
        if most > self.round + AHEAD or not self._since:
            return most
        return max(most, min(first, self._anchor + AHEAD + int(HASTE * self._since)))

    def _rounds(self) -> tuple[int, int]:
        """The round of the foremost neighbour that is sound, and the one that more than half of all have reached."""
        # who sits this round out may be past it before this peer has begun it
        near = [n for s, n in self.neighbours.items() if self.here(s, self.round)]
        there = [n for n in near if n.hopeful]
        rounds = sorted((n.round for n in there), reverse=True)
        first = max((n.round for n in there if n.sound), default=0)
        return first, rounds[len(rounds) // 2] if rounds else 0

    async def abreast(self, round: int, sits: bool = False, patient: bool = False) -> None:
        """Let neighbours at work come within reach of this round, until the deadline; `patient` knows none.

        Where a link is down, or goes one way only, no message keeps a peer from running away from its neighbours, and
        they would miss its later messages or skip rounds to follow it. Who `sits` the round out follows them.
        """
        start, deadline = time.monotonic(), math.inf if patient else self.deadline
        while (behind := self._behind(round, sits, patient)) and time.monotonic() < start + deadline:
            self.changed.clear()
            await happens(self.changed, 0.2)
        self._stood = 0.0 if behind else time.monotonic() - start
        self._given_up = set(behind)
        for sender in behind:
            self._miss(sender)

    def _behind(self, round: int, sits: bool, patient: bool) -> list[int]:
        """Neighbours to be waited for before this round begins."""
        if self.timing.mode == "async" and not patient:
            return []
        awaited = {s: n for s, n in self.neighbours.items() if self._awaited(s) and not n.finished}
        if patient:  # there is no deadline, so that nobody who was given up may come in again
            awaited = {s: n for s, n in awaited.items() if n.misses < MISSES}
        else:  # who sits the round out follows by itself
            awaited = {s: n for s, n in awaited.items() if self.here(s, round)}
        return [s for s, n in awaited.items() if n.round + (0 if sits and self.here(s, round) else AHEAD) < round]

    @property
    def company(self) -> bool:
        """Whether there are neighbours who have not finished yet."""
        return any(n.hopeful and not n.finished for n in self.neighbours.values())

    # Taking mail in.

    def judge(self, envelope: Envelope) -> None:
        """Refuse what comes twice, too late or too early."""
        sender, round, tag = envelope.sender, envelope.round, envelope.tag
        if not 1 <= round <= self.rounds:
            raise Refused("future" if round else "past", f"round {round} of {self.rounds}")
        if self.timing.mode == "async":
            if round <= self._last.get((sender, tag), 0):
                raise Refused("duplicate", f"round {round} ({tag}), heard already or overtaken")
            return
        if round < self.round:
            raise Refused("past", f"round {round}, mine is {self.round}")
        if round > max(self.round, 1) + AHEAD:
            raise Refused("future", f"round {round}, mine is {self.round}")
        box = self._boxes.get((round, tag))
        if box and sender in box.bytes:
            raise Refused("duplicate", f"round {round} ({tag}), heard already")
        if box and box.closed:
            raise Refused("past", f"round {round} ({tag}), already merged")
        if sender not in self.neighbours:
            raise Refused("stranger", "not a neighbour")

    async def put(self, envelope: Envelope, opened: Callable[[], Fields], small: bool = False) -> None:
        """Take a message in once it has been opened and found sound: added up at once if it can be, kept else.

        What is `small` is taken in by the event loop itself, in less time than another thread needs to wake. Anything
        else is taken in to the end once begun, even if its stream breaks: half of it may be in the sums already.
        """
        taking = self._put(envelope, opened, small)
        await (taking if small else asyncio.shield(asyncio.create_task(taking)))

    async def _put(self, envelope: Envelope, opened: Callable[[], Fields], small: bool) -> None:
        async with self._lock:
            self.judge(envelope)
            box = None if self.timing.mode == "async" else self._box(envelope.round, envelope.tag)
            if box is not None and small:
                something = self._take_in(envelope, opened(), box)
            else:
                something = await self.work(lambda: self._take_in(envelope, opened(), box))
        neighbour = self.neighbours[envelope.sender]
        neighbour.misses = 0
        if something:  # who has sent rubbish is not waited for because it has nothing to say now
            neighbour.sound, neighbour.chance, neighbour.pause = True, 0, 1
        self.changed.set()

    def _take_in(self, envelope: Envelope, fields: Fields, box: Box | None) -> bool:
        """Whether there was anything in it."""
        message = Message(fields, torch.tensor([envelope.size]), envelope.round)
        packet = Packet(envelope.sender, envelope.architecture, message)
        if box is None:
            self._store(envelope, packet)
            return bool(fields)
        if fields and self.keep:
            box.packets[envelope.sender] = packet
        elif fields:
            _add(box.heard, packet)
        box.bytes[envelope.sender] = self.amount(packet)
        return bool(fields)

    async def work(self, what: Callable[[], T]) -> T:
        """Check, add up or store what came, in one thread beside the event loop, which moves bytes meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._clerk, what)

    def close(self) -> None:
        """Nothing more is taken in."""
        self._clerk.shutdown(wait=False, cancel_futures=True)

    def amount(self, packet: Packet) -> int:
        """Bytes of a parcel's numbers as they travelled."""
        return packet.bytes // (2 if self.half else 1)

    def _box(self, round: int, tag: str) -> Box:
        return self._boxes.setdefault((round, tag), Box(self.node.gathering()))

    def _store(self, envelope: Envelope, packet: Packet) -> None:
        """Asynchronous mode: the newest message of each neighbour waits on disk, so that memory does not grow."""
        if packet.message.fields:
            try:
                save_file(packet.message.fields, self._file(envelope.sender))
            except (OSError, SafetensorError) as error:
                raise Refused("disk", f"cannot keep it here: {error}") from None
            self._newest[envelope.sender] = envelope
        self._last[envelope.sender, envelope.tag] = envelope.round

    def _file(self, sender: int) -> Path:
        return self.spool / f"{sender}.safetensors"

    # Handing mail out.

    async def receive(self, senders: list[int], tag: str) -> Heard:
        """What came from these senders: when all who can be waited for have been heard, or the deadline has passed."""
        if self.timing.mode == "async":
            async with self._lock:
                return await self.work(lambda: self._take_newest(senders))
        box, start, deadline, told = self._box(self.round, tag), time.monotonic(), self.deadline, False
        while True:
            self.changed.clear()
            missing = [s for s in senders if s in self.audible and s not in box.bytes]
            awaited = [s for s in missing if self._awaited(s) and s not in self._given_up]
            waiting = {s: self._limit(s, start, deadline) for s in awaited}
            overdue = [s for s, limit in waiting.items() if time.monotonic() >= limit]
            if not missing or self.front() > self.round + AHEAD:
                break
            if len(overdue) == len(waiting):
                if (heard := self._heard(box)) >= (quorum := min(self.timing.quorum, len(senders))):
                    break
                if not told:
                    self.lacking(heard, quorum)
                    told = True
            await happens(self.changed, 0.2)
        for sender in overdue:
            self._miss(sender)
        self._idle += time.monotonic() - start
        self._waited = self._waited or bool(overdue)
        self._spoken = self._spoken or any(s in box.bytes for s in senders)
        async with self._lock:
            box.closed = True
        amount = sum(box.bytes[s] for s in senders if s in box.bytes)
        self.node.ledger.totals["received_bytes"][self.node.node] += amount
        return Kept({s: box.packets[s] for s in senders if s in box.packets}) if self.keep else box.heard

    def _awaited(self, sender: int) -> bool:
        """Whether this neighbour is waited for: it can be heard, and is not too slow.

        If all are too slow, each round gives them one deadline: who runs on without anybody learns from nobody.
        """
        others = self.audible & self.neighbours.keys()
        return self._keeps_pace(sender) or (self._can_come(sender) and not any(map(self._keeps_pace, others)))

    def _can_come(self, sender: int) -> bool:
        n = self.neighbours[sender]
        return n.hopeful and n.first <= self.round and not (n.finished and n.round < self.round)

    def _keeps_pace(self, sender: int) -> bool:
        return self._can_come(sender) and self.neighbours[sender].misses < MISSES

    def _miss(self, sender: int) -> None:
        self.neighbours[sender].misses += 1
        self.missed(sender)

    def _limit(self, sender: int, start: float, deadline: float) -> float:
        """Until when to wait for a neighbour: the deadline of its round, and one more if it is held up itself."""
        neighbour = self.neighbours[sender]
        if neighbour.misses >= MISSES:
            return start + deadline
        begun = neighbour.since if neighbour.round >= self.round else start + deadline
        return min(max(start, begun) + deadline, start + 2 * deadline)

    def _heard(self, box: Box) -> int:
        return len(box.packets) if self.keep else len(box.heard)

    def _take_newest(self, senders: list[int]) -> Heard:
        heard, kept = self.node.gathering(), {}
        for sender in sorted(set(senders) & set(self._newest) & self.audible):
            envelope = self._newest.pop(sender)
            fields: dict[str, Tensor] = load_file(self._file(sender))
            self._file(sender).unlink()
            packet = Packet(
                sender, envelope.architecture, Message(fields, torch.tensor([envelope.size]), envelope.round)
            )
            behind = max(self.round - envelope.round, 0)
            self.staleness.append(behind)
            self.node.ledger.totals["received_bytes"][self.node.node] += self.amount(packet)
            if self.keep:
                kept[sender] = packet
            else:
                heard.add(packet, self.timing.discount**behind)
        return Kept(kept) if self.keep else heard


async def happens(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, so long at most. Not with `wait_for`, which may lose that the waiting task is cancelled."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _add(heard: Summed, packet: Packet) -> None:
    try:
        heard.add(packet)
    except (KeyError, RuntimeError) as error:  # fields that may occur, but not in this combination
        raise Refused("fields", f"the rule cannot take them: {error}") from None

"""The rules of time: who is waited for and how long, and how far the others are. The time is always an argument."""

import statistics
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from coterie.mail.mailbox import AHEAD

SHORTEST_DEADLINE = 2.0
MISSES = 3
"""Deadlines that a neighbour may miss in a row: delays travel through a network, and who is held up is not slow."""
HASTE = 1.25
"""How much faster than me neighbours may be who are no majority, and still be believed."""


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
    turns: int = 1
    """How many nodes work one after the other in a round: the last waits for all of them."""
    grace: float = 0.0
    """Seconds to wait for a neighbour that is lost: it may be started again, and what it was sent is sent once more."""


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
    """Deadlines missed since it was last heard; after `MISSES` it is not waited for, but for a chance now and then."""
    chance: int = 0
    """The round from which it has another chance, if it says that it keeps pace."""
    pause: int = 1
    """Rounds from that chance to the next: doubled by each, since who only says so would hold up every round."""
    sound: bool | None = None
    """Whether the last that came from it could be used; None while nothing came. Rubbish is not waited for."""
    back_by: float | None = None
    """Until when one that is lost is waited for; None if it is there, or not waited for."""

    @property
    def hopeful(self) -> bool:
        """Whether anything can be expected of it."""
        return self.alive and self.sound is not False

    def reach(self, round: int, finished: bool, now: float) -> None:
        """Note the round that it is in now."""
        if round != self.round:
            self.round, self.since = round, now
        self.finished = finished

    def heard(self, something: bool) -> None:
        """Note that a message has come from it, with `something` in it or none."""
        self.misses = 0
        if something:  # who has sent rubbish is not waited for because it has nothing to say now
            self.sound, self.chance, self.pause = True, 0, 1

    def offer_chance(self, round: int) -> None:
        """Wait for it once more if it was given up, says that it keeps pace, and its pause is over."""
        if self.misses >= MISSES and self.round + AHEAD >= round >= self.chance:
            self.misses = MISSES - 1
            self.chance, self.pause = round + self.pause, 2 * self.pause


class RoundTimes:
    """How long rounds take, and the deadline that follows from it."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=9)
        """Seconds of rounds in which nobody was waited for in vain."""
        self._worked: deque[float] = deque(maxlen=9)
        """Seconds of rounds without the waiting."""
        self._patience = 1.0
        """A factor on the deadline, doubled by each round in which nobody came in time: the deadline is short then."""
        self._began = self._stood = self._idle = 0.0
        self._overdue = self._spoken = False

    @property
    def history(self) -> list[list[float]]:
        """What rounds have taken, for the next process: else a peer that comes back would wait longer than others."""
        return [list(self._took), list(self._worked)]

    @history.setter
    def history(self, seconds: list[list[float]]) -> None:
        for kept, given in zip((self._took, self._worked), seconds, strict=True):
            kept.extend(given)

    def stand(self, seconds: float) -> None:
        """Note the seconds before a round in which others caught up: they are a part of what a round takes."""
        self._stood = seconds

    def begin(self, now: float) -> None:
        """Begin a round."""
        self._began, self._idle = now, 0.0
        self._overdue = self._spoken = False

    def wait(self, seconds: float, overdue: bool, spoken: bool) -> None:
        """Note a wait in this round: whether anyone was `overdue` at its end, and whether anyone had spoken."""
        self._idle += seconds
        self._overdue, self._spoken = self._overdue or overdue, self._spoken or spoken

    def end(self, given_up: bool, now: float) -> None:
        """End a round, before which some were `given_up`; one that waited in vain does not tell what rounds take."""
        took = now - self._began
        self._worked.append(took - self._idle)
        vain = (self._overdue or given_up) and not self._spoken
        self._patience = 2 * self._patience if vain else 1.0
        if not (self._overdue or vain):
            self._took.append(self._stood + took)

    @property
    def round_seconds(self) -> float:
        """What a round takes, as far as is known."""
        return statistics.median(self._took) if self._took else 0.0

    def deadline(self, timing: Timing) -> float:
        """Seconds to wait for neighbours: what rounds have taken decides, but waiting alone cannot drive it up."""
        if len(self._took) < 3:
            return timing.turns * timing.deadline
        most = timing.turns * max(timing.deadline, timing.stretch * statistics.median(self._worked))
        return max(SHORTEST_DEADLINE, min(self._patience * timing.stretch * self.round_seconds, most))


@dataclass(frozen=True)
class Outlook:
    """How a wait for messages stands at one moment: whether it is over, and who is overdue."""

    over: bool
    overdue: tuple[int, ...] = ()
    """Who is waited for and has missed the deadline."""
    lacking: int = 0
    """How many models the quorum must have where nothing else is waited for; 0 otherwise."""


class Pace:
    """The rounds of one peer and of its neighbours, and who of them is waited for."""

    def __init__(self, neighbours: Iterable[int], timing: Timing, rounds: int) -> None:
        self.neighbours = {n: Neighbour() for n in neighbours}
        self.timing, self.rounds, self.times = timing, rounds, RoundTimes()
        self.round = 0
        self.first = 0
        """The first of this peer's own unbroken row of rounds."""
        self.audible: set[int] = set()
        """Whom injected faults let through this round."""
        self.present: Callable[[int, int], bool] = lambda neighbour, round: True
        """Whether a neighbour is a member of the network in a round."""
        self.reached = 0
        """The last round that was begun, which is what others are told: whoever still gathers its neighbours before it
        begins has them wait, and so misses nothing."""
        self._anchor = self._since = 0
        """A round that this peer was in for good reasons, and how many it has done, or may have missed, since."""
        self._fresh = True
        """Whether this process has begun no round yet."""
        self._given_up: set[int] = set()
        """Whom this round did not wait for any longer before it began."""

    # My own rounds.

    def resume(self, done: int, away: float = 0.0) -> None:
        """Go on after what an earlier process has done, so many seconds `away`."""
        self.round = self.first = done + 1
        self.reached = self._anchor = done
        self._since = int(away / self.times.round_seconds) if self.times.round_seconds > 0 else 0

    def begin(self, round: int, audible: Iterable[int], now: float) -> None:
        """Begin a round, in which these neighbours can be heard."""
        if round != self.reached + 1:
            self.first = round
        self.reached = round
        self.times.begin(now)
        if self._fresh or self.round + 1 < round <= self.majority:
            self._anchor, self._since, self._fresh = round, 0, False
        self.round, self.audible = round, set(audible)
        for neighbour in self.neighbours.values():
            neighbour.offer_chance(round)

    def end(self, now: float) -> None:
        """End a round."""
        self._since += 1
        self.times.end(bool(self._given_up), now)

    @property
    def deadline(self) -> float:
        """Seconds to wait for neighbours now."""
        return self.times.deadline(self.timing)

    # How far the others are.

    def front(self) -> int:
        """The round that the neighbours are in; 0 if there are none.

        What more than half of all neighbours say is believed. What half of them say is believed of those who have sent
        something sound, and what fewer say only if no majority is there; both as far as it can be: neighbours that were
        out of reach may have gone on at about my pace, also while I was away, but they cannot make me skip to the end.
        """
        foremost, most = self._foremost(), self.majority
        if most > self.round + AHEAD or not self._since:
            return most
        return max(most, min(foremost, self._anchor + AHEAD + int(HASTE * self._since)))

    @property
    def majority(self) -> int:
        """The round that more than half of all neighbours have reached: those who are not there count, too."""
        members = self._members()
        rounds = sorted((n.round if n.hopeful else 0 for n in members), reverse=True)
        return rounds[len(rounds) // 2] if rounds else 0

    def _foremost(self) -> int:
        """The round that half of all neighbours have reached, or where no majority is there, the foremost."""
        members = self._members()
        if 2 * sum(n.hopeful for n in members) <= len(members):
            return max((n.round for n in members if n.hopeful), default=0)
        rounds = sorted((n.round if n.alive and n.sound and not self._fresh else 0 for n in members), reverse=True)
        return rounds[(len(rounds) - 1) // 2]

    def _members(self) -> list[Neighbour]:
        # who sits this round out may be past it before this peer has begun it
        return [n for s, n in self.neighbours.items() if self.present(s, self.round)]

    @property
    def overtaken(self) -> bool:
        """Whether the neighbours are so far that waiting for messages of this round is of no use."""
        return self.front() > self.round + AHEAD

    @property
    def unfinished(self) -> bool:
        """Whether there are neighbours who have not finished yet."""
        return any(n.hopeful and not n.finished for n in self.neighbours.values())

    # Before a round: letting others catch up.

    def lose(self, sender: int, now: float) -> None:
        """Note that a neighbour is lost before its end, which may be for a moment."""
        neighbour = self.neighbours[sender]
        neighbour.alive = False
        if self.timing.grace and not neighbour.finished and neighbour.sound is not False:
            neighbour.back_by = now + self.timing.grace

    def let_go(self, now: float) -> None:
        """Wait no longer for those who were lost and have not come back in time."""
        for neighbour in self.neighbours.values():
            if neighbour.alive or (neighbour.back_by is not None and neighbour.back_by <= now):
                neighbour.back_by = None

    def behind(self, round: int, sits: bool = False, patient: bool = False) -> list[int]:
        """Neighbours that this peer lets catch up before it begins a round.

        One that takes part may begin when they are in the round before; one that `sits` it out only when they are in
        it. A `patient` peer may wait long, so it does not wait for those whom it has given up already. Nobody is waited
        for in asynchronous mode, unless patiently.
        """
        if self.timing.mode == "async" and not patient:
            return []
        awaited = {s: n for s, n in self.neighbours.items() if self.awaits(s) and not n.finished}
        if patient:
            awaited = {s: n for s, n in awaited.items() if n.misses < MISSES}
        else:  # who sits the round out follows by itself
            awaited = {s: n for s, n in awaited.items() if self.present(s, round)}
        return [s for s, n in awaited.items() if n.round + (0 if sits and self.present(s, round) else AHEAD) < round]

    def outnumbered(self, behind: Collection[int]) -> bool:
        """Whether those who are behind are at most half of the neighbours who are there: they may not mean to come."""
        return 2 * len(behind) <= sum(n.hopeful for n in self._members())

    def go_on(self, behind: Collection[int], start: float, now: float) -> None:
        """End a wait, from `start` until `now`, for others to catch up: who is still behind is given up for a round."""
        self.times.stand(0.0 if behind else now - start)
        self._given_up = set(behind)
        self._miss(behind)

    # In a round: waiting for messages.

    def outlook(
        self, missing: Iterable[int], came: int, asked: int, start: float, deadline: float, now: float
    ) -> Outlook:
        """Whether to go on waiting for messages, as things stand `now`.

        Of `asked` neighbours some are `missing`, and `came` models have come. The wait began at `start`, when the
        deadline was so many seconds. It is over when all that can come has come or is overdue, and there is a quorum.
        """
        audible = [s for s in missing if s in self.audible]
        awaited = [s for s in audible if self.awaits(s) and s not in self._given_up]
        overdue = tuple(s for s in awaited if now >= self.limit(s, start, deadline))
        if not audible or self.overtaken:
            return Outlook(True, overdue)
        if len(overdue) < len(awaited):
            return Outlook(False, overdue)
        quorum = min(self.timing.quorum, asked)
        if self.majority > self.round:  # most have done this round, perhaps before they knew me: no more will come
            return Outlook(True, overdue)
        return Outlook(came >= quorum, overdue, 0 if came >= quorum else quorum)

    def waited(self, overdue: Collection[int], spoken: bool, start: float, now: float) -> None:
        """End a wait for messages: who is overdue has missed a deadline; `spoken` if any message has come."""
        self.times.wait(now - start, bool(overdue), spoken)
        self._miss(overdue)

    def awaits(self, sender: int) -> bool:
        """Whether this neighbour is waited for: it can be heard, and is not too slow.

        If all are too slow, each round gives them one deadline: who runs on without anybody learns from nobody.
        """
        others = self.audible & self.neighbours.keys()
        return self._keeps_pace(sender) or (self._can_come(sender) and not any(map(self._keeps_pace, others)))

    def limit(self, sender: int, start: float, deadline: float) -> float:
        """Until when to wait for a neighbour: the deadline of its round, and one more if it is held up itself."""
        neighbour = self.neighbours[sender]
        if neighbour.misses >= MISSES:
            return start + deadline
        begun = neighbour.since if neighbour.round >= self.round else start + deadline
        return min(max(start, begun) + deadline, start + 2 * deadline)

    def _can_come(self, sender: int) -> bool:
        n = self.neighbours[sender]
        kept = n.round <= self.round + AHEAD  # who is further has gone on without me, and keeps nothing of my round
        there = n.hopeful or n.back_by is not None
        return there and n.first <= self.round and kept and not (n.finished and n.round < self.round)

    def _keeps_pace(self, sender: int) -> bool:
        return self._can_come(sender) and self.neighbours[sender].misses < MISSES

    def _miss(self, senders: Iterable[int]) -> None:
        for sender in senders:
            self.neighbours[sender].misses += 1

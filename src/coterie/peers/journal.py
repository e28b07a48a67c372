"""A peer's journal: what happens to it and its neighbours, in `journal.jsonl` in its folder."""

import contextlib
import json
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from coterie.errors import DivergedError, RunError
from coterie.net.logs import say
from coterie.net.status import NeighbourStatus, Status
from coterie.records.journal import Channel, Journal

COUNTED = ("sent", "received", "sent_bytes", "received_bytes")
"""What is counted for each neighbour: messages and bytes."""


class PeerJournal:
    """Writes a peer's events as they happen. A disk that takes no more is told once, and stops nobody.

    What goes wrong with a neighbour is told at once, the first of each kind in a round: what comes on top is told
    together when the round is done, so that nobody can fill the disk by going wrong all day.
    """

    def __init__(self, folder: Path, node: int, status: Status, log: logging.Logger) -> None:
        self.folder, self.node, self.status, self.log = folder, node, status, log
        self._channel = Channel()
        self._lock = threading.Lock()
        """A checkpoint is written beside the event loop, which goes on telling what happens."""
        self._gone: set[str] = set()
        """Neighbours of whom it was told that they are gone, and not that they are back."""
        self._faults: Counter[tuple[str, str, str]] = Counter()
        """What went wrong in this round, with whom and why: how often."""
        self._over = False
        """Whether the end was told: who hangs up then is no fault."""
        self._told: dict[str, list[int]] = {}
        """What was counted of each neighbour when it was last told."""
        self._complained = False

    def begin(self, neighbours: list[str], cycles: Sequence[int] = ()) -> None:
        """Begin a journal."""
        self.open(0)
        more = {"cycles": list(cycles)} if cycles else {}
        self.tell("begin", round=0, rounds=self.status.rounds, neighbours=neighbours, **more)

    def open(self, events: int, counts: str = "{}") -> None:
        """Open the journal after its first so many events, with counts that the checkpoint says were not told yet."""
        known = self.status
        with self._tolerant():
            journal = Journal(self.folder, {(known.method, known.seed): events})
            self._channel = Channel(journal).job(known.method, known.seed, peer=known.name, node=self.node)
            if journal.damaged:
                say(self.log, logging.WARNING, "the journal is damaged", path=journal.path, lines=journal.damaged)
        self._told = {name: [-count for count in pending] for name, pending in json.loads(counts).items()}

    def tell(self, name: str, **data: Any) -> None:
        """Write an event down."""
        self._over = self._over or name == "end"
        with self._lock, self._tolerant():
            self._channel.tell(name, **data)

    def warn(self, text: str, round: int) -> None:
        """Tell, here and in the log, of something that is odd and stops nobody."""
        say(self.log, logging.WARNING, text, round=round)
        self.tell("warning", round=round, text=text)

    def checkpoint(self, round: int) -> dict[str, str]:
        """Write down, for good, that a checkpoint of this round is taken; gives what it must say of the journal."""
        with self._lock:
            with self._tolerant():
                self._channel.tell("checkpoint", round=round)
            events, journal = self._channel.count, self._channel.journal
        if journal is not None:
            with self._tolerant():
                journal.sync()
        return {"events": str(events), "counts": json.dumps(self._since())}

    def end(self, error: Exception | None = None) -> None:
        """Write down that the peer ends before its time, by itself or because of an error."""
        if error is None:
            self.tell("end", how="interrupted")
        else:
            self.tell("end", how="diverged" if isinstance(error, DivergedError) else "failed", error=str(error))

    def fault(self, what: str, neighbour: str, why: str = "") -> None:
        """A neighbour is `gone` or `back`, was waited for in vain (`missed`), or was `refused` something, and why."""
        self._faults[what, neighbour, why] += 1
        if self._faults[what, neighbour, why] > 1:
            return
        if what in ("gone", "back"):
            self._whereabouts([neighbour])
        else:
            self._tell_fault(**{what: {neighbour: {why: 1}} if why else [neighbour]})

    def _whereabouts(self, neighbours: Iterable[str]) -> None:
        """Tell which of these are gone or back by now, if it was not told yet."""
        gone = {name for name in neighbours if not self.status.neighbours[name].alive}
        back = self._gone.intersection(neighbours) - gone
        fresh = {"gone": sorted(gone - self._gone), "back": sorted(back)}
        self._gone = (self._gone | gone) - back
        if told := {what: who for what, who in fresh.items() if who}:
            self._tell_fault(**told)

    def _tell_fault(self, **told: Any) -> None:
        if not self._over:
            self.tell("fault", round=self.status.round, **told)

    def gathered(self) -> None:
        """The first round of this process begins: who is not there by now counts as gone."""
        self._whereabouts(self.status.neighbours)

    def round(self, number: int, evaluated: bool, roles: Sequence[str] = ()) -> None:
        """A round is done: tell what else went wrong in it and, now and then, what was exchanged."""
        more: dict[str, dict[str, int]] = {}
        for (what, neighbour, why), count in self._faults.items():
            if what == "refused" and count > 1:
                more.setdefault(neighbour, {})[why] = count - 1
        self._faults.clear()
        self._whereabouts(self.status.neighbours)
        if more:
            self._tell_fault(refused=more)
        if evaluated:
            since = self._since()
            self._told = {name: _counts(known) for name, known in self.status.neighbours.items()}
            columns = {what: [counted[i] for counted in since.values()] for i, what in enumerate(COUNTED)}
            self.tell("exchange", round=number, neighbours=list(since), **columns)
        self.tell("round", round=number, **({"roles": list(roles)} if roles else {}))

    def close(self) -> None:
        """Write no more."""
        self._channel.close()
        self._channel = Channel()

    def _since(self) -> dict[str, list[int]]:
        """What was counted of each neighbour since it was last told."""
        return {
            name: [now - then for now, then in zip(_counts(known), self._told.get(name, [0] * 4), strict=True)]
            for name, known in self.status.neighbours.items()
        }

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        try:
            yield
        except (RunError, ValueError) as error:  # the latter, if it was closed meanwhile
            if not self._complained:
                say(self.log, logging.WARNING, "the journal has gaps", error=error)
            self._complained = True


def _counts(known: NeighbourStatus) -> list[int]:
    return [getattr(known, what) for what in COUNTED]

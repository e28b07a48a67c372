"""A peer's journal: what happens to it and its neighbours, in `journal.jsonl` in its folder."""

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.errors import DivergedError, RunError
from coterie.net.logs import say
from coterie.net.status import NeighbourStatus, Status
from coterie.records.journal import Channel, Journal

COUNTED = ("sent", "received", "sent_bytes", "received_bytes")
"""What is counted for each neighbour: messages and bytes."""


@dataclass
class _Seen:
    """What was known of a neighbour at the end of the last round."""

    alive: bool = True
    missed: int = 0
    refusals: dict[str, int] = field(default_factory=dict)


class PeerJournal:
    """Writes a peer's events. A disk that takes no more is told once, and stops nobody."""

    def __init__(self, folder: Path, node: int, status: Status, log: logging.Logger) -> None:
        self.folder, self.node, self.status, self.log = folder, node, status, log
        self._channel = Channel()
        self._seen: dict[str, _Seen] = {}
        self._told: dict[str, list[int]] = {}
        """What was counted of each neighbour when it was last told."""
        self._complained = False

    def begin(self, neighbours: list[str]) -> None:
        """Begin a journal."""
        self.open(0)
        self.tell("begin", round=0, rounds=self.status.rounds, neighbours=neighbours)

    def open(self, events: int, counts: str = "{}") -> None:
        """Go on after so many events, with what a checkpoint says was counted and not told."""
        known = self.status
        with self._tolerant():
            journal = Journal(self.folder, {(known.method, known.seed): events})
            self._channel = Channel(journal).job(known.method, known.seed, peer=known.name, node=self.node)
        self._told = {name: [-count for count in pending] for name, pending in json.loads(counts).items()}

    def tell(self, name: str, **data: Any) -> None:
        """Write an event down."""
        with self._tolerant():
            self._channel.tell(name, **data)

    def checkpoint(self, round: int) -> dict[str, str]:
        """Write down, for good, that a checkpoint of this round is taken; gives what it must say of the journal."""
        with self._tolerant(), self._channel.sealed("checkpoint", round=round):
            pass
        events = self._channel.count if self._channel.journal else 0
        return {"events": str(events), "counts": json.dumps(self._since())}

    def end(self, error: Exception | None = None) -> None:
        """Write down that the peer ends before its time, by itself or because of an error."""
        if error is None:
            self.tell("end", how="interrupted")
        else:
            self.tell("end", how="diverged" if isinstance(error, DivergedError) else "failed", error=str(error))

    def round(self, number: int, evaluated: bool) -> None:
        """A round is done: tell what went wrong with neighbours in it and, now and then, what was exchanged."""
        if trouble := self._trouble():
            self.tell("fault", round=number, **trouble)
        if evaluated:
            since = self._since()
            self._told = {name: _counts(known) for name, known in self.status.neighbours.items()}
            columns = {what: [counted[i] for counted in since.values()] for i, what in enumerate(COUNTED)}
            self.tell("exchange", round=number, neighbours=list(since), **columns)
        self.tell("round", round=number)

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

    def _trouble(self) -> dict[str, Any]:
        """What has happened to neighbours since the last round."""
        found: dict[str, Any] = {"gone": [], "back": [], "missed": [], "refused": {}}
        for name, known in self.status.neighbours.items():
            seen = self._seen.setdefault(name, _Seen())
            if known.alive != seen.alive:
                found["back" if known.alive else "gone"].append(name)
            if known.missed > seen.missed:
                found["missed"].append(name)
            if refused := _more(known.refusals, seen.refusals):
                found["refused"][name] = refused
            seen.alive, seen.missed, seen.refusals = known.alive, known.missed, dict(known.refusals)
        return {what: who for what, who in found.items() if who}

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


def _more(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """What has been added to some counts."""
    return {why: count - before.get(why, 0) for why, count in now.items() if count > before.get(why, 0)}

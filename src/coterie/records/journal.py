"""The journal of a run: a line of JSON for each event as it happens, in `journal.jsonl`.

A line is written by one call to the system, so a process that is killed leaves at most one torn line, the last. What
makes an event last (a checkpoint, the records of a finished job) follows its line: whoever goes on from a checkpoint
cuts the job's events back to those that the checkpoint counts, and none is there twice or of a future that never was.
"""

import contextlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie import files
from coterie.records.events import Event, Observer

FILE = "journal.jsonl"
PEERS = "jobs/*/peers/*"
"""Where the peers of a run have journals of their own."""

JobKey = tuple[str, int] | None


def events(folder: str | Path) -> list[Event]:
    """All events of a run, or of a peer, in the order of time; those of a run's peers among them."""
    found = [Path(folder), *sorted(Path(folder).glob(PEERS))]
    every = [event for each in found for event, _ in _lines(each / FILE)]
    return every if len(found) == 1 else sorted(every, key=lambda event: event.time)


def _lines(path: Path) -> Iterator[tuple[Event, bytes]]:
    """Each event with its line; a torn line ends it."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            event = _read(line) if line.endswith(b"\n") else None
            if event is None:
                return
            yield event, line


def _read(line: bytes) -> Event | None:
    """The event that a line tells, if it is whole."""
    try:
        said = json.loads(line)
        name, moment = said.pop("event"), float(said.pop("time"))
        return Event(name, said, moment)
    except (ValueError, AttributeError, KeyError, TypeError):
        return None


def merge(out: Path, folders: Mapping[int, Path]) -> None:
    """Write one journal of those of peers, by the number that each node is to have."""
    found = [
        replace(event, data={**event.data, "node": [node] if event.name == "evaluation" else node})
        for node, folder in folders.items()
        for event in events(folder)
    ]
    journal = Journal(out)
    for event in sorted(found, key=lambda event: event.time):
        journal.write(event)
    journal.close()


class Follower:
    """Gives the events that a journal gets from now on."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._at = self._path.stat().st_size if self._path.exists() else 0

    def fresh(self) -> list[Event]:
        """The events since the last call."""
        try:
            size = self._path.stat().st_size
            if size <= self._at:  # cut back, if smaller: its process goes on from a checkpoint
                self._at = size
                return []
            with self._path.open("rb") as file:
                file.seek(self._at)
                whole, _, _ = file.read().rpartition(b"\n")  # the last line may still be written
        except OSError:
            return []
        self._at += len(whole) + bool(whole)
        return [event for line in whole.splitlines() if (event := _read(line)) is not None]


class Journal:
    """The journal of a run or a peer, open for more.

    `kept` says for each job that goes on how many of its events stand; jobs that are not named there keep all, up to
    their end. How the run ended before is of no account once it goes on.
    """

    def __init__(self, folder: Path, kept: Mapping[JobKey, int] | None = None, cure: str = "") -> None:
        self.path, self.cure = folder / FILE, cure
        self._counts: Counter[JobKey] = Counter()
        self.ended = False
        """Whether the run has come to its end, with nothing left to do."""
        whole = self._kept(kept or {})
        with files.disk(folder, cure):
            before = self.path.read_bytes() if self.path.exists() else b""
            if not before.startswith(whole):
                files.write(self.path, whole)
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115
            self._file.truncate(len(whole))
        self._length = len(whole)

    def _kept(self, kept: Mapping[JobKey, int]) -> bytes:
        """The lines that stand."""
        lines, done = [], set()
        for event, line in _lines(self.path):
            job, last = event.job, event.name == "end"
            if job is None and last and (kept or event["how"] != "done"):
                continue
            if job in done or (job in kept and self._counts[job] >= kept[job]):
                continue
            if last and event["how"] == "done":
                done.add(job)
            self._counts[job] += 1
            lines.append(line)
        self.ended = None in done
        return b"".join(lines)

    def count(self, job: JobKey) -> int:
        """How many events of a job there are; of the run as a whole, for None."""
        return self._counts[job]

    def write(self, event: Event) -> None:
        """Append an event."""
        line = json.dumps(_plain({"event": event.name, "time": event.time, **event.data}), default=str) + "\n"
        with files.disk(self.path.parent, self.cure):
            try:
                self._append(line.encode())
            except OSError:
                with contextlib.suppress(OSError):  # else the next line would begin in the middle of this one
                    self._file.truncate(self._length)
                raise
        self._counts[event.job] += 1

    def _append(self, line: bytes) -> None:
        written = 0
        while written < len(line):
            written += self._file.write(line[written:])
        self._length += len(line)

    def sync(self) -> None:
        """Wait until all of it is on the disk."""
        with files.disk(self.path.parent, self.cure):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write no more."""
        self._file.close()


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """The same without numbers that are not finite, for which JSON has no word."""
    return {key: _finite(value) for key, value in data.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple) and any(isinstance(v, float) and not math.isfinite(v) for v in value):
        return [_finite(v) for v in value]
    return _plain(value) if isinstance(value, dict) else value


class Channel:
    """What happens in a run goes here, and from here to its journal, if it has one, and to all observers."""

    def __init__(self, journal: Journal | None = None, observers: Iterable[Observer] = (), **common: Any) -> None:
        self.journal, self.common = journal, common
        self.observers = observers if isinstance(observers, list) else list(observers)

    def job(self, method: str, seed: int, **more: Any) -> "Channel":
        """The same for events of one job; who is told no more by one of the two is told no more by the other."""
        return Channel(self.journal, self.observers, method=method, seed=seed, **more)

    @property
    def count(self) -> int:
        """How many events of this job the journal holds."""
        if self.journal is None:
            return 0
        return self.journal.count((self.common["method"], self.common["seed"]) if self.common else None)

    def tell(self, name: str, **data: Any) -> None:
        """Write an event down and tell the observers."""
        event = Event(name, self.common | data)
        if self.journal is not None:
            self.journal.write(event)
        self._show(event)

    def live(self, name: str, **data: Any) -> None:
        """Tell the observers of something that is for them alone."""
        self._show(Event(name, self.common | data))

    @contextlib.contextmanager
    def sealed(self, name: str, **data: Any) -> Iterator[None]:
        """Write an event down for good before what makes it last is done, and tell the observers after."""
        event = Event(name, self.common | data)
        if self.journal is not None:
            self.journal.write(event)
            self.journal.sync()
        yield
        self._show(event)

    def relay(self, event: Event) -> None:
        """Tell the observers of an event from elsewhere."""
        self._show(event)

    def _show(self, event: Event) -> None:
        for observer in list(self.observers):
            try:
                observer.event(event)
            except Exception as error:
                self.observers.remove(observer)
                who, why = type(observer).__name__, f"{type(error).__name__}: {error}"
                self.tell("warning", text=f"the observer {who} failed and is told no more ({why})")

    def close(self) -> None:
        """The run is over."""
        for observer in list(self.observers):
            if (close := getattr(observer, "close", None)) is not None:
                with contextlib.suppress(Exception):
                    close()
        if self.journal is not None:
            self.journal.close()

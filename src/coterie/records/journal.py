"""The journal of a run: a line of JSON for each event as it happens, in `journal.jsonl`.

A line is written by one call to the system, so a process that is killed leaves at most one torn line, the last. Any
other that cannot be read is a disk's fault: a warning takes its place, and what follows stands. What
makes an event last (a checkpoint, the records of a finished job) follows its line: whoever goes on from a checkpoint
cuts the job's events back to those that the checkpoint counts, and none is there twice or of a future that never was.
"""

import contextlib
import heapq
import json
import math
import mmap
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coterie import files
from coterie.records.events import Event, Observer, Sight, tell

FILE = "journal.jsonl"
PEERS = "jobs/*/peers/*"
"""Where the peers of a run have journals of their own."""

HEAD = 400
"""How many bytes of a line are looked at before it is read: it names the event, the job and the round."""

DAMAGED = "the journal is damaged here: what stood in this line is lost"
"""What is told in place of a line that cannot be read."""
_JOINT = re.compile(rb'(?<=\}).(?=\{"event": )')
"""Where two lines were, before the end of the first was damaged."""

JobKey = tuple[str, int]
"""A method and a seed."""


def events(folder: str | Path) -> list[Event]:
    """All events of a run, or of a peer, in the order of time; those of a run's peers among them."""
    found = [Path(folder), *sorted(Path(folder).glob(PEERS))]
    return list(_in_time([line.event for line in _lines(each / FILE)] for each in found))


def _in_time(journals: Iterable[list[Event]]) -> Iterator[Event]:
    """The events of several journals by their time; those of each stay in order, even if its clock was set back."""
    return heapq.merge(*journals, key=lambda event: event.time)


@dataclass(frozen=True)
class _Line:
    """A line of a journal, and the event that it tells; if it is damaged, these are a warning in its place."""

    event: Event
    content: bytes
    damaged: bool = False


def _lines(path: Path) -> Iterator[_Line]:
    """All lines but the last, if that is torn. A damaged one counts as one of the job that goes on around it."""
    if not path.is_file():
        return
    *whole, _ = files.content(path).split(b"\n")
    pieces = [piece for line in whole for piece in _JOINT.split(line)]
    read = [(piece, _read(piece)) for piece in pieces]
    near = next((event for _, event in read if event is not None), Event("begin"))
    for piece, event in read:
        if event is not None:
            near = event
            yield _Line(event, piece + b"\n")
        else:
            about = {key: near[key] for key in ("method", "seed", "peer", "node", "round") if key in near.data}
            warning = Event("warning", {**about, "text": DAMAGED}, near.time)
            yield _Line(warning, _text(warning), damaged=True)


def _read(line: bytes) -> Event | None:
    """The event that a line tells, if it is whole."""
    try:
        said = json.loads(line)
        name, moment = said.pop("event"), float(said.pop("time"))
        return Event(name, said, moment)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return None


def _text(event: Event) -> bytes:
    """The line that tells an event."""
    return json.dumps(_plain({"event": event.name, "time": event.time, **event.data}), default=str).encode() + b"\n"


def merge(out: Path, folders: Mapping[int, Path]) -> None:
    """Write one journal of those of peers, by the number that each node is to have."""
    found = [
        [
            replace(event, data={**event.data, "node": [node] if event.name == "evaluation" else node})
            for event in events(folder)
        ]
        for node, folder in folders.items()
    ]
    journal = Journal(out)
    for event in _in_time(found):
        journal.write(event)
    journal.close()


class JournalTail:
    """The lines of a journal as they come, each with the place where it stands."""

    def __init__(self, path: Path, at: int = 0) -> None:
        self.path, self.at = path, at
        self._end = b""
        """What stood just before there, by which a journal that was cut back and went on is known."""

    def fresh(self) -> list["Spot"] | None:
        """Where the lines since the last call stand; None if what was read before is not there any more."""
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(self.at - len(self._end), 0))
                if size < self.at or file.read(len(self._end)) != self._end:
                    return None
                if size == self.at:
                    return []
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                    return self._spots(text)
        except (OSError, ValueError):
            return None if self.at else []

    def _spots(self, text: mmap.mmap) -> list["Spot"]:
        found = []
        while (end := text.find(b"\n", self.at)) >= 0:  # the last line may still be written
            found.append(Spot(self.path, self.at, end, text[self.at : min(end, self.at + HEAD)]))
            self.at = end + 1
        self._end = text[max(self.at - HEAD, 0) : self.at]
        return found


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a line of a journal stands, and how it begins."""

    path: Path
    start: int
    end: int
    head: bytes

    def event(self) -> Event | None:
        """The event that stands there, if it is whole."""
        if self.end - self.start <= len(self.head):
            return _read(self.head)
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                return _read(file.read(self.end - self.start))
        except OSError:
            return None


class Follower:
    """Gives the events that a journal gets from now on."""

    def __init__(self, folder: Path) -> None:
        path = folder / FILE
        self._tail = JournalTail(path, path.stat().st_size if path.exists() else 0)

    def fresh(self) -> list[Event]:
        """The events since the last call."""
        spots = self._tail.fresh()
        if spots is None:  # cut back: its process goes on from a checkpoint
            self._tail = JournalTail(self._tail.path, files.size(self._tail.path))
        return [event for spot in spots or () if (event := spot.event()) is not None]


class Journal:
    """The journal of a run or a peer, open for more.

    `kept` says for each job that goes on how many of its events stand; jobs that are not named there keep all, up to
    their end. How the run ended before is of no account once it goes on.
    """

    def __init__(self, folder: Path, kept: Mapping[JobKey | None, int] | None = None, cure: str = "") -> None:
        self.path, self.cure = folder / FILE, cure
        self._folder = folder
        self._begin(kept or {})

    def rewind(self, kept: Mapping[JobKey | None, int]) -> None:
        """Cut jobs that go on from a checkpoint back to so many events each."""
        self._file.close()
        self._begin(kept)

    def _begin(self, kept: Mapping[JobKey | None, int]) -> None:
        self._counts: Counter[JobKey | None] = Counter()
        self.ended = False
        """Whether the run has come to its end, with nothing left to do."""
        self.damaged = 0
        """How many lines were found damaged, and have a warning in their place."""
        whole = self._kept(kept)
        with files.disk(self._folder, self.cure):
            before = files.content(self.path) if self.path.exists() else b""
            if not before.startswith(whole):
                files.write(self.path, whole)
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115
            files.system.sync_folder(self._folder)
            if len(before) != len(whole):
                files.system.truncate(self._file, len(whole))
        self._length = len(whole)

    def _kept(self, kept: Mapping[JobKey | None, int]) -> bytes:
        """The lines that stand."""
        lines, done = [], set()
        for line in _lines(self.path):
            event, job, last = line.event, line.event.job, line.event.name == "end"
            if job is None and last and (kept or event["how"] != "done"):
                continue
            if job in done or (job in kept and self._counts[job] >= kept[job]):
                continue
            if last and event["how"] == "done":
                done.add(job)
            self._counts[job] += 1
            self.damaged += line.damaged
            lines.append(line.content)
        self.ended = None in done
        return b"".join(lines)

    def count(self, job: JobKey | None) -> int:
        """How many events of a job there are; of the run as a whole, for None."""
        return self._counts[job]

    def write(self, event: Event) -> None:
        """Append an event."""
        line = _text(event)
        with files.disk(self.path.parent, self.cure):
            try:
                files.system.write(self._file, line)
                self._length += len(line)
            except OSError:
                with contextlib.suppress(OSError):  # else the next line would begin in the middle of this one
                    files.system.truncate(self._file, self._length)
                raise
        self._counts[event.job] += 1

    def sync(self) -> None:
        """Wait until all of it is on the disk."""
        with files.disk(self.path.parent, self.cure):
            files.system.sync(self._file)

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
        self.sight: Sight | None = None
        """What observers may see of the job, once there is something."""
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

    def rewind(self, count: int) -> None:
        """Cut this job's events in the journal back to so many: it goes on from a checkpoint."""
        if self.journal is not None:
            self.journal.rewind({(self.common["method"], self.common["seed"]): count})

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
                tell(observer, event, self.sight)
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

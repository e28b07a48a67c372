"""A run as it is now: read from its folder, and read on as it grows. Nothing is written, and no part is imported."""

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from coterie import records
from coterie.errors import CoterieError
from coterie.page import clocks
from coterie.page.state import JobState
from coterie.records.journal import FILE, PEERS, JobKey, JournalTail, Spot
from coterie.records.table import KEYS, types

SPOKEN = re.compile(
    rb'\{"event": "(\w+)", "time": ([\d.e+-]+), "method": ("(?:[^"\\]|\\.)*"), "seed": (-?\d+)'
    rb'(?:, "peer": ("(?:[^"\\]|\\.)*"))?(?:, "node": [^r]*?)?, "round": (\d+)'
)
"""How a line begins that tells of a round of a job."""
LAZY = ("evaluation", "exchange", "fault")
"""Events with a number for each node or link: a line of these is read when somebody looks at it."""
QUIET = 30.0
"""Seconds after which a run that says nothing counts as stopped, where its lock cannot be seen."""


class RunReader:
    """Reads a run, and reads on when asked to `refresh`."""

    def __init__(self, folder: Path, label: str) -> None:
        self.folder, self.label = folder, label
        self.version = 0
        """Grows whenever there is anything new."""
        self._forget()

    def _forget(self) -> None:
        self.jobs: dict[JobKey, JobState] = {}
        self.trouble = ""
        self.how = "waiting"
        self._tails: dict[Path, JournalTail] = {}
        self._fresh: list[pl.DataFrame] = []
        self._frame = records.empty()
        self._whole: pl.DataFrame | None = None
        self._known: dict[JobKey, int] = {}
        self._parts: dict[JobKey, pl.DataFrame] = {}

    def refresh(self) -> bool:
        """Read what is new; whether there was anything."""
        before = self.version
        if not self._tails:
            self._read_records()
        for path in [self.folder / FILE, *sorted(self.folder.glob(f"{PEERS}/{FILE}"))]:
            tail = self._tails.setdefault(path, JournalTail(path))
            spots = tail.fresh()
            if spots is None:  # it goes on from a checkpoint: what was told after it did not happen
                self._forget()
                self.version += 1
                return self.refresh()
            for spot in spots:
                self._take(spot)
            self.version += bool(spots)
            if spots:
                self._whole = None
        return self.version > before

    @property
    def frame(self) -> pl.DataFrame:
        """The records so far, and how far behind each peer was."""
        if self._fresh:
            self._frame = records.together([self._frame, *self._fresh])
            self._fresh = []
        if self._whole is None:
            self._whole, self._parts = clocks.with_lag(self._frame, self.jobs), {}
        return self._whole

    def rows(self, key: JobKey) -> pl.DataFrame:
        """The records of a job so far."""
        frame = self.frame
        if not self._parts and not frame.is_empty():
            parts = frame.partition_by("method", "seed", as_dict=True)
            self._parts = {(str(method), int(seed)): part for (method, seed), part in parts.items()}
        return self._parts.get(key, frame.clear())

    @property
    def running(self) -> bool:
        """Whether a process holds the run, as far as can be seen from here."""
        if self.how == "done":
            return False
        if held(self.folder / "lock"):
            return True
        with contextlib.suppress(OSError):
            return self.how == "running" and time.time() - (self.folder / FILE).stat().st_mtime < QUIET
        return False

    def state(self, job: JobState) -> str:
        """How a job stands: `running`, `waiting`, or how it has ended."""
        if job.how == "running" and not self.running:
            return "stopped"
        return job.how

    def _read_records(self) -> None:
        with contextlib.suppress(CoterieError):
            self._frame = _with_measures(records.load(self.folder), self.folder)
            last = self._frame.group_by("method", "seed").agg(pl.col("round").max())
            self._known = {(method, seed): round for method, seed, round in last.iter_rows()}
            for key, end in self._known.items():
                self.jobs[key] = JobState(round=end, rounds=end, how="done")

    def _take(self, spot: Spot) -> None:
        said = SPOKEN.match(spot.head)
        name = said[1].decode() if said else ""
        if said and name in (*LAZY, "round"):
            key, number = (json.loads(said[3]), int(said[4])), int(said[6])
            peer = json.loads(said[5]) if said[5] else None
            job = self.jobs.setdefault(key, JobState())
            if self._later(spot, name, key, number, peer):
                return
            if name == "round":
                job.reach(number, float(said[2]), peer)
                if b'"roles"' not in spot.head:
                    return
        if (event := spot.event()) is not None:
            self._read(event)

    def _later(self, spot: Spot, name: str, key: JobKey, number: int, peer: str | None) -> bool:
        """Whether it is enough to know where this is told."""
        job = self.jobs[key]
        if name == "exchange":
            (job.exchanges if peer is None else job.told.setdefault(peer, {}))[number] = spot
        elif name == "fault" and peer is None:
            job.faults[number] = spot
        elif name == "evaluation" and number <= self._known.get(key, -1):
            job.round = max(job.round, number)
        else:
            return False
        return True

    def _read(self, event: records.Event) -> None:
        key = event.job
        if key is None:
            self._read_run(event)
            return
        job = self.jobs.setdefault(key, JobState())
        match event.name:
            case "begin":
                job.rounds = event.get("rounds", job.rounds)
                job.nodes = max(event.get("nodes", 0), job.nodes)
                if not job.began:
                    for number, start in enumerate(event.get("cycles", ()), 1):
                        job.mark(event, f"cycle {number} of the lesson's weights begins", round=start, kind="cycle")
                if "peer" in event.data:
                    job.peers[event["peer"]] = event.get("node", 0)
                    job.ends.pop(event["peer"], None)
                    job.neighbours[event["peer"]] = [str(name) for name in event.get("neighbours", ())]
                if not job.began or "peer" not in event.data:
                    job.began, job.how = job.began or event.time, "running"
            case "evaluation":
                self._fresh.append(_rows(event, *key))
                job.round = max(job.round, event.get("round", 0))
            case "end":
                self._end(job, event)
            case "round" if "roles" in event.data:
                job.play(event)
            case "fault":
                job.heed(event)
                for text in fault_words(event):
                    job.mark(event, text)
            case "warning":
                job.mark(event, str(event.get("text", "")))
            case "checkpoint" if "peer" not in event.data:
                job.mark(event, f"checkpoint after round {event.get('round')}")

    def _end(self, job: JobState, event: records.Event) -> None:
        if "peer" in event.data:
            job.ends[event["peer"]] = str(event.get("how"))
            if event.get("how") != "done":
                job.mark(event, f"{event['peer']} {event.get('how')} {event.get('error', '')}")
            return
        job.how, job.ended, job.error = str(event.get("how")), event.time, str(event.get("error", ""))
        if job.how != "done":
            job.mark(event, f"{job.how} {job.error}")

    def _read_run(self, event: records.Event) -> None:
        if event.name == "begin":
            self.how = "running"
            order = [(str(method), int(seed)) for method, seed in event.get("jobs", ())]
            self.jobs = {key: self.jobs.get(key) or JobState() for key in (*order, *self.jobs)}
            for job in self.jobs.values():
                job.rounds = job.rounds or event.get("rounds", 0)
        elif event.name == "end":
            self.how = str(event.get("how"))
            self.trouble = str(event.get("error", ""))


def fault_words(event: records.Event) -> Iterator[str]:
    """What went wrong in a round, a line for each kind; who is a peer says it of its neighbours."""
    who = f"{event['peer']}: " if "peer" in event.data else ""
    for kind in ("gone", "back", "missed"):
        if named := event.get(kind):
            yield f"{who}{', '.join(map(str, named))} {'missed a deadline' if kind == 'missed' else kind}"
    for neighbour, reasons in dict(event.get("refused") or {}).items():
        counted = ", ".join(f"{why} ×{count}" if count > 1 else why for why, count in dict(reasons).items())
        yield f"{who}refused from {neighbour}: {counted}"


def _rows(event: records.Event, method: str, seed: int) -> pl.DataFrame:
    """The records that an evaluation tells."""
    told = {key: value for key, value in event.data.items() if isinstance(value, list)}
    kinds = {name: kind for name, kind in types(told).items() if name not in ("method", "seed", "round")}
    frame = pl.DataFrame(told, schema=kinds, strict=False)
    about = {"method": method, "seed": seed, "round": event["round"]}
    return frame.select(
        *(pl.lit(value, types([name])[name]).alias(name) for name, value in about.items()), *map(pl.col, kinds)
    )


def _with_measures(frame: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """The records with the measures of whole models, or of the whole network, as columns beside them."""
    with contextlib.suppress(CoterieError):
        whole = records.measures(folder).filter(pl.col("layer").is_null(), pl.col("epoch").is_null())
        for name in whole["measure"].unique(maintain_order=True):
            if name in frame.columns:  # a rule may tell of what records know already
                continue
            own = whole.filter(pl.col("measure") == name)
            keys = [k for k in KEYS if k != "node" or own["node"].count()]
            frame = frame.join(
                own.select(*keys, pl.col("value").alias(name)), on=keys, how="left", maintain_order="left"
            )
    return frame


def held(lock: Path) -> bool:
    """Whether a process can be seen to hold a lock, which is not touched."""
    try:
        there = os.stat(lock)
        listed = Path("/proc/locks").read_text()
    except OSError:
        return False
    place = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino} "
    return any("FLOCK" in line and place in line for line in listed.splitlines())

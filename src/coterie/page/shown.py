"""What is shown on a page: some runs, or a folder of them, and what the page asks of them."""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from coterie.errors import RunError
from coterie.page.job import job_view, links_view, matrix, node_view
from coterie.page.overview import View, overview
from coterie.page.run import RunReader, held
from coterie.records.journal import FILE, JobKey

MOST = 12
"""Runs that are shown together at most."""
LISTED = 500
"""Runs of a folder that are listed at most."""
LINE = 65_536
"""How much is read of the beginning and of the end of a journal for that."""


class Shown:
    """Answers what a page asks: plain data, from folders that were named when it was made and from nowhere else."""

    def __init__(self, folders: Sequence[Path], listed: bool | None = None) -> None:
        self._lock = Lock()
        self.listed = len(folders) == 1 and not is_run(folders[0]) if listed is None else listed
        """Whether it is a folder whose runs are listed, which is found out if it is not said."""
        self._last: tuple[Any, View] = (None, {})
        """The latest overview, and what it is of."""
        self.runs: dict[str, Path] = {}
        self.root = folders[0] if self.listed else None
        self._readers: dict[str, RunReader] = {}
        if self.root is None:
            names = [f.resolve().name for f in folders]
            labels = names if len(set(names)) == len(names) else [str(f) for f in folders]
            self.runs = dict(zip(labels, folders, strict=True))

    def listing(self) -> View:
        """The runs there are to choose from."""
        if self.root is not None:
            found = sorted(runs_below(self.root), key=lambda path: -(path / FILE).stat().st_mtime)[:LISTED]
            self.runs = {path.relative_to(self.root).as_posix(): path for path in found}
        listed = [{"label": label, **(in_short(path) if self.listed else {})} for label, path in self.runs.items()]
        return {"folder": self.listed, "runs": listed}

    def readers(self) -> list[RunReader]:
        """Readers of all runs that were named, up to date."""
        return self._refreshed(())

    def overview(self, runs: Sequence[str]) -> View:
        """The runs of these names as a whole; all, if none is named and they are not those of a folder."""
        with self._lock:
            readers = self._refreshed(runs)
            known = tuple((reader.label, reader.version, reader.running) for reader in readers)
            if self._last[0] != known:
                self._last = known, overview(readers)
            return self._last[1]

    def version(self, runs: Sequence[str]) -> int:
        """A number that grows as these runs do."""
        with self._lock:
            return sum(reader.version + reader.running for reader in self._refreshed(runs))

    def job(self, name: str, **asked: Any) -> View:
        """What is asked of a job: its view, or a `column`, a `node`, the links at a `round`."""
        with self._lock:
            reader, key = self._found(name)
            match asked:
                case {"column": str(column)}:
                    return matrix(reader, key, column)
                case {"node": int(node)}:
                    return node_view(reader, key, node)
                case {"round": int(round)}:
                    return links_view(reader, key, round)
            return job_view(reader, key)

    def _refreshed(self, runs: Sequence[str]) -> list[RunReader]:
        if not runs and self.listed:
            raise RunError("no run is named", cure="Choose some of the list.")
        readers = [self._reader(label) for label in dict.fromkeys(runs or self.runs)][:MOST]
        for reader in readers:
            reader.refresh()
        return readers

    def _reader(self, label: str) -> RunReader:
        if label not in self._readers:
            if label not in self.runs and self.listed:
                self.listing()
            if label not in self.runs:
                raise RunError(f"no run {label!r} is shown here")
            self._readers[label] = RunReader(self.runs[label], label)
        return self._readers[label]

    def _found(self, name: str) -> tuple[RunReader, JobKey]:
        """The reader and the key of a job by what the page calls it."""
        for label in sorted(self.runs, key=len, reverse=True):
            seed, _, method = name.removeprefix(f"{label}:").partition(":")
            if name.startswith(f"{label}:") and seed.lstrip("-").isdecimal():
                reader = self._reader(label)
                if not reader.version:
                    reader.refresh()
                return reader, (method, int(seed))
        raise RunError(f"no job {name[:80]!r} is shown here")


def is_run(folder: Path) -> bool:
    """Whether a run, or a peer, has written here."""
    return (folder / "config.toml").is_file() or (folder / FILE).is_file()


def in_short(folder: Path) -> View:
    """When a run last said something, how it stands, and what it is of, by the first and the last of its journal."""
    try:
        with (folder / FILE).open("rb") as file:
            first = file.readline(LINE)
            file.seek(max(os.fstat(file.fileno()).st_size - LINE, 0))
            last = file.read().rstrip().rpartition(b"\n")[2]
            time = os.fstat(file.fileno()).st_mtime
    except OSError:
        return {"time": None, "state": "", "what": ""}
    begun, ended = _said(first), _said(last)
    state = str(ended.get("how")) if ended.get("event") == "end" and "method" not in ended else ""
    return {"time": time, "state": state or ("running" if held(folder / "lock") else "stopped"), "what": _what(begun)}


def _what(begun: Mapping[str, Any]) -> str:
    """The methods of a run, its seeds and its rounds."""
    jobs = [job for job in begun.get("jobs") or () if isinstance(job, list) and len(job) == 2]
    methods, seeds = dict.fromkeys(str(job[0]) for job in jobs), {str(job[1]) for job in jobs}
    counted = ((len(seeds), "seed"), (begun.get("rounds"), "round"))
    return "; ".join([", ".join(methods), *(f"{n} {thing}{'s' * (n != 1)}" for n, thing in counted)]) if jobs else ""


def _said(line: bytes) -> dict[str, Any]:
    """An event's line, or nothing."""
    with contextlib.suppress(ValueError, RecursionError):
        told = json.loads(line)
        return told if isinstance(told, dict) else {}
    return {}


def runs_below(root: Path, depth: int = 4) -> list[Path]:
    """The runs in a folder and in those below it; links to elsewhere are not followed."""
    found: list[Path] = []
    for path in sorted(p for p in (root.iterdir() if root.is_dir() else ()) if p.is_dir() and not p.is_symlink()):
        if (path / "config.toml").is_file() and (path / FILE).is_file():
            found.append(path)
        elif depth > 1:
            found += runs_below(path, depth - 1)
    return found


def told(shown: Shown, asked: Mapping[str, str]) -> View:
    """The answer to a question about a job, in words of an address."""
    given: dict[str, Any] = {k: v for k, v in asked.items() if k == "column"}
    for name in ("node", "round"):
        if name in asked:
            if not asked[name].isdecimal():
                raise RunError(name, expected="a whole number", got=repr(asked[name][:20]))
            given[name] = int(asked[name])
    return shown.job(asked.get("job", ""), **given)

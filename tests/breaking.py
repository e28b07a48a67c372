"""Ending a run at each place where its state changes, one after the other, also with a disk that forgets.

As a program it runs an experiment once undisturbed, and once more for each of these places: ended there, then resumed.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

from coterie import failpoints, files, records
from coterie.config.build import build
from coterie.config.configuration import read
from coterie.engines import CheckpointClock
from coterie.engines.local import Local
from coterie.job import Job
from coterie.runs import runner
from coterie.runs.experiment import Experiment

ENDED = 99
"""How a process ends that was ended here."""
SETTLE = 0.02
"""Seconds in which other threads finish the change they are in the middle of, before the power goes."""


class ForgetfulDisk(files.FileSystem):
    """Knows what of a folder is on the disk for certain: content that was waited for, under names that were.

    What is left when the power goes is either that and no more (`lost`), or every name there is, with what was not
    waited for cut in half (`torn`) or never written (`zeros`).
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.contents: dict[int, bytes] = {}
        self.names: dict[int, dict[str, int]] = {}
        self.held: dict[int, int] = {}
        """Everything seen stays open, so that the system gives its number to nothing else."""
        for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
            self.sync_folder(folder)
        for path in (path for path in root.rglob("*") if path.is_file()):
            with open(path, "rb", buffering=0) as file:
                self.sync(file)

    def _hold(self, path: str | Path) -> int:
        number = os.stat(path).st_ino
        if number not in self.held:
            self.held[number] = os.open(path, os.O_RDONLY)
        return number

    def write(self, file: FileIO, content: files.Bytes) -> None:
        self._hold(str(file.name))
        super().write(file, content)

    def sync(self, file: FileIO) -> None:
        failpoints.reach("before sync", file.name)
        self.contents[self._hold(str(file.name))] = Path(str(file.name)).read_bytes()

    def sync_folder(self, folder: Path) -> None:
        failpoints.reach("before folder sync", folder)
        self.names[self._hold(folder)] = {entry.name: self._hold(entry.path) for entry in os.scandir(folder)}

    def left(self, how: str) -> dict[str, bytes | None]:
        """What is there after the power has gone: content by path, None for a folder."""
        if how == "lost":
            return self._certain(os.stat(self.root).st_ino, "")
        found: dict[str, bytes | None] = {}
        for path in sorted(self.root.rglob("*")):
            known = self.contents.get(path.stat().st_ino, b"")
            now = None if path.is_dir() else path.read_bytes()
            if now is not None and now != known:
                sure = len(known) if now.startswith(known) else 0
                now = now[: sure + (len(now) - sure) // 2] if how == "torn" else now[:sure] + bytes(len(now) - sure)
            found[str(path.relative_to(self.root))] = now
        return found

    def _certain(self, folder: int, prefix: str) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for name, number in self.names.get(folder, {}).items():
            if os.path.isdir(f"/proc/self/fd/{self.held[number]}"):
                found |= {prefix + name: None, **self._certain(number, f"{prefix}{name}/")}
            else:
                found[prefix + name] = self.contents.get(number, b"")
        return found

    def crash(self, how: str) -> None:
        """Leave the folder as it is after the power has gone."""
        left = self.left(how)
        for path in sorted(self.root.rglob("*"), reverse=True):
            if str(path.relative_to(self.root)) not in left:
                path.rmdir() if path.is_dir() else path.unlink()
        for path, content in ((self.root / name, content) for name, content in left.items()):
            if content is None:
                path.mkdir(exist_ok=True)
            elif not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)


def child(what: Callable[[], object]) -> int:
    """Do something in a process of its own; its exit code."""
    number = os.fork()
    if not number:
        try:
            what()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


class Ending:
    """Ends this process when it passes a place for the so-manieth time; notes the places until then."""

    def __init__(self, place: str, pass_: int, how: str, root: Path) -> None:
        self.place, self.left, self.how = place, pass_, how
        self.places: list[str] = []
        self.lock = threading.Lock()
        self.disk = None if how == "killed" else ForgetfulDisk(root)
        files.system = self.disk or files.system
        failpoints.hook = self

    def __call__(self, place: str, what: str) -> None:
        with self.lock:  # whoever comes to a place while the power goes waits here for the end
            name = f"{place} {Path(what).name}"
            self.places.append(name)
            self.left -= name == self.place
            if name == self.place and not self.left:
                if self.disk:
                    time.sleep(SETTLE)
                    self.disk.crash(self.how)
                os._exit(ENDED)


class Began:
    """An observer that notes with which rounds jobs have begun."""

    def __init__(self) -> None:
        self.rounds: list[int] = []

    def event(self, event: records.Event) -> None:
        if event.name == "begin" and event.get("method"):
            self.rounds.append(event["round"])


def ends(places: list[str], torn: bool = True) -> Iterator[tuple[str, int, str]]:
    """Where, on which pass and how processes are ended: at each place on its first and its last pass.

    Where nothing was written since the place before, a disk has nothing to forget. All three, or if not `torn` one of
    two, where time is short: the first pass is a kill or tears what was written, in turns.
    """
    for number, place in enumerate(dict.fromkeys(each for each in places if each.startswith("before"))):
        last, tears = places.count(place), "torn" if len(place) % 2 else "zeros"
        yield place, 1, "killed" if torn or "operation" in place or number % 2 else tears
        if "operation" not in place:
            yield place, last, "lost"
            if torn:
                yield place, last, tears


def warm_up(job: Job) -> None:
    """Do once what every process would else do again; no table, since Polars bears no fork once it has begun."""
    session = Local(workers=1, mode="loop").open()
    session.begin(job)
    session.round(1, True)
    session.close()


def main(config: Path, folder: Path) -> None:
    """Run and break; prints for each end what became of it."""
    experiment = Experiment(**read(config))
    first = next(iter(experiment.resolved.values()))
    samples = runner.load_samples(first)
    runner.load_samples = lambda settings: samples
    warm_up(build(first, samples, 0))
    CheckpointClock.due = lambda self: True  # type: ignore[method-assign]  # a checkpoint after every round
    os.fsync = lambda file: None  # type: ignore[assignment]  # the system outlives its processes

    def live(out: Path, place: str, pass_: int, how: str) -> None:
        out.mkdir(parents=True)
        ending = Ending(place, pass_, how, out)
        runner.run(experiment, out)
        (folder / "places.json").write_text(json.dumps(ending.places))

    def go_on(out: Path) -> None:
        began = Began()
        if (out / "config.toml").exists():
            runner.resume(out, [began])
        else:  # nothing had begun
            for left in out.iterdir():
                left.unlink()
            runner.run(experiment, out, [began])
        (out / "begun.json").write_text(json.dumps(began.rounds))

    assert child(lambda: live(folder / "straight", "", 1, "killed")) == 0
    places = json.loads((folder / "places.json").read_text())
    for number, (place, pass_, how) in enumerate(ends(places)):
        out, end = folder / f"{number}", [i for i, each in enumerate(places) if each == place][pass_ - 1]
        codes = child(lambda: live(out, place, pass_, how)), child(lambda: go_on(out))  # noqa: B023
        running = places[: end + 1].count("before operation train")
        print(json.dumps([out.name, place, how, running, *codes]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

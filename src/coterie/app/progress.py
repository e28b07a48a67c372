"""Observers that show a run while it runs: bars on a terminal, lines elsewhere."""

import threading
import time
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from coterie.app.machines import Machines
from coterie.app.watch import PeersTable
from coterie.records import Event, Observer
from coterie.records.journal import JobKey
from coterie.report.tables import humanise


def observers(console: Console, where: str, engine: str = "local") -> list[Observer]:
    """What suits this console, for a run that is written there."""
    if engine == "peer":
        return [PeersTable(console), Lines(console, where)]
    return [Bars(console, where) if console.is_terminal else Lines(console, where)]


def reached(event: Event) -> str:
    """The mean over nodes of the first metric that an evaluation tells of test samples, in words; nothing if none."""
    metric = next((key for key in event.data if key.startswith("test_")), "")
    values = [value for value in event.get(metric) or () if value is not None]
    return f", {metric.removeprefix('test_')} {fmean(values):.3f}" if values else ""


class Tally:
    """How far each of some jobs or tasks is, and from that how long the rest will take."""

    def __init__(self, rounds: Mapping[Any, int], clock: Callable[[], float] = time.monotonic) -> None:
        self.rounds, self.done, self.clock = dict(rounds), dict.fromkeys(rounds, 0), clock
        self.before, self.started = 0, 0.0
        """What was done, and when, as the pace began to count: after the first round, which is slower than others."""

    def begin(self, key: Any, round: int, rounds: int) -> None:
        """A job begins; what was done of it before says nothing of the speed now."""
        self.rounds[key], self.done[key] = rounds, round
        self.before += round if self.started else 0

    def reach(self, key: Any, round: int) -> None:
        """A job has come so far."""
        self.done[key] = round
        if not self.started and round > 0:
            self.before, self.started = self.reached, self.clock()

    @property
    def total(self) -> int:
        """The rounds of all."""
        return sum(self.rounds.values())

    @property
    def reached(self) -> int:
        """How many of them are done."""
        return sum(self.done.values())

    @property
    def finished(self) -> int:
        """How many jobs are at their end."""
        return sum(done >= self.rounds[key] for key, done in self.done.items())

    @property
    def left(self) -> float | None:
        """Seconds that the rest will take at the pace so far, once there is one."""
        done = self.reached - self.before
        if not self.started or done <= 0:
            return None
        return (self.clock() - self.started) / done * (self.total - self.reached)

    @property
    def share(self) -> str:
        """How much is done, in words: `40 %`."""
        return f"{100 * self.reached // max(self.total, 1)} %"

    @property
    def rest(self) -> str:
        """How long it will take, in words to be added; nothing as long as nobody knows."""
        return "" if self.left is None else f", {lasting(self.left)} left"


class Rhythm:
    """Says when a log is due a line: after the first rounds, every tenth of the way, and when it was quiet for long."""

    QUIET, OFTEN = 30.0, 5.0
    """The most and the least seconds between two lines."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.last, self.tenths = clock, clock(), -1

    def said(self) -> None:
        """A line was written."""
        self.last = self.clock()

    @property
    def quiet(self) -> bool:
        """Whether nothing was said for long."""
        return self.clock() - self.last >= self.QUIET

    def due(self, tally: Tally) -> bool:
        """Whether to say how far it is."""
        tenths = 10 * tally.reached // max(tally.total, 1)
        if not 0 < tally.reached < tally.total:  # what is done has a line of its own
            return False
        if not self.quiet and (tenths <= self.tenths or self.clock() - self.last < self.OFTEN):
            return False
        self.tenths = tenths
        return True


def lasting(seconds: float) -> str:
    """A time to come, in words: `about 3 min`."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {max(seconds, 1):.0f} s"


def needed(event: Event) -> str:
    """What memory a run takes, in words."""
    free = "" if event["free"] is None else f"; {humanise(event['free'])} are free"
    return f"needs about {humanise(event['bytes'])} of memory for models and training{free}"


class Bars:
    """Two bars on a terminal: all jobs, and the present one with its round and its first metric."""

    def __init__(self, console: Console, where: str) -> None:
        self.where, self.bars = where, bars(console)
        self.tally = Tally({})
        self.reached = ""
        self.whole, self.present = TaskID(0), TaskID(0)
        self.machines, self.workers = Machines(), TaskID(-1)

    def event(self, event: Event) -> None:
        """Move the bars on."""
        self.machines.event(event)
        if event.name == "begin":
            self._begin_run(event) if event.job is None else self._begin_job(event, event.job)
        elif event.name == "phase":
            said = {"description": event["text"], "completed": event["done"], "total": event["total"]}
            self.bars.update(self.present, **said)
        elif event.name == "need":
            say(self.bars.console, needed(event), "dim")
        elif event.name == "evaluation":
            self.reached = reached(event)
        elif event.name == "exchange" and self.machines.said:
            self._show_workers()
        elif event.name == "round" and event.job:
            self._progress(event.job, event["round"])
        elif event.name == "warning" or event.get("how") == "diverged":
            say(self.bars.console, event.get("text") or event["error"], "dim")

    def close(self) -> None:
        """Take the bars away."""
        self.bars.stop()

    def _show_workers(self) -> None:
        """How evenly workers are busy, and what goes between them."""
        if self.workers < 0:
            self.workers = self.bars.add_task("workers", total=1.0, said="")
        self.bars.update(self.workers, completed=self.machines.even, said=self.machines.said)

    def _begin_run(self, event: Event) -> None:
        self.tally = Tally(dict.fromkeys(map(tuple, event["left"]), event["rounds"]))
        say(self.bars.console, f"writing to {self.where}", "dim")
        self.whole = self.bars.add_task("all", total=self.tally.total, said=f"0 of {len(self.tally.done)} jobs")
        self.present = self.bars.add_task("preparing", total=None, said="")
        self.bars.start()

    def _begin_job(self, event: Event, job: JobKey) -> None:
        self.reached = ""
        self.tally.begin(job, event["round"], event["rounds"])
        said = f"{job[0]}, seed {job[1]}"
        self.bars.update(self.whole, total=self.tally.total)
        self.bars.reset(self.present, total=event["rounds"], completed=event["round"], description=said)
        if event["round"] or self.tally.reached == 0:  # what was before says nothing of the speed now
            self.bars.reset(self.whole, completed=self.tally.reached)
        self._progress(job, event["round"])

    def _progress(self, job: JobKey, round: int) -> None:
        tally = self.tally
        tally.reach(job, round)
        self.bars.update(self.present, completed=round, said=f"round {round} of {tally.rounds[job]}{self.reached}")
        self.bars.update(self.whole, completed=tally.reached, said=f"{tally.finished} of {len(tally.done)} jobs")


class Lines:
    """Lines for a log file or a pipe: what is waited for, how far the run is, and one when each job is done."""

    def __init__(self, console: Console, where: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.where, self.clock = console, where, clock
        self.tally, self.finished, self.reached, self.present = Tally({}, clock), 0, "", ""
        self.rhythm, self.over = Rhythm(clock), threading.Event()
        self.machines, self.told = Machines(), ""

    def event(self, event: Event) -> None:
        """Say what is worth a line."""
        if "peer" in event.data:
            return
        self.machines.event(event)
        if event.name == "begin" and event.job is None:
            self._begin(event)
        elif event.name == "begin":
            self.started, self.reached = self.clock(), ""
            self.tally.begin(event.job, event["round"], event["rounds"])
        elif event.name == "phase" and event["text"] != self.present:
            self._say(event["text"])
            self.present = event["text"]
        elif event.name == "need":
            self._say(needed(event))
        elif event.name == "evaluation":
            self.reached = reached(event)
        elif event.name == "round" and event.job:
            self._progress(event.job, event["round"])
        elif event.name == "warning":
            self._say(event["text"])
        elif event.name == "end" and event.job:
            self._end(event, event.job)

    def close(self) -> None:
        """Say nothing more."""
        self.over.set()

    def _begin(self, event: Event) -> None:
        self.tally = Tally(dict.fromkeys(map(tuple, event["left"]), event["rounds"]), self.clock)
        jobs, rounds = _count(len(self.tally.done), "job"), _count(event["rounds"], "round")
        self._say(f"{jobs} of {rounds}, writing to {self.where}")
        threading.Thread(target=self._remind, daemon=True).start()

    def _remind(self) -> None:
        """Say what goes on if nothing else has been said for long, as in a round that takes minutes."""
        while not self.over.wait(1):
            if self.present and self.rhythm.quiet:
                self._say(f"still at it: {self.present}{self.tally.rest}")

    def _progress(self, job: JobKey, round: int) -> None:
        tally = self.tally
        tally.reach(job, round)
        self.present = f"{job[0]}, seed {job[1]}, round {round} of {tally.rounds[job]}{self.reached}"
        if self.rhythm.due(tally):
            self._say(f"{tally.share}: {self.present}{tally.rest}")
            self._say_machines()

    def _say_machines(self) -> None:
        """What goes between workers, if that is not what was said last."""
        if self.machines.said != self.told:
            self.told = self.machines.said
            self._say(self.told)

    def _end(self, event: Event, job: JobKey) -> None:
        if event["how"] == "done":
            self._say_machines()
            self.finished += 1
            took = f"{self.clock() - self.started:.1f} s"
            whole = f"{self.finished} of {len(self.tally.done)}"
            self._say(f"{whole}: {job[0]}, seed {job[1]}{self.reached}, {took}")
        elif event["how"] == "diverged":
            self._say(f"{job[0]}, seed {job[1]}: {event['error']}")

    def _say(self, text: str) -> None:
        self.rhythm.said()
        say(self.console, text)


class Tasks:
    """Display of a study or a sweep: a bar for all of it and one for each task under way; in a log, lines."""

    def __init__(self, console: Console) -> None:
        self.console, self.live = console, console.is_terminal
        self.bars, self.rhythm = bars(console), Rhythm()
        self.under_way: dict[str, TaskID] = {}
        self.reached: dict[str, str] = {}

    def event(self, event: Event) -> None:
        """Move the bars on, or print a line."""
        key = event.get("task")
        if event.name == "begin" and key is None:
            self._begin(event)
        elif event.name in ("begin", "round"):
            self._progress(key, event["round"])
        elif event.name == "evaluation":
            self.reached[key] = reached(event)
        elif event.name == "end":
            self._end(key, event.get("error", ""))
        elif event.name == "warning":
            self._say(event["text"])

    def close(self) -> None:
        """Take the bars away."""
        if self.live:
            self.bars.stop()

    def _begin(self, event: Event) -> None:
        self.names = {key: task["name"] for key, task in event["tasks"].items()}
        self.tally, self.finished = Tally({key: task["rounds"] for key, task in event["tasks"].items()}), 0
        self._say(f"{_count(len(self.names), 'run')} to do, {event['kept']} kept")
        if self.live:
            said = f"0 of {_count(len(self.names), 'run')}"
            self.whole = self.bars.add_task("all", total=self.tally.total, said=said)
            self.bars.start()

    def _progress(self, key: str, round: int) -> None:
        tally = self.tally
        if key not in self.under_way:
            tally.begin(key, round, tally.rounds[key])
            about = {"total": tally.rounds[key], "completed": round}
            self.under_way[key] = self.bars.add_task(self.names[key], **about, said="")
            if round and self.live:  # resumed: what was done before says nothing of the speed now
                self.bars.reset(self.whole, completed=tally.reached)
        tally.reach(key, round)
        said = f"round {round}{self.reached.get(key, '')}"
        if self.live:
            self.bars.update(self.under_way[key], completed=round, said=said)
            self.bars.update(self.whole, completed=tally.reached)
        elif self.rhythm.due(tally):
            self._say(f"{tally.share}: {self.names[key]}, {said}{tally.rest}")

    def _end(self, key: str, trouble: str) -> None:
        self.finished += 1
        self.tally.reach(key, self.tally.rounds[key])
        if key in self.under_way:
            self.bars.remove_task(self.under_way.pop(key))
        if self.live:
            said = f"{self.finished} of {_count(len(self.names), 'run')}"
            self.bars.update(self.whole, completed=self.tally.reached, said=said)
        elif not trouble:
            self._say(f"{self.finished} of {len(self.names)}: {self.names[key]}{self.reached.get(key, '')}")
        if trouble:
            self._say(f"{self.names[key]}: {trouble}")

    def _say(self, text: str) -> None:
        self.rhythm.said()
        say(self.console, text, "dim" if self.live else None)


def say(console: Console, text: str, style: str | None = None) -> None:
    """A line on the console, whatever signs are in it."""
    console.print(Text(text), style=style, soft_wrap=True)


def bars(console: Console) -> Progress:
    """Bars with what is under way, how long it has taken and how long it will."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[said]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left", style="dim"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=False),
        console=console,
        transient=True,
    )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"

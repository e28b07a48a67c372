"""Observers that show a run while it runs: bars on a terminal, a line per job elsewhere."""

import time
from statistics import fmean

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from coterie.app.watch import PeersTable
from coterie.records import Event, Observer
from coterie.records.journal import JobKey


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


class Bars:
    """Two bars on a terminal: all jobs, and the present one with its round and its first metric."""

    def __init__(self, console: Console, where: str) -> None:
        self.where, self.bars = where, _bars(console)
        self.done: dict[JobKey, int] = {}
        self.reached = ""
        self.whole, self.present = TaskID(0), TaskID(0)

    def event(self, event: Event) -> None:
        """Move the bars on."""
        if event.name == "begin":
            self._begin_run(event) if event.job is None else self._begin_job(event, event.job)
        elif event.name == "evaluation":
            self.reached = reached(event)
        elif event.name == "round" and event.job:
            self._progress(event.job, event["round"])
        elif event.name == "warning" or event.get("how") == "diverged":
            _say(self.bars.console, event.get("text") or event["error"], "dim")

    def close(self) -> None:
        """Take the bars away."""
        self.bars.stop()

    def _begin_run(self, event: Event) -> None:
        self.done = dict.fromkeys(map(tuple, event["left"]), 0)
        self.rounds = dict.fromkeys(self.done, event["rounds"])
        _say(self.bars.console, f"writing to {self.where}", "dim")
        jobs = len(self.done)
        self.whole = self.bars.add_task("all", total=sum(self.rounds.values()), said=f"0 of {jobs} jobs")
        self.present = self.bars.add_task("preparing", total=None, said="")
        self.bars.start()

    def _begin_job(self, event: Event, job: JobKey) -> None:
        self.reached = ""
        self.rounds[job] = self.total = event["rounds"]
        said = f"{job[0]}, seed {job[1]}"
        self.bars.update(self.whole, total=sum(self.rounds.values()))
        self.bars.reset(self.present, total=self.total, completed=event["round"], description=said)
        if event["round"]:  # resumed: what was done before says nothing of the speed now
            self.bars.reset(self.whole, completed=sum(self.done.values()) + event["round"])
        self._progress(job, event["round"])

    def _progress(self, job: JobKey, round: int) -> None:
        self.done[job] = round
        self.bars.update(self.present, completed=round, said=f"round {round} of {self.total}{self.reached}")
        finished = sum(r >= self.rounds[job] for job, r in self.done.items())
        self.bars.update(self.whole, completed=sum(self.done.values()), said=f"{finished} of {len(self.done)} jobs")


class Lines:
    """Lines for a log file or a pipe: one when the jobs begin, and one when each is done."""

    def __init__(self, console: Console, where: str) -> None:
        self.console, self.where = console, where
        self.count, self.finished, self.reached = 0, 0, ""

    def event(self, event: Event) -> None:
        """Say what is worth a line."""
        if "peer" in event.data:
            return
        if event.name == "begin" and event.job is None:
            self.count = len(event["left"])
            jobs, rounds = _count(self.count, "job"), _count(event["rounds"], "round")
            _say(self.console, f"{jobs} of {rounds}, writing to {self.where}")
        elif event.name == "begin":
            self.started, self.reached = time.monotonic(), ""
        elif event.name == "evaluation":
            self.reached = reached(event)
        elif event.name == "warning":
            _say(self.console, event["text"])
        elif event.name == "end" and event.job:
            self._end(event, event.job)

    def _end(self, event: Event, job: JobKey) -> None:
        if event["how"] == "done":
            self.finished += 1
            took = f"{time.monotonic() - self.started:.1f} s"
            _say(self.console, f"{self.finished} of {self.count}: {job[0]}, seed {job[1]}{self.reached}, {took}")
        elif event["how"] == "diverged":
            _say(self.console, f"{job[0]}, seed {job[1]}: {event['error']}")


class Tasks:
    """Display of a study: a bar for all of it and one for each task under way; without a terminal, a line a task."""

    def __init__(self, console: Console) -> None:
        self.console, self.live = console, console.is_terminal
        self.bars = _bars(console)
        self.under_way: dict[str, TaskID] = {}
        self.rounds_done: dict[str, int] = {}
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
        self.rounds = {key: task["rounds"] for key, task in event["tasks"].items()}
        self.names = {key: task["name"] for key, task in event["tasks"].items()}
        self.rounds_done, self.finished = dict.fromkeys(self.rounds, 0), 0
        self._say(f"{_count(len(self.rounds), 'run')} to do, {event['kept']} kept")
        if self.live:
            said = f"0 of {_count(len(self.rounds), 'run')}"
            self.whole = self.bars.add_task("all", total=sum(self.rounds.values()), said=said)
            self.bars.start()

    def _progress(self, key: str, round: int) -> None:
        resumed = key not in self.under_way and round > 0
        if key not in self.under_way:
            total = self.rounds[key]
            self.under_way[key] = self.bars.add_task(self.names[key], total=total, completed=round, said="")
        self.rounds_done[key] = round
        if self.live:
            if resumed:  # what was done before says nothing of the speed now
                self.bars.reset(self.whole, completed=sum(self.rounds_done.values()))
            said = f"round {round}{self.reached.get(key, '')}"
            self.bars.update(self.under_way[key], completed=round, said=said)
            self.bars.update(self.whole, completed=sum(self.rounds_done.values()))

    def _end(self, key: str, trouble: str) -> None:
        self.finished += 1
        self.rounds_done[key] = self.rounds[key]
        if key in self.under_way:
            self.bars.remove_task(self.under_way.pop(key))
        if self.live:
            said = f"{self.finished} of {_count(len(self.rounds), 'run')}"
            self.bars.update(self.whole, completed=sum(self.rounds_done.values()), said=said)
        elif not trouble:
            self._say(f"{self.finished} of {len(self.rounds)}: {self.names[key]}{self.reached.get(key, '')}")
        if trouble:
            self._say(f"{self.names[key]}: {trouble}")

    def _say(self, text: str) -> None:
        _say(self.console, text, "dim" if self.live else None)


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(Text(text), style=style, soft_wrap=True)


def _bars(console: Console) -> Progress:
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

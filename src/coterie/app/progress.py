"""Display of progress: bars on a terminal, a line per job elsewhere."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from coterie.app.watch import Watch

Job = tuple[str, int]


class Bars:
    """Two bars on a terminal: all jobs, and the present one with its round and accuracy."""

    def __init__(self, console: Console, where: str) -> None:
        self.where = where
        self.bars = _bars(console)
        self.done: dict[Job, int] = {}
        self.job: Job | None = None
        self.whole, self.present = TaskID(0), TaskID(0)

    def begin(self, jobs: list[Job], rounds: int) -> None:
        """Show that these jobs are to come."""
        self.done = dict.fromkeys(jobs, 0)
        self.rounds = rounds
        self.note(f"writing to {self.where}")
        self.whole = self.bars.add_task("all", total=len(jobs) * rounds, said=f"0 of {len(jobs)} jobs")
        self.present = self.bars.add_task("preparing", total=None, said="")
        self.bars.start()

    def progress(self, method: str, seed: int, round: int, rounds: int, accuracy: float | None) -> None:
        """Show how far a job is."""
        job = (method, seed)
        if job != self.job:
            self.job, self.accuracy = job, accuracy
            self.bars.reset(self.present, total=rounds, completed=round, description=f"{method}, seed {seed}")
            if round:  # resumed: what was done before says nothing of the speed now
                self.bars.reset(self.whole, completed=sum(self.done.values()) + round)
        self.accuracy = self.accuracy if accuracy is None else accuracy
        self.done[job] = round
        said = f"round {round} of {rounds}" + ("" if self.accuracy is None else f", accuracy {self.accuracy:.3f}")
        self.bars.update(self.present, completed=round, said=said)
        finished = sum(r >= self.rounds for r in self.done.values())
        self.bars.update(self.whole, completed=sum(self.done.values()), said=f"{finished} of {len(self.done)} jobs")

    def peers(self, names: Sequence[str], statuses: Sequence[dict[str, Any] | None]) -> None:
        """Peers have a display of their own."""

    def note(self, text: str) -> None:
        """Print a line above the bars."""
        self.bars.console.print(Text(text), style="dim")

    def end(self) -> None:
        """Take the bars away."""
        self.bars.stop()


class Lines:
    """Lines for a log file or a pipe: one when the jobs begin, and one when each is done."""

    def __init__(self, console: Console, where: str) -> None:
        self.console, self.where = console, where
        self.count, self.finished = 0, 0
        self.job: Job | None = None
        self.started = time.monotonic()

    def begin(self, jobs: list[Job], rounds: int) -> None:
        """Say how many jobs are to come."""
        self.count = len(jobs)
        self._say(f"{_count(self.count, 'job')} of {_count(rounds, 'round')}, writing to {self.where}")

    def progress(self, method: str, seed: int, round: int, rounds: int, accuracy: float | None) -> None:
        """Say that a job is done when it is."""
        if (method, seed) != self.job:
            self.job, self.started = (method, seed), time.monotonic()
        if round < rounds:
            return
        self.finished += 1
        reached = "" if accuracy is None else f", accuracy {accuracy:.3f}"
        took = time.monotonic() - self.started
        self._say(f"{self.finished} of {self.count}: {method}, seed {seed}{reached}, {took:.1f} s")

    def peers(self, names: Sequence[str], statuses: Sequence[dict[str, Any] | None]) -> None:
        """Peers have a display of their own."""

    def note(self, text: str) -> None:
        """Print a line."""
        self._say(text)

    def end(self) -> None:
        """Nothing is left to tidy up."""

    def _say(self, line: str) -> None:
        self.console.print(Text(line), soft_wrap=True)


class Crew(Lines):
    """Display of a run with peers: a line for each job, and the status of each peer of the present one."""

    def __init__(self, console: Console, where: str) -> None:
        super().__init__(console, where)
        self.watch: Watch | None = None

    def peers(self, names: Sequence[str], statuses: Sequence[dict[str, Any] | None]) -> None:
        """Show how the peers are."""
        if self.watch is None or self.watch.names != list(names):
            self.end()
            self.watch = Watch(self.console, names)
        self.watch.update(statuses)

    def progress(self, method: str, seed: int, round: int, rounds: int, accuracy: float | None) -> None:
        """Say that a job is done when it is."""
        self.end()
        super().progress(method, seed, round, rounds, accuracy)

    def end(self) -> None:
        """Take the table away."""
        if self.watch is not None:
            self.watch.end()
            self.watch = None


class Tasks:
    """Display of a study: a bar for all of it and one for each task under way; without a terminal, a line a task."""

    def __init__(self, console: Console) -> None:
        self.console, self.live = console, console.is_terminal
        self.bars = _bars(console)
        self.under_way: dict[str, TaskID] = {}

    def begin(self, rounds: Mapping[str, int], names: Mapping[str, str], kept: int) -> None:
        """Show that these tasks are to come; `kept` are there already."""
        self.rounds, self.names, self.reached = rounds, names, dict.fromkeys(rounds, 0)
        self.finished, self.accuracy = 0, dict[str, float]()
        self.note(f"{_count(len(rounds), 'run')} to do, {kept} kept")
        if self.live:
            self.whole = self.bars.add_task(
                "all", total=sum(rounds.values()), said=f"0 of {_count(len(rounds), 'run')}"
            )
            self.bars.start()

    def progress(self, key: str, round: int, accuracy: float | None) -> None:
        """Show how far a task is."""
        resumed = key not in self.under_way and round > 0
        if key not in self.under_way:
            total = self.rounds[key]
            self.under_way[key] = self.bars.add_task(self.names[key], total=total, completed=round, said="")
        self.reached[key] = round
        if accuracy is not None:
            self.accuracy[key] = accuracy
        if self.live:
            if resumed:  # what was done before says nothing of the speed now
                self.bars.reset(self.whole, completed=sum(self.reached.values()))
            said = f"round {round}" + (f", accuracy {self.accuracy[key]:.3f}" if key in self.accuracy else "")
            self.bars.update(self.under_way[key], completed=round, said=said)
            self.bars.update(self.whole, completed=sum(self.reached.values()))

    def done(self, key: str, trouble: str) -> None:
        """Say that a task is done, and how it ended if badly."""
        self.finished += 1
        self.reached[key] = self.rounds[key]
        if key in self.under_way:
            self.bars.remove_task(self.under_way.pop(key))
        if self.live:
            said = f"{self.finished} of {_count(len(self.rounds), 'run')}"
            self.bars.update(self.whole, completed=sum(self.reached.values()), said=said)
        elif not trouble:
            reached = f", accuracy {self.accuracy[key]:.3f}" if key in self.accuracy else ""
            self.note(f"{self.finished} of {len(self.rounds)}: {self.names[key]}{reached}")
        if trouble:
            self.note(f"{self.names[key]}: {trouble}")

    def note(self, text: str) -> None:
        """Print a line."""
        self.console.print(Text(text), style="dim" if self.live else None, soft_wrap=True)

    def end(self) -> None:
        """Take the bars away."""
        if self.live:
            self.bars.stop()


def display(console: Console, where: str, engine: str = "local") -> Bars | Lines:
    """The display for this console: bars on a terminal, else lines; with peers, their statuses."""
    if engine == "peer":
        return Crew(console, where)
    return Bars(console, where) if console.is_terminal else Lines(console, where)


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

"""Carry out a study: every run once, kept by its configuration, several at a time, interruptible; then the exhibits."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any, Protocol
from urllib.parse import quote

import polars as pl

from coterie import files, processes, records
from coterie.config.configuration import Configuration
from coterie.config.slots import EXTRAS, SLOTS
from coterie.errors import ConfigError, CoterieError, DivergedError, RunError
from coterie.parts import find, unknown
from coterie.processes import cores_here
from coterie.report.sheets import Sheet
from coterie.runs import runner
from coterie.runs.exhibits import SCALES, Exhibit, Harvest, Shown, matching
from coterie.version import __version__

FAILED = "failed.txt"
AGAIN = "Mend it, then say the same command again: runs that are done are kept."
"""Stands in the folder of a task that cannot be carried out, and says why."""


@dataclass(frozen=True)
class Task:
    """One method with one seed: what is run and kept once, however many exhibits show it."""

    name: str
    experiment: Configuration

    @cached_property
    def key(self) -> str:
        """A digest of what decides the numbers but the data: Coterie's version, settings, the text of users' own parts.

        What is at its default is left out: a setting that is added within a version does not discard what is kept.
        """
        settings = self.experiment.model_dump(exclude={"engine", "data_dir"}, exclude_defaults=True)
        for slot in SLOTS.keys() & settings.keys():
            settings[slot] = [_unusual(slot, table) for table in _listed(settings[slot])]
        return hashlib.sha256(json.dumps([__version__, settings], sort_keys=True).encode()).hexdigest()[:20]


def _listed(tables: Any) -> list[dict[str, Any]]:
    return list(tables) if isinstance(tables, list | tuple) else [tables]


def _unusual(slot: str, table: Mapping[str, Any], room: str = "") -> dict[str, Any]:
    """A resolved slot without the settings that are at their default; so, too, the parts that it holds."""
    name = str(table["name"])
    part = find(room or SLOTS[slot], name)
    known = part.parameters | EXTRAS.get(slot, {})
    told = {key: value for key, value in table.items() if key != "name" and value != known[key][1]}
    told |= {key: _unusual(f"{slot}.{key}", told[key], inside) for key, inside in part.holds.items() if key in told}
    file = Path(name.rpartition(":")[0])
    return {"name": file.read_text("utf-8") + name if file.suffix == ".py" else name, **told}


@dataclass(frozen=True)
class Order:
    """What a user asked of a study."""

    study: str
    scale: str = "laptop"
    figures: Sequence[str] = ()
    tables: Sequence[str] = ()
    seeds: tuple[int, ...] | None = None
    """Instead of the scale's own."""
    data_dir: str | None = None
    jobs: int = 0
    """How many tasks are run at a time; 0: as many as there are cores."""

    def __post_init__(self) -> None:
        if self.jobs < 0:
            raise ConfigError("jobs", expected="at least 0", got=self.jobs)

    def exhibits(self) -> dict[str, Exhibit]:
        """The exhibits asked for."""
        if self.scale not in SCALES:
            raise unknown("scale", self.scale, SCALES)
        made: dict[str, Exhibit] = find("studies", self.study).make()(self.scale)
        chosen, missing = matching(made, self.figures, self.tables)
        if missing:
            kind, _, name = missing[0].partition(" ")
            known = [k.removeprefix(f"{kind} ") for k in made if k.startswith(f"{kind} ")]
            raise unknown(
                f"{kind} of the study {self.study}", name, known, f"`coterie show study {self.study}` shows all."
            )
        return {label: made[label] for label in chosen}

    def tasks(self, run: str, experiment: Configuration) -> dict[tuple[str, int], Task]:
        """The tasks of a run, by method and seed."""
        seeds = self.seeds or experiment.seeds
        return {
            (method, seed): Task(f"{run}: {method}, seed {seed}", settled.model_copy(update={"seeds": (seed,)}))
            for seed in seeds
            for method, settled in experiment.resolved.items()
        }


class Display(Protocol):
    """Whoever wants to see a study go on."""

    def begin(self, rounds: Mapping[str, int], names: Mapping[str, str], kept: int) -> None: ...

    def progress(self, key: str, round: int, accuracy: float | None) -> None: ...

    def done(self, key: str, trouble: str) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


def conduct(order: Order, out: Path, display: Display) -> Iterator[tuple[str, Exhibit, list[Shown]]]:
    """Run what is not kept yet and show every exhibit, each as soon as its runs are there."""
    exhibits = order.exhibits()
    wanted = {
        label: {run: order.tasks(run, experiment) for run, experiment in exhibit.runs.items()}
        for label, exhibit in exhibits.items()
    }
    with files.disk(out, AGAIN):
        out.mkdir(parents=True, exist_ok=True)
    with records.RunFolder(out).lock():
        shelf = Shelf(out / "tasks")
        every: dict[str, Task] = {}
        for task in (t for runs in wanted.values() for tasks in runs.values() for t in tasks.values()):
            every.setdefault(task.key, task)
        ready = {key for key in every if shelf.holds(key)}  # others count once their process has nothing left to write
        left = {key: task for key, task in every.items() if key not in ready}
        waiting = dict(wanted)

        def complete(rest: bool = False) -> Iterator[tuple[str, Exhibit, list[Shown]]]:
            for label, runs in list(waiting.items()):
                # what needs no run is computed here, and would keep the runs of the others waiting
                if (runs or rest) and all(t.key in ready for tasks in runs.values() for t in tasks.values()):
                    del waiting[label]
                    exhibit, harvest = exhibits[label], shelf.harvest(runs)
                    if not runs:
                        display.note(f"computing {label}")
                    with files.disk(out, AGAIN):
                        shown = list(exhibit.show(harvest, out))
                    write_exhibit(out, label, exhibit, shown, cost(harvest))
                    yield label, exhibit, shown

        yield from complete(rest=not left)
        if not left:
            return
        display.begin(
            {k: t.experiment.rounds for k, t in left.items()},
            {k: t.name for k, t in left.items()},
            len(every) - len(left),
        )
        try:
            for key in _carry_out(left, shelf, order, display):
                ready.add(key)
                yield from complete()
            yield from complete(rest=True)
        finally:
            display.end()


class Shelf:
    """The folder in which tasks are kept, each as a run of its own under its key."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def holds(self, key: str) -> bool:
        """Whether this task is finished, well or badly."""
        folder = self.path / key
        return (folder / FAILED).is_file() or any(folder.glob("jobs/*/done.parquet"))

    def harvest(self, runs: Mapping[str, Mapping[tuple[str, int], Task]]) -> Harvest:
        """What the tasks of some runs brought, under the names that the runs give their methods."""
        found: dict[str, pl.DataFrame] = {}
        measured: dict[str, pl.DataFrame] = {}
        for run, tasks in runs.items():
            for task in tasks.values():  # an earlier process may have ended just before it did so
                records.RunFolder(self.path / task.key).collect()
            frames = [self._read(t, method, records.load) for (method, _), t in tasks.items()]
            found[run] = pl.concat([records.empty(), *frames])
            if next(iter(tasks.values())).experiment.measures:
                measured[run] = pl.concat(self._read(t, method, records.measures) for (method, _), t in tasks.items())
        return Harvest(found, measured)

    def _read(self, task: Task, method: str, load: Any) -> pl.DataFrame:
        frame: pl.DataFrame = load(self.path / task.key)
        return frame.with_columns(pl.lit(method).alias("method"))

    def begin(self, task: Task, workers: int, data_dir: str | None) -> tuple[str, Configuration | None]:
        """The task's folder, and the experiment if it has to be begun there."""
        folder = self.path / task.key
        if (folder / "config.toml").is_file():
            return str(folder), None
        shutil.rmtree(folder, ignore_errors=True)  # a process may have ended before it wrote the configuration
        engine = {"name": "local", "workers": workers}
        return str(folder), task.experiment.model_copy(update={"engine": engine, "data_dir": data_dir})

    def fail(self, key: str, why: str) -> None:
        """Keep that a task cannot be carried out."""
        files.write(self.path / key / FAILED, why.encode())


def _carry_out(left: Mapping[str, Task], shelf: Shelf, order: Order, display: Display) -> Iterator[str]:
    """Run the tasks in processes of their own; gives each as it is finished."""
    cores = cores_here()
    jobs = min(order.jobs or cores, len(left))
    queue = list(left.values())
    with _hands(jobs) as (pipes, interrupt), _forwarded(interrupt, display) as stopping:
        busy: dict[Connection, Task] = {}
        for pipe in pipes:
            _hand_out(pipe, queue, busy, shelf, order, max(1, cores // jobs))
        while busy:
            for pipe in [p for p in wait(list(busy)) if isinstance(p, Connection)]:
                try:
                    kind, *said = pipe.recv()
                except (EOFError, OSError):
                    if stopping:  # it was told to while it had nothing to tell
                        del busy[pipe]
                        continue
                    raise RunError(
                        f"the process of {busy[pipe].name} has ended", cure="Start the study again: it goes on."
                    ) from None
                if kind == "progress":
                    display.progress(busy[pipe].key, *said)
                    continue
                task = busy.pop(pipe)
                if kind == "interrupted":
                    continue
                if kind == "failed":
                    raise RunError(f"{task.name}: {said[0]}")
                if kind == "diverged":
                    shelf.fail(task.key, said[0])
                display.done(task.key, said[0])
                if not stopping:
                    _hand_out(pipe, queue, busy, shelf, order, max(1, cores // jobs))
                yield task.key
        if stopping:
            raise KeyboardInterrupt


def _hand_out(
    pipe: Connection, queue: list[Task], busy: dict[Connection, Task], shelf: Shelf, order: Order, workers: int
) -> None:
    if queue:
        busy[pipe] = queue.pop(0)
        pipe.send(shelf.begin(busy[pipe], workers, order.data_dir))


@contextlib.contextmanager
def _hands(count: int) -> Iterator[tuple[list[Connection], Any]]:
    """Processes that run tasks, and how they are told to stop."""
    pipes, started = [], []
    for _ in range(count):
        here, there = processes.pipe()
        started.append(processes.start(_labour, there, daemon=False))
        there.close()
        pipes.append(here)

    def interrupt() -> None:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)

    try:
        yield pipes, interrupt
    finally:
        for pipe in pipes:
            pipe.close()
        for process in started:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()


@contextlib.contextmanager
def _forwarded(interrupt: Any, display: Display) -> Iterator[list[bool]]:
    """Pass Ctrl-C on: the first stops every task after its round, the second at once. The list fills when it comes."""
    came: list[bool] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(True)
        interrupt()
        if len(came) == 1:
            display.note("stopping after this round (Ctrl-C again to stop at once)")

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


class _Reporter(runner.Silent):
    """Tells the process that handed out a task how far it is."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.said = pipe, 0.0

    def progress(self, method: str, seed: int, round: int, rounds: int, accuracy: float | None) -> None:
        if accuracy is not None or round == rounds or time.monotonic() - self.said > 0.2:
            self.said = time.monotonic()
            self.pipe.send(("progress", round, accuracy))


def _labour(pipe: Connection) -> None:
    """Run tasks one after the other until nobody hands out any more. Ctrl-C comes from there, not from the terminal."""
    os.setsid()
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            folder, experiment = pipe.recv()
            pipe.send(_carried_out(folder, experiment, _Reporter(pipe)))


def _carried_out(folder: str, experiment: Configuration | None, reporter: _Reporter) -> tuple[str, str]:
    try:
        if experiment is None:
            runner.resume(folder, reporter)
        else:
            runner.run(experiment, folder, reporter)
    except (runner.Interrupted, KeyboardInterrupt):
        return "interrupted", ""
    except DivergedError as error:
        return "diverged", str(error)
    except CoterieError as error:
        return "failed", str(error)
    except OSError:
        raise
    except Exception:
        return "failed", traceback.format_exc()
    return "done", ""


def heading(label: str, exhibit: Exhibit) -> str:
    """What an exhibit is called: `Table II: accuracy at the last round`."""
    return f"{label[:1].upper()}{label[1:]}: {exhibit.title}"


def write_exhibit(out: Path, label: str, exhibit: Exhibit, shown: Sequence[Shown], cost: str) -> Path:
    """An exhibit as Markdown, for the page of its study."""
    about = " ".join(filter(None, [exhibit.scaled, cost]))
    pieces = [f"## {heading(label, exhibit)}", *([f"*{about}*"] if about else [])]
    path = out / f"{label.replace(' ', '-')}.md"
    with files.disk(out, AGAIN):
        files.write(path, "\n\n".join([*pieces, *(_markdown(item, out) for item in shown)]).encode() + b"\n")
    return path


def bind(order: Order, out: Path) -> Path:
    """One page of all exhibits that have been shown so far in this folder, in the order of the study."""
    part, here = find("studies", order.study), records.environment_here()
    seeds = "" if order.seeds is None else f" --seeds {','.join(map(str, order.seeds))}"
    command = f"coterie study {order.study} --scale {order.scale}{seeds}"
    made = f"Made by `{command}` with Coterie {_version()} and PyTorch {here['torch']} on {here['cores']} cores."
    head = "\n\n".join(filter(None, [f"# {part.summary}", f"{part.reference}." if part.reference else "", made]))
    found = [out / f"{label.replace(' ', '-')}.md" for label in replace(order, figures=(), tables=()).exhibits()]
    path = out / "README.md"
    with files.disk(out, AGAIN):
        pages = [page.read_text("utf-8").rstrip() for page in found if page.is_file()]
        files.write(path, "\n\n".join([head, *pages]).encode() + b"\n")
    return path


def cost(harvest: Harvest) -> str:
    """What the runs of an exhibit took, in words."""
    if not harvest.records:
        return ""
    whole = pl.concat([f.with_columns(run=pl.lit(run)) for run, f in harvest.records.items()])
    last = whole.filter(pl.col("round") == pl.col("round").max().over("run", "method", "seed"))
    seconds = float(last.select(pl.sum_horizontal("train_seconds", "merge_seconds", "evaluate_seconds").sum()).item())
    tasks, seeds = last.select("run", "method", "seed").n_unique(), last["seed"].n_unique()
    took = f"{seconds / 60:.0f} core-minutes" if seconds >= 90 else f"{seconds:.0f} core-seconds"
    return f"{tasks} runs with {seeds} seed{'s' * (seeds > 1)}, {took}."


def _markdown(item: Shown, out: Path) -> str:
    if isinstance(item, Sheet):
        return item.markdown().rstrip()
    return f"![{item.stem}]({quote(str(item.relative_to(out)))})" if isinstance(item, Path) else item


def _version() -> str:
    """The version, with the commit if this is run from Coterie's own sources."""
    here = Path(__file__).resolve()
    root = here.parents[2]
    asked = ["git", "-C", str(root), "ls-files", "--error-unmatch", str(here)]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        subprocess.run(asked, capture_output=True, check=True)  # the sources themselves are under version control
        found = subprocess.run([*asked[:3], "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        return f"{__version__} ({found.stdout.strip()})"
    return __version__

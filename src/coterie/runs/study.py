"""Carry out a study: every run once, kept by its configuration, several at a time, interruptible; then the exhibits."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

from coterie import files, processes, records
from coterie.config.objects import names
from coterie.errors import RunError
from coterie.processes import cores_here
from coterie.records import Channel, Event, Observer
from coterie.runs.carrying import Reporter, ended, forwarded, here, on_cluster, run_task
from coterie.runs.carrying_on_ray import on_ray
from coterie.runs.exhibits import Exhibit, Shown
from coterie.runs.study_order import AGAIN, Commission, spreads
from coterie.runs.study_pages import cost, write_exhibit
from coterie.runs.task_store import Task, TaskStore


def conduct(
    order: Commission, out: Path, observers: Sequence[Observer] = ()
) -> Iterator[tuple[str, Exhibit, list[Shown]]]:
    """Run what is not kept yet and show every exhibit, each as soon as its runs are there."""
    exhibits = order.exhibits()
    wanted = {label: order.wanted(exhibit, exhibits) for label, exhibit in exhibits.items()}
    wanted = {label: runs for label, runs in wanted.items() if runs or not exhibits[label].runs}
    with files.disk(out, AGAIN):
        out.mkdir(parents=True, exist_ok=True)
    with records.RunFolder(out).lock(), contextlib.closing(Channel(None, observers)) as channel:
        yield from _StudyRun(order, out, exhibits, wanted, channel).go()


class _StudyRun:
    """A study while it is carried out."""

    def __init__(
        self,
        order: Commission,
        out: Path,
        exhibits: Mapping[str, Exhibit],
        wanted: Mapping[str, Mapping[str, Mapping[tuple[str, int], Task]]],
        channel: Channel,
    ) -> None:
        self.order, self.out, self.exhibits, self.channel = order, out, exhibits, channel
        self.store = TaskStore(out / "tasks")
        self.every: dict[str, Task] = {}
        for (method, _), task in (
            pair for runs in wanted.values() for tasks in runs.values() for pair in tasks.items()
        ):
            if order.asks_for(method, exhibits):
                self.every.setdefault(task.key, task)
        # others count once their process has nothing left to write
        self.ready = {key for key in self.every if self.store.holds(key)}
        self.waiting = dict(wanted)

    def go(self) -> Iterator[tuple[str, Exhibit, list[Shown]]]:
        """Every exhibit, once its runs are there."""
        left = {key: task for key, task in self.every.items() if key not in self.ready}
        yield from self._complete(rest=not left)
        if not left:
            return
        yield from self._so_far()
        tasks = {key: {"name": task.name, "rounds": task.experiment.rounds} for key, task in left.items()}
        self.channel.tell("begin", tasks=tasks, kept=len(self.every) - len(left))
        carry_out = _carry_out
        if any(True for task in left.values() for _ in names(task.experiment.model_dump())):
            carry_out = here  # only this process has the objects
        elif self.order.cluster:
            carry_out = on_cluster
        elif spreads(self.order.engine()):
            carry_out = on_ray
        try:
            for key in carry_out(left, self.store, self.order, self.channel):
                self.ready.add(key)
                yield from self._complete()
        except KeyboardInterrupt:
            yield from self._so_far()
            raise
        yield from self._complete(rest=True)

    def _complete(self, rest: bool = False) -> Iterator[tuple[str, Exhibit, list[Shown]]]:
        for label, runs in list(self.waiting.items()):
            # what needs no run is computed here, and would keep the runs of the others waiting
            wanted = {t.key for tasks in runs.values() for t in tasks.values()}
            if self.exhibits[label].so_far:
                wanted &= self.every.keys()
            if (runs or rest) and wanted <= self.ready:
                del self.waiting[label]
                if not runs:
                    self.channel.tell("warning", text=f"computing {label}")
                yield self._show(label, runs)

    def _so_far(self) -> Iterator[tuple[str, Exhibit, list[Shown]]]:
        """What there is of exhibits that can be shown before all their runs are done."""
        for label, runs in self.waiting.items():
            if self.exhibits[label].so_far and any(self.store.begun(runs)):
                yield self._show(label, runs)

    def _show(self, label: str, runs: Mapping[str, Mapping[tuple[str, int], Task]]) -> tuple[str, Exhibit, list[Shown]]:
        exhibit = self.exhibits[label]
        results = self.store.results(self.store.begun(runs) if exhibit.so_far else runs)
        with files.disk(self.out, AGAIN):
            shown = list(exhibit.show(results, self.out))
        write_exhibit(self.out, label, exhibit, shown, cost(results))
        return label, exhibit, shown


def _carry_out(left: Mapping[str, Task], store: TaskStore, order: Commission, channel: Channel) -> Iterator[str]:
    """Run the tasks in processes of their own; gives each as it is finished."""
    cores = cores_here()
    jobs = min(order.jobs or cores, len(left))
    queue = list(left.values())
    with _workers(jobs) as (pipes, interrupt), forwarded(interrupt, channel) as stopping:
        busy: dict[Connection, Task] = {}
        for pipe in pipes:
            _hand_out(pipe, queue, busy, store, order, max(1, cores // jobs))
        while busy:
            for pipe in [p for p in wait(list(busy)) if isinstance(p, Connection)]:
                try:
                    said: Event | tuple[str, str] = pipe.recv()
                except (EOFError, OSError):
                    if stopping:  # it was told to while it had nothing to tell
                        del busy[pipe]
                        continue
                    raise RunError(
                        f"the process of {busy[pipe].name} has ended", cure="Start the study again: it goes on."
                    ) from None
                if isinstance(said, Event):
                    channel.relay(replace(said, data={**said.data, "task": busy[pipe].key}))
                    continue
                task, (how, why) = busy.pop(pipe), said
                if how == "interrupted":
                    continue
                ended(task, how, why, store, channel)
                if not stopping:
                    _hand_out(pipe, queue, busy, store, order, max(1, cores // jobs))
                yield task.key
        if stopping:
            raise KeyboardInterrupt


def _hand_out(
    pipe: Connection, queue: list[Task], busy: dict[Connection, Task], store: TaskStore, order: Commission, workers: int
) -> None:
    if queue:
        busy[pipe] = queue.pop(0)
        pipe.send(store.begin(busy[pipe], workers, order.data_dir))


@contextlib.contextmanager
def _workers(count: int) -> Iterator[tuple[list[Connection], Callable[[], None]]]:
    """Processes that run tasks, and how they are told to stop."""
    pipes, started = [], []
    for _ in range(count):
        here, there = processes.pipe()
        started.append(processes.start(_work, there, daemon=False))
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


def _work(pipe: Connection) -> None:
    """Run tasks one after the other until nobody hands out any more. Ctrl-C comes from there, not from the terminal."""
    os.setsid()
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            folder, experiment = pipe.recv()
            pipe.send(run_task(folder, experiment, [Reporter(pipe.send)]))

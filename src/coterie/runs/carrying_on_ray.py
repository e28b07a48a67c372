"""Tasks spread over the machines of a Ray cluster, as many at once as there is room for."""

import contextlib
import io
import shutil
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.config.configuration import Configuration
from coterie.engines.cluster import Cluster, Lost, Returned, TaskWorker, TaskWorkers
from coterie.errors import ConfigError, RunError
from coterie.records import Channel, Event
from coterie.runs.carrying import Reporter, ended, forwarded, run_task
from coterie.runs.study_order import AGAIN, Commission
from coterie.runs.task_store import Task, TaskStore

TRIES = 3
"""How many times a task may be lost with the machine that it is on."""


def on_ray(left: Mapping[str, Task], store: TaskStore, order: Commission, channel: Channel) -> Iterator[str]:
    """Run each task in a process of one CPU somewhere on a Ray cluster; gives each as it is finished.

    Machines that see the folder of the study write there; from others a task's folder comes when it ends. A task that
    is lost with its machine is begun again elsewhere: from its last checkpoint, if the folder is one that all see.
    """
    engine = order.engine()
    assert isinstance(engine, Cluster)
    store.path.mkdir(parents=True, exist_ok=True)
    workers = TaskWorkers(engine.address, engine.gpus, store.path.resolve() / "token")
    with contextlib.closing(workers), forwarded(workers.interrupt, channel) as stopping:
        yield from _Spread(left, store, order, engine, workers, channel).go(stopping)
        if stopping:
            raise KeyboardInterrupt


class _Spread:
    """Tasks while they are at work all over a cluster."""

    def __init__(
        self,
        left: Mapping[str, Task],
        store: TaskStore,
        order: Commission,
        engine: Cluster,
        workers: TaskWorkers,
        channel: Channel,
    ) -> None:
        self.queue, self.store, self.order, self.engine = list(left.values()), store, order, engine
        self.workers, self.channel = workers, channel
        self.busy: dict[TaskWorker, Task] = {}
        self.lost: Counter[str] = Counter()
        self.machines: set[str] = set()

    def go(self, stopping: list[bool]) -> Iterator[str]:
        """Give each task as it is finished."""
        if not self.workers.room:
            what = "CPU" if not self.engine.gpus else f"CPU and {self.engine.gpus:g} GPU"
            cure = "Add machines with `ray start --address`."
            raise ConfigError("Ray has not enough to give", expected=f"1 {what}", got="none", cure=cure)
        limit = self.order.jobs or self.engine.workers or self.workers.room
        count = f"{min(limit, len(self.queue))} at a time"
        self.channel.live("warning", text=f"runs go to the processes of a Ray cluster, {count}")
        while (self.queue and not stopping) or self.busy:
            limit = self.order.jobs or self.engine.workers or self.workers.room  # machines come and go
            if not stopping:
                self.workers.hire(min(limit, len(self.queue) + len(self.busy)))
            for worker, what in self.workers.news():
                if isinstance(what, Event):
                    self.channel.relay(replace(what, data={**what.data, "task": self.busy[worker].key}))
                elif isinstance(what, Returned):
                    yield from self._done(worker, *what.result)
                elif isinstance(what, Lost):
                    self._lost(worker)
                    continue
                elif worker.machine not in self.machines:
                    self.machines.add(worker.machine)
                    self.channel.live("warning", text=f"{worker.machine} takes part")
                if worker not in self.busy and not stopping:
                    self._hand_out(worker)

    def _hand_out(self, worker: TaskWorker) -> None:
        if not self.queue:
            self.workers.dismiss(worker)
            return
        task = self.busy[worker] = self.queue.pop(0)
        device, data = "cuda" if self.engine.gpus else "cpu", self.order.data_dir
        folder, experiment = self.store.begin(task, 1, str(Path(data).resolve()) if data else None, device)
        begun = None if worker.sees else _packed(Path(folder))
        self.workers.send(worker, _carry_out, str(Path(folder).resolve()), experiment, worker.sees, begun)

    def _done(self, worker: TaskWorker, how: str, why: str, content: bytes | None) -> Iterator[str]:
        task = self.busy.pop(worker)
        if content is not None:
            _unpack(content, self.store.path / task.key)
        if how == "interrupted":
            return
        ended(task, how, why and f"on {worker.machine}: {why}", self.store, self.channel)
        yield task.key

    def _lost(self, worker: TaskWorker) -> None:
        """Have a task done elsewhere whose process was lost."""
        task = self.busy.pop(worker, None)
        if task is None:
            return
        self.lost[task.key] += 1
        if self.lost[task.key] > TRIES:
            what = f"{task.name}: its process on {worker.machine} was lost, for the {self.lost[task.key]}th time"
            raise RunError(what, cure=f"Look whether its machine has memory enough. {AGAIN}")
        self.queue.insert(0, task)
        text = f"{task.name}: its process on {worker.machine} was lost; it goes on elsewhere"
        self.channel.live("warning", text=text)


def _carry_out(
    tell: Any, folder: str, experiment: Configuration | None, sees: bool, begun: bytes | None
) -> tuple[str, str, bytes | None]:
    """Carry out a task on whatever machine this is; its folder comes along if it is not the asking one's."""
    if sees:
        return *run_task(folder, experiment, [Reporter(tell)]), None
    here = Path(tempfile.mkdtemp(prefix="coterie-"))
    try:
        if begun is not None and experiment is None:
            _unpack(begun, here / "task")
        how, why = run_task(str(here / "task"), experiment, [Reporter(tell)])
        return how, why, _packed(here / "task")
    finally:
        shutil.rmtree(here, ignore_errors=True)


def _packed(folder: Path) -> bytes | None:
    """All files of a folder as one; None if there is no such folder."""
    if not folder.is_dir():
        return None
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.add(folder, arcname=".")
    return content.getvalue()


def _unpack(content: bytes, folder: Path) -> None:
    """Put files that came as one where they belong, in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(folder, filter="data")

"""Tasks carried out: one of them, all in this process, or each as a job of a cluster."""

import contextlib
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from coterie import processes
from coterie.config.configuration import Configuration
from coterie.errors import ConfigError, CoterieError, DivergedError, RunError
from coterie.processes import cores_here
from coterie.records import Channel, Event, Observer
from coterie.records.journal import Follower
from coterie.runs import runner
from coterie.runs.study_order import Commission
from coterie.runs.task_store import Task, TaskStore

PAUSE = 1.0
"""Seconds between two looks at the jobs of a cluster."""
DAY = 24 * 60
"""Minutes that a job may take unless something else is said."""


def run_task(folder: str, experiment: Configuration | None, observers: Sequence[Observer] = ()) -> tuple[str, str]:
    """Begin a task in its folder, or go on with it; how it has ended, and what the trouble was."""
    try:
        if experiment is None:
            runner.resume(folder, observers)
        else:
            runner.run(experiment, folder, observers)
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


def ended(task: Task, how: str, why: str, store: TaskStore, channel: Channel) -> None:
    """Tell how a task has ended; what diverged is kept, and what failed ends the study."""
    if how == "failed":
        raise RunError(f"{task.name}: {why}")
    if how == "diverged":
        store.fail(task.key, why)
    channel.tell("end", task=task.key, how=how, **({"error": why} if why else {}))


def relay(channel: Channel, task: Task, event: Event) -> None:
    """Tell of what happens in a task, but for how it begins and ends as a run."""
    if event.job is not None and event.name != "end":
        channel.relay(replace(event, data={**event.data, "task": task.key}))


class _Relay:
    """An observer of a task in this process."""

    def __init__(self, channel: Channel, task: Task) -> None:
        self.channel, self.task = channel, task

    def event(self, event: Event) -> None:
        """Pass it on."""
        relay(self.channel, self.task, event)


def here(left: Mapping[str, Task], store: TaskStore, order: Commission, channel: Channel) -> Iterator[str]:
    """Run the tasks one after the other in this process; gives each as it is finished."""
    for task in left.values():
        begun = store.begin(task, cores_here(), order.data_dir)
        how, why = run_task(*begun, [_Relay(channel, task)])
        if how == "interrupted":
            raise KeyboardInterrupt
        ended(task, how, why, store, channel)
        yield task.key


def on_cluster(left: Mapping[str, Task], store: TaskStore, order: Commission, channel: Channel) -> Iterator[str]:
    """Run each task as a job of Slurm, or what else submitit knows; gives each as it is finished.

    The jobs write where this process reads, so folders must be on a disk that all machines share.
    """
    executor, cores = _executor(order, store.path.parent / "submitit")
    limit = order.jobs or (cores_here() if order.cluster == "local" else len(left))
    queue, busy = list(left.values()), dict[str, tuple[Task, Any, Follower]]()
    channel.live("warning", text=f"{len(left)} runs as jobs of {order.cluster}; their logs are in {executor.folder}")
    try:
        while queue or busy:
            while queue and len(busy) < limit:
                task = queue.pop(0)
                folder, experiment = store.begin(task, cores, order.data_dir)
                job = executor.submit(run_task, str(Path(folder).resolve()), experiment)
                busy[task.key] = task, job, Follower(Path(folder))
            time.sleep(PAUSE)
            for key, (task, job, follower) in list(busy.items()):
                for event in follower.fresh():
                    relay(channel, task, event)
                if job.done():
                    del busy[key]
                    ended(task, *_result(job), store, channel)
                    yield key
    finally:
        for _, job, _ in busy.values():  # their checkpoints stand: the same command goes on
            job.cancel()


def _executor(order: Commission, logs: Path) -> tuple[Any, int]:
    """What submits jobs, and the cores that each of them has."""
    try:
        import submitit
    except ImportError:
        raise ConfigError("no submitit here", cure='pip install "coterie[slurm]".') from None
    settings = {"timeout_min": DAY, "cpus_per_task": 1, **order.cluster_settings}
    try:
        executor = submitit.AutoExecutor(folder=logs, cluster=order.cluster)
        executor.update_parameters(name="coterie", **settings)
    except Exception as error:  # whatever submitit finds wrong with them
        raise ConfigError(f"--cluster {order.cluster}: {error}", cure="`--cluster local` needs no Slurm.") from None
    return executor, int(settings["cpus_per_task"])


def _result(job: Any) -> tuple[str, str]:
    """How the task of a job has ended; a job that was lost has failed."""
    try:
        how, why = job.result()
    except Exception as error:
        return "failed", f"job {job.job_id}: {' '.join(str(error).split())[:300]}"
    return ("failed", "its job was interrupted") if how == "interrupted" else (how, why)


@contextlib.contextmanager
def forwarded(interrupt: Callable[[], None], channel: Channel) -> Iterator[list[bool]]:
    """Pass Ctrl-C on: the first stops every task after its round, the second at once. The list fills when it comes."""
    came: list[bool] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(True)
        interrupt()
        if len(came) == 1:
            channel.live("warning", text="stopping after this round (Ctrl-C again to stop at once)")

    with processes.asked_to_stop(stop):
        yield came


class Reporter:
    """Passes a task's events on to the process that handed it out; of rounds, some."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self.tell, self.said = tell, 0.0

    def event(self, event: Event) -> None:
        """Send it, unless it is a round just after another, or of the run: how a task ends is what its process says."""
        if event.job is None or event.name == "end":
            return
        if event.name == "round":
            if time.monotonic() - self.said < 0.2:
                return
            self.said = time.monotonic()
        try:
            self.tell(event)
        except OSError:  # nobody is there any more who wants the task done
            raise KeyboardInterrupt from None

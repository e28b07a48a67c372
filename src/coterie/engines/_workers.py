"""Workers: whom the scheduler has compute, behind one small interface. Here they are processes with one thread each."""

import contextlib
import signal
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from coterie import processes
from coterie.engines._worker import Worker
from coterie.errors import CoterieError, RunError, place
from coterie.failpoints import reach


@dataclass(frozen=True)
class Doing:
    """What workers are asked for, in words that a failure can use."""

    operation: str
    round: int
    nodes: Sequence[Sequence[int]]
    """For which nodes each worker does it."""

    def of(self, worker: int) -> str:
        """What one worker is doing."""
        return place(self.operation, self.nodes[worker], self.round)


class Workers(ABC):
    """Some workers, each of which does operations by name (`Worker`) on rows that all of them can see."""

    count: int
    """How many there are."""

    @abstractmethod
    def each(self, name: str, arguments: Sequence[tuple[Any, ...]], doing: Doing | None = None) -> list[Any]:
        """Do an operation at every worker, each with its own arguments; results in the order of the workers.

        What goes wrong at one is raised here. A worker that is lost is a RunError that says what it was `doing`.
        """

    @abstractmethod
    def close(self) -> None:
        """Let all workers end."""

    def all(self, name: str, *args: Any, doing: Doing | None = None) -> list[Any]:
        """Do the same operation at every worker."""
        return self.each(name, [args] * self.count, doing)


class Processes(Workers):
    """The first worker is the calling process, the others have processes of their own: one worker means none."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._here = Worker(0, count)
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        torch.set_num_threads(1)
        for number in range(1, count):
            here, there = processes.pipe()
            self._processes.append(processes.start(_work, there, number, count, preload=["coterie.engines._worker"]))
            there.close()
            self._pipes.append(here)

    def each(self, name: str, arguments: Sequence[tuple[Any, ...]], doing: Doing | None = None) -> list[Any]:
        reach("before operation", name)
        for number, (pipe, args) in enumerate(zip(self._pipes, arguments[1:], strict=True), 1):
            with _worker_lost(number, doing):
                pipe.send((name, args))
        self._here.look_up = lambda: self._look_after(doing)
        mine, failure = None, None
        try:
            mine = self._here.call(name, *arguments[0])
        except _LostError as lost:
            raise lost.error from None
        except Exception as error:
            failure = error
        results = self._answers(doing)
        if failure is not None:
            raise failure
        for number, (ok, value) in enumerate(results, 1):
            if not ok:
                where = f", {doing.of(number)}" if doing else ""
                raise (
                    value if isinstance(value, CoterieError) else RuntimeError(f"in a worker process{where}:\n{value}")
                )
        reach("after operation", name)
        return [mine] + [value for _, value in results]

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=2)
            if process.is_alive():
                process.kill()
        self._pipes.clear()
        self._processes.clear()

    def _answers(self, doing: Doing | None) -> list[tuple[bool, Any]]:
        """The answers of all processes, in their order; whichever is lost is noticed at once."""
        found: dict[int, tuple[bool, Any]] = {}
        while len(found) < len(self._pipes):
            left = {id(pipe): n for n, pipe in enumerate(self._pipes, 1) if n not in found}
            for pipe in wait([self._pipes[n - 1] for n in left.values()]):
                number = left[id(pipe)]
                with _worker_lost(number, doing):
                    found[number] = self._pipes[number - 1].recv()
        return [found[n] for n in sorted(found)]

    def _look_after(self, doing: Doing | None) -> None:
        """Notice a process that has ended while this one is still at its own part."""
        for number, process in enumerate(self._processes, 1):
            if not process.is_alive():
                raise _LostError(_lost(number, doing))


class _LostError(BaseException):
    """A process has ended; past all handlers of ordinary errors on the way."""

    def __init__(self, error: RunError) -> None:
        self.error = error


def _lost(number: int, doing: Doing | None) -> RunError:
    where = f" while {doing.of(number)}" if doing else ""
    return RunError(
        f"a worker process ended unexpectedly{where} (killed, or out of memory)",
        cure="What was done is kept: go on with `coterie resume`, or use fewer workers (--engine.workers 1).",
    )


@contextlib.contextmanager
def _worker_lost(number: int, doing: Doing | None) -> Any:
    try:
        yield
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        raise _lost(number, doing) from error


def _work(pipe: Connection, number: int, count: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides what Ctrl-C means
    torch.set_num_threads(1)
    worker = Worker(number, count)
    while True:
        try:
            name, args = pipe.recv()
        except (EOFError, OSError):
            return
        with contextlib.suppress(BrokenPipeError):
            pipe.send(_answer(worker.call, name, args))


def _answer(call: Callable[..., Any], name: str, args: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        return True, call(name, *args)
    except CoterieError as error:
        return False, error
    except Exception:
        return False, traceback.format_exc()

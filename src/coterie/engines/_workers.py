"""Worker processes with one thread each. The calling process does its own share: one worker means no process at all."""

import contextlib
import signal
import traceback
from multiprocessing.connection import Connection
from typing import Any

import torch

from coterie import processes
from coterie.engines._worker import Worker
from coterie.errors import CoterieError, RunError


class Workers:
    """`workers` sites: the first lives here, the others in processes of their own."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.here = Worker(0, workers)
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        torch.set_num_threads(1)
        if workers > 1:
            for share in range(1, workers):
                here, there = processes.pipe()
                process = processes.start(_work, there, share, workers, preload=["coterie.engines._worker"])
                there.close()
                self._pipes.append(here)
                self._processes.append(process)

    def all(self, name: str, *args: Any) -> list[Any]:
        """The same operation at every site."""
        return self.each(name, [args] * self.workers)

    def each(self, name: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        """An operation at every site, each with its own arguments; results in the order of the sites."""
        for pipe, args in zip(self._pipes, arguments[1:], strict=True):
            self._send(pipe, (name, args))
        mine, failure = None, None
        try:
            mine = self.here.call(name, *arguments[0])
        except Exception as error:
            failure = error
        results = [self._receive(pipe) for pipe in self._pipes]
        if failure is not None:
            raise failure
        for ok, value in results:
            if not ok:
                raise value if isinstance(value, CoterieError) else RuntimeError(f"in a worker process:\n{value}")
        return [mine] + [value for _, value in results]

    def close(self) -> None:
        """Let the processes end; kill what does not."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=2)
            if process.is_alive():
                process.kill()
        self._pipes.clear()
        self._processes.clear()

    def _send(self, pipe: Connection, what: Any) -> None:
        with _worker_lost():
            pipe.send(what)

    def _receive(self, pipe: Connection) -> tuple[bool, Any]:
        with _worker_lost():
            answer: tuple[bool, Any] = pipe.recv()
            return answer


@contextlib.contextmanager
def _worker_lost() -> Any:
    try:
        yield
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        raise RunError(
            "a worker process ended unexpectedly (killed, or out of memory)",
            cure="What was done is kept: go on with `coterie resume`, or use fewer workers (--engine.workers 1).",
        ) from error


def _work(pipe: Connection, share: int, shares: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides what Ctrl-C means
    torch.set_num_threads(1)
    site = Worker(share, shares)
    while True:
        try:
            name, args = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (True, site.call(name, *args))
        except CoterieError as error:
            answer = (False, error)
        except Exception:
            answer = (False, traceback.format_exc())
        with contextlib.suppress(BrokenPipeError):
            pipe.send(answer)

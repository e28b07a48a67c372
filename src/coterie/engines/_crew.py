"""The workers of a cluster: each at the other end of a connection, wherever it was started."""

import pickle
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from coterie.engines._launching import Launcher
from coterie.engines._moves import Delivery, Request
from coterie.engines._session import WorkerLostError
from coterie.engines._workers import Doing, Workers
from coterie.errors import CoterieError, RunError

Asking = Callable[[Sequence[tuple[Any, ...]], Doing | None], list[Any]]


class Crew(Workers):
    """Workers that were started by some launcher; whoever is lost is noticed at once."""

    def __init__(self, launcher: Launcher, pipes: Sequence[Connection], about: Sequence[dict[str, Any]]) -> None:
        self.launcher, self.pipes, self.about = launcher, list(pipes), list(about)
        self.count = len(self.pipes)
        self.routes: dict[str, Asking] = {}
        """How operations are asked for that need messages of others."""
        self.spoilt = False
        """Whether an operation was broken off, so that some may still wait for others."""
        self.seconds = [0.0] * self.count
        """How long each worker has been at work, and not waiting for others, since it was asked last."""

    def each(self, name: str, arguments: Sequence[tuple[Any, ...]], doing: Doing | None = None) -> list[Any]:
        if name in self.routes:
            return self.routes[name](arguments, doing)
        return self._carry_out([Request(name, args) for args in arguments], doing)

    def carry_out(self, delivery: Delivery, doing: Doing | None = None) -> list[Any]:
        """Have messages delivered and operations done; None for workers that have nothing to do."""
        return self._carry_out(delivery.requests, doing)

    def _carry_out(self, requests: Sequence[Request | None], doing: Doing | None) -> list[Any]:
        asked = [worker for worker, request in enumerate(requests) if request is not None]
        self.spoilt = True
        for worker in asked:
            try:
                self.pipes[worker].send_bytes(pickle.dumps(requests[worker], protocol=5))
            except OSError:
                raise self._lost(worker, doing) from None
        results: list[Any] = [None] * self.count
        failures: list[tuple[int, Any]] = []
        waiting = {id(self.pipes[worker]): worker for worker in asked}
        while waiting:
            for pipe in wait([self.pipes[worker] for worker in waiting.values()], timeout=1.0):
                worker = waiting.pop(id(pipe))
                try:
                    how, value, seconds = pickle.loads(self.pipes[worker].recv_bytes())
                except (EOFError, OSError):
                    raise self._lost(worker, doing) from None
                self.seconds[worker] += seconds
                if how == "wire":  # another one is gone, or it has failed
                    self._who_is_gone(doing, waiting)
                elif how != "done":
                    raise self._failure(worker, how, value, doing)
                results[worker] = value
            if (gone := self.launcher.gone()) is not None:
                raise self._lost(gone, doing)
        assert not failures
        self.spoilt = False
        return results

    def settle(self, name: str) -> None:
        """Have all workers find each other, under a name that nobody used before."""
        for pipe in self.pipes:
            pipe.send_bytes(pickle.dumps(name))
        for worker, pipe in enumerate(self.pipes):
            try:
                how, value, _ = pickle.loads(pipe.recv_bytes())
            except (EOFError, OSError):
                raise self._lost(worker, None) from None
            if isinstance(value, CoterieError):  # as of a data folder that one machine lacks
                raise type(value)(f"worker {worker} on {self.about[worker]['machine']}: {value}")
            if how != "done":
                raise self._failure(worker, how, value, None)

    def _who_is_gone(self, doing: Doing | None, waiting: dict[int, int]) -> None:
        """Tell which worker has left another alone: one that is gone, or one that has failed and says why."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            for pipe in wait(self.pipes, timeout=0.2):
                worker = next(w for w, p in enumerate(self.pipes) if p is pipe)
                try:
                    how, value, _ = pickle.loads(self.pipes[worker].recv_bytes())
                except (EOFError, OSError):
                    raise self._lost(worker, doing) from None
                if how not in ("done", "wire"):
                    raise self._failure(worker, how, value, doing)
        raise self._lost(None, doing)

    def _failure(self, worker: int, how: str, value: Any, doing: Doing | None) -> Exception:
        if isinstance(value, CoterieError):
            return value
        where = f", {doing.of(worker)}" if doing else ""
        if how == "memory":
            text = f"worker {worker} on {self.about[worker]['machine']} is out of memory{where} ({value})"
            return RunError(text, cure=MORE_MEMORY)
        return RuntimeError(f"in worker {worker} on {self.about[worker]['machine']}{where}:\n{value}")

    def _lost(self, worker: int | None, doing: Doing | None) -> WorkerLostError:
        if worker is None:
            return WorkerLostError("the connection between two workers is broken")
        where = f" while {doing.of(worker)}" if doing else ""
        return WorkerLostError(f"worker {worker} on {self.about[worker]['machine']} was lost{where}")

    def close(self) -> None:
        """Let all workers end; what does not is ended."""
        for pipe in self.pipes:
            pipe.close()
        self.launcher.stop()


MORE_MEMORY = "Use more machines or fewer workers on each, a smaller model or --batch-size; `coterie resume` goes on."

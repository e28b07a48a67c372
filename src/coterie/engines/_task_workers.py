"""Workers for whole tasks on a Ray cluster: processes of one CPU each that take one after the other."""

import contextlib
import os
import pickle
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from coterie.engines._launchers import ByRay
from coterie.engines._launching import Entrance, arrive, check_versions
from coterie.errors import RunError

STOP = b"stop"
MOST = 4096
"""Workers at a time, whatever the cluster has."""


@dataclass(frozen=True)
class TaskWorker:
    """One process, somewhere, and whether it sees the folder of the one who asks."""

    number: int
    machine: str
    sees: bool
    pipe: Connection


@dataclass(frozen=True)
class Lost:
    """A worker is not there any more, whatever it was doing."""


@dataclass(frozen=True)
class Returned:
    """What a task has given."""

    result: Any


class TaskWorkers:
    """As many as Ray has room for, now or later; whoever is lost can be hired anew."""

    def __init__(self, address: str, gpus: float, token: Path) -> None:
        self.launcher = ByRay(address, gpus)
        self.token, self.secret = token, os.urandom(16)
        token.write_bytes(self.secret)
        self.door = Entrance(self.launcher.address)
        self.here: dict[int, TaskWorker] = {}
        self.hired: dict[int, tuple[Any, Any]] = {}
        self.last = 0

    @property
    def room(self) -> int:
        """How many the cluster can have at all, whoever else uses it now."""
        return min(self.launcher.whole(), MOST)

    def hire(self, count: int) -> None:
        """Have so many altogether, with those that are still to come."""
        while len(self.hired) < count:
            self.last += 1
            way = {**self.door.way, "token": self.token, "secret": self.secret, "cwd": os.getcwd()}
            self.hired[self.last] = self.launcher.hire_alone(_work, way, self.last)

    def dismiss(self, worker: TaskWorker) -> None:
        """There is nothing left to do for one."""
        worker.pipe.close()
        del self.here[worker.number]
        self.launcher.end([self.hired.pop(worker.number)])

    def send(self, worker: TaskWorker, call: Callable[..., Any], *args: Any) -> None:
        """Have a worker call `call(tell, *args)`; one that is lost is told of by `news`."""
        with contextlib.suppress(OSError):
            worker.pipe.send_bytes(pickle.dumps((call, args)))

    def interrupt(self) -> None:
        """Have Ctrl-C come to all."""
        for worker in self.here.values():
            with contextlib.suppress(OSError):
                worker.pipe.send_bytes(STOP)

    def news(self) -> Iterator[tuple[TaskWorker, Any]]:
        """What has happened: a worker that has come (None), what a task tells, `Returned`, or `Lost`."""
        for ready in wait([self.door.socket, *(worker.pipe for worker in self.here.values())], timeout=1.0):
            if ready is self.door.socket:
                yield from self._welcome()
                continue
            worker = next((w for w in self.here.values() if w.pipe is ready), None)
            if worker is None:  # dismissed meanwhile
                continue
            try:
                yield worker, pickle.loads(worker.pipe.recv_bytes())
            except (EOFError, OSError):
                yield self._lost(worker)
        runs = {run: number for number, (_, run) in self.hired.items()}
        ended, _ = self.launcher.ray.wait(list(runs), timeout=0) if runs else ([], [])
        for number in [runs[run] for run in ended if runs[run] in self.hired]:
            if number in self.here:  # its machine is gone, or what it said last is still to be read
                if not self.here[number].pipe.poll():
                    yield self._lost(self.here[number])
            elif why := self.launcher.why(self.hired.pop(number)[1]):
                raise RunError("a process could not be started on the cluster", got=why)

    def _welcome(self) -> Iterator[tuple[TaskWorker, Any]]:
        with contextlib.suppress(TimeoutError, EOFError):
            if came := self.door.accept():
                pipe, about = came
                check_versions(about["worker"], about)
                worker = TaskWorker(about["worker"], about["machine"], about["sees"], pipe)
                self.here[worker.number] = worker
                yield worker, None

    def _lost(self, worker: TaskWorker) -> tuple[TaskWorker, Any]:
        self.dismiss(worker)
        return worker, Lost()

    def close(self) -> None:
        """End all of them, and the Ray that was started for them."""
        for worker in self.here.values():
            worker.pipe.close()
        self.launcher.end(list(self.hired.values()))
        self.door.close()
        self.token.unlink(missing_ok=True)
        self.launcher.leave()


def _work(way: dict[str, Any], number: int) -> None:
    """Carry out tasks until nobody asks any more. Ctrl-C comes from whoever asks."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # Ray blocks it in all of its processes
    with contextlib.suppress(OSError):
        os.chdir(way["cwd"])
    pipe = arrive(way, number, sees=_sees(way["token"], way["secret"]))
    asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, asked), daemon=True).start()

    def tell(what: Any) -> None:
        pipe.send_bytes(pickle.dumps(what))

    with contextlib.suppress(OSError, KeyboardInterrupt):
        while True:
            if not (said := asked.get()):
                return
            call, args = pickle.loads(said)
            tell(Returned(call(tell, *args)))


def _listen(pipe: Connection, asked: "queue.SimpleQueue[bytes]") -> None:
    """Take what comes, also while a task is under way."""
    while True:
        try:
            said = pipe.recv_bytes()
        except (EOFError, OSError):  # nobody is there any more who wants anything
            asked.put(b"")
            return
        if said == STOP:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            asked.put(said)


def _sees(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False

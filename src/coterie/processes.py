"""Processes of Coterie's own: one thread each, started alike wherever they are needed; and who is asked to stop.

Ctrl-C, SIGTERM and SIGHUP all ask a run to stop, and whoever asks (a terminal that is closed, a service manager) often
asks all of its processes. The one that was started by hand decides what that means for the others.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

import torch.multiprocessing as mp

ASKING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that ask to stop."""
_deaf: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""Processes that do not heed them."""


@contextlib.contextmanager
def asked_to_stop(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have `stop` called by signals that ask for it, in the main thread; what is ignored from outside stays ignored."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in ASKING:
            if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` does
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def start(
    target: Callable[..., None], *args: Any, preload: Sequence[str] = (), daemon: bool = True, heeds: bool = False
) -> Any:
    """Start a process that calls `target(*args)`; what all such processes import slowly is named in `preload`.

    One that `heeds` signals ends by SIGTERM and SIGHUP, as processes do; others leave it to their starter to stop them.
    """
    context = _context()
    if preload and context.get_start_method() == "forkserver":
        context.set_forkserver_preload(list(preload))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    process = context.Process(target=_call, args=(target, args, heeds), daemon=daemon)
    with _without_main():
        if context.get_start_method() == "forkserver":
            with _blocked():  # it would else be started below, and unblock what is blocked there
                resource_tracker.ensure_running()
        with _blocked():  # so that the process which forks the others is deaf, too
            process.start()
    if not heeds:
        _deaf.add(process)
    return process


def _call(target: Callable[..., None], args: tuple[Any, ...], heeds: bool) -> None:
    if heeds and hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
    target(*args)


@contextlib.contextmanager
def _blocked() -> Iterator[None]:
    """Signals that ask to stop come later; processes that are started meanwhile do not see them at all."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set(ASKING) - {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@atexit.register
def _end() -> None:
    """End what was left running, which would else be asked to end, and not hear it."""
    for process in list(_deaf):
        with contextlib.suppress(ValueError):  # closed
            if process.is_alive():
                process.kill()


def pipe() -> Any:
    """Both ends of a pipe between this process and one that it starts."""
    return _context().Pipe()


def cores_here() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_free() -> int | None:
    """How many bytes processes may still take here, also where a container limits them; None if nobody says."""
    limits = [*_lines("/proc/meminfo", "MemAvailable:", 1024)]
    for used in _lines("/sys/fs/cgroup/memory.current"):
        limits += [most - used for most in _lines("/sys/fs/cgroup/memory.max")]
    if limits and os.path.isdir("/dev/shm"):  # where models are, for all workers to see
        shared = os.statvfs("/dev/shm")
        limits.append(shared.f_bavail * shared.f_frsize)
    return max(min(limits), 0) if limits else None


def _lines(file: str, start: str = "", unit: int = 1) -> Iterator[int]:
    """The numbers of a file of the system, in the lines that begin so."""
    with contextlib.suppress(OSError), open(file) as lines:
        for line in lines:
            words = line.removeprefix(start).split()
            if line.startswith(start) and words and words[0].isdecimal():
                yield int(words[0]) * unit


def _context() -> Any:
    return mp.get_context("forkserver" if hasattr(os, "fork") else "spawn")


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hide the user's script from a new process, which would run it again: workers need nothing of it."""
    main = sys.modules["__main__"]
    spec, file = main.__spec__, main.__dict__.pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file

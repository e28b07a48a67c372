"""Processes of Coterie's own: one thread each, started alike wherever they are needed."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.multiprocessing as mp


def start(target: Callable[..., None], *args: Any, preload: Sequence[str] = (), daemon: bool = True) -> Any:
    """Start a process that calls `target(*args)`; what all such processes import slowly is named in `preload`."""
    context = _context()
    if preload and context.get_start_method() == "forkserver":
        context.set_forkserver_preload(list(preload))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    process = context.Process(target=target, args=args, daemon=daemon)
    with _without_main():
        process.start()
    return process


def pipe() -> Any:
    """Both ends of a pipe between this process and one that it starts."""
    return _context().Pipe()


def cores_here() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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

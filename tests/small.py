"""Runs that take a moment, and what tests of runs do with them."""

import contextlib
import errno
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from coterie import records
from coterie.records import Event
from coterie.runs import runner
from coterie.runs.experiment import Experiment

LOOP = {"name": "local", "workers": 1, "mode": "loop"}
"""An engine that starts no process and measures nothing."""

SMALL: dict[str, Any] = {
    "nodes": 6,
    "rounds": 6,
    "batches": 2,
    "batch_size": 8,
    "total": 300,
    "test_share": 0.3,
    "evaluate": 1,
    "merged": True,
    "model": {"name": "mlp", "sizes": [8]},
    "topology": "ring",
    "partition": "iid",
    "engine": LOOP,
}


def small(**settings: Any) -> Experiment:
    """A small experiment with some settings of its own."""
    return Experiment(**{**SMALL, **settings})


def timeless(frame: pl.DataFrame) -> pl.DataFrame:
    """Records in one order, without what a clock said."""
    return frame.drop([c for c in frame.columns if c.endswith("_seconds")]).sort("method", "seed", "round", "node")


def assert_same(left: pl.DataFrame, right: pl.DataFrame) -> None:
    """Equal to the last bit, times aside."""
    assert_frame_equal(timeless(left), timeless(right), check_exact=True)


def assert_close(left: pl.DataFrame, right: pl.DataFrame) -> None:
    """Equal to float tolerance, times aside; what is counted to the last bit."""
    left, right = timeless(left), timeless(right)
    assert left.columns == right.columns
    for name in left.columns:
        one, other = left[name], right[name]
        if one.dtype.is_float():
            loose = name.endswith("accuracy")
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=0.04 if loose else 1e-3, err_msg=name)
        else:
            assert one.equals(other), name


def happened(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """The events of a run in order, without what a clock said."""
    return [
        (event.name, {key: value for key, value in event.data.items() if not key.endswith("_seconds")})
        for event in records.events(folder)
    ]


class At:
    """An observer that does something when a round is done."""

    def __init__(self, round: int, act: Callable[[], object], method: str = "decavg") -> None:
        self.round, self.act, self.method = round, act, method

    def event(self, event: Event) -> None:
        if (event.name, event.get("method"), event.get("round")) == ("round", self.method, self.round):
            self.act()


class Noted:
    """An observer that remembers everything."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = 0

    def event(self, event: Event) -> None:
        self.events.append(event)

    def close(self) -> None:
        self.closed += 1

    def named(self, name: str) -> list[Event]:
        """The events of one kind."""
        return [event for event in self.events if event.name == name]


def interrupt() -> None:
    """Press Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


def no_space(*_: Any, **__: Any) -> None:
    """What a full disk says to every write."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """No file may grow beyond this: of a line that would, the system writes a part."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def interrupted(experiment: Experiment, out: Path, round: int = 3) -> Path:
    """A run that was stopped by Ctrl-C after this round; its checkpoint."""
    with pytest.raises(runner.Interrupted):
        runner.run(experiment, out, [At(round, interrupt)])
    (checkpoint,) = out.glob("jobs/*/round-*")
    return checkpoint

"""Which way of computing rows is faster here: measured once per machine and model, then remembered."""

import contextlib
import os
import platform
import tempfile
import time
from collections.abc import Callable
from typing import Literal

from coterie import files, waiting
from coterie.engines._groups import Mode
from coterie.engines._probing import Probe
from coterie.errors import ConfigError
from coterie.job import Roster, Samples

CHUNK_BYTES = tuple(kilobytes * 1024 for kilobytes in (1024, 512, 2048, 256, 4096, 16384))
"""Sizes of a stack's parameters that are tried, the likeliest first."""
SECONDS = 5.0
"""What a calibration may take, more or less: what would be longer is not tried."""
LEAST = 2
"""How many ways are tried in any case: however busy the machine is, one by one and the likeliest stack."""
PARTS = 8
"""Of its seconds, each size gets so manieth."""


def choose_mode(
    roster: Roster,
    samples: Samples,
    group: int,
    asked: Literal["auto", "stack", "loop"],
    chunk: int,
    workers: int,
    times: int = 1,
    together: Callable[[int, float], float] | None = None,
) -> Mode:
    """Stack or loop, and how many rows at once: as asked, else the faster one on this machine.

    Jobs of this kind will be run `times` times. If one row after the other takes all of them no longer than it takes
    to find out what is faster, nothing is measured. `together` measures at all workers at once, who share caches and
    memory as they will in the run: the slowest one's seconds per row in stacks of so many (0: one by one), found in so
    many seconds. Without it one process measures alone.
    """
    if asked == "loop":
        return Mode(False, 1)
    probe, each = Probe(roster, samples, group), max(-(-len(roster.groups[group]) // workers), 1)
    known, stackable = _Known(), f"{probe.signature} stackable"
    share = f"{probe.signature} batch {roster.training.batch_size} share {each} of {workers} workers {asked}"
    deadline = time.monotonic() + SECONDS
    if asked == "auto" and not known.has(stackable, share):
        alone = probe.seconds(0, SECONDS / PARTS)
        if alone * times * roster.rounds * _rows_of_a_round(roster, group, workers, probe.steps) < SECONDS:
            return Mode(False, 1)
    if not known.has(stackable, share):
        name = roster.models[group].name
        waiting.tell(f"calibrating {name}: is it faster stacked? (about {SECONDS:.0f} s, once on this machine)")
    if not known.recall(stackable, probe.stackable):
        if asked == "stack":
            raise ConfigError(
                f"model {roster.models[group].name!r} cannot be stacked",
                expected="no batch-norm statistics, dropout, data-dependent control flow, optimisers out of step, "
                "schedules or early stopping",
                cure="Use --engine.mode loop (or auto).",
            )
        return Mode(False, 1)
    if chunk:
        return Mode(True, chunk)

    def fastest() -> int:
        measure, took = together or probe.seconds, dict[int, float]()
        for size in [*([0] if asked == "auto" else []), *_sizes(each, probe.width)]:
            if len(took) < LEAST or time.monotonic() + 2 * size * min(took.values()) < deadline:
                took[size] = measure(size, SECONDS / PARTS)
        best = min(took, key=lambda size: took[size])
        waiting.tell(f"calibrated {roster.models[group].name}: {_found(took, best)}")
        return best

    best = known.recall(share, fastest)
    return Mode(best > 0, max(best, 1))


def _sizes(each: int, width: int) -> list[int]:
    """Sizes of stacks to be tried, of which a few make up the rows of a worker without a small one at the end."""
    counts = [-(-each // max(size // (4 * width), 1)) for size in CHUNK_BYTES]
    return list(dict.fromkeys(-(-each // count) for count in counts))


def _found(took: dict[int, float], best: int) -> str:
    """What was found, in milliseconds for each row of a few mini-batches."""
    ways = (("one by one" if not size else f"stacks of {size}", 1000 * took[size]) for size in took)
    which = f"stacks of {best}" if best else "one by one"
    return f"{which} is fastest; ms a node: " + ", ".join(f"{way} {ms:.3g}" for way, ms in ways)


def _rows_of_a_round(roster: Roster, group: int, workers: int, steps: int) -> float:
    """How many times the work of a probe on one row a worker has in a round."""
    return sum(roster.steps(int(node)) for node in roster.groups[group]) / max(steps, 1) / workers


class _Known:
    """What was measured on this machine before, in a small file of the cache folder."""

    def __init__(self) -> None:
        self.path = files.cache_folder() / f"modes-{platform.node() or 'machine'}.json"
        self.known: dict[str, int] = {}
        with contextlib.suppress(OSError, ValueError, RecursionError):  # what is damaged is measured anew
            found = files.read_json(self.path)
            self.known = {key: value for key, value in found.items() if isinstance(value, int) and value >= 0}

    def has(self, *keys: str) -> bool:
        """Whether all of these were measured before; if the first is 0, rows cannot be stacked, and that is enough."""
        return self.known.get(keys[0]) == 0 or all(key in self.known for key in keys)

    def recall(self, key: str, measure: Callable[[], int]) -> int:
        """The remembered value, or a new one that is remembered from now on."""
        if key not in self.known:
            self.known[key] = int(measure())
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile(dir=self.path.parent, delete=False) as file:  # others may write, too
                    file.write(files.as_json(self.known))
                os.replace(file.name, self.path)
            except OSError:
                pass  # a cache that cannot be written only costs the next run a measurement
        return self.known[key]

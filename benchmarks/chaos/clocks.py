"""A wall clock that jumps: imported first, it stands in for `time.time`, and is right until told not to be."""

import functools
import random
import time

EVERY = 3.0
"""Seconds between two jumps, by the clock that only goes forward."""
HOUR, YEAR = 3600.0, 365 * 24 * 3600.0
JUMPS = (-YEAR, -HOUR, -7.0, 0.0, 7.0, HOUR, YEAR)
"""How wrong it may be."""
_right, _right_ns = time.time, time.time_ns
_seed: list[str] = []


def jump(seed: str) -> None:
    """Let this process's clock be wrong from now on, and every few seconds by something else."""
    _seed[:] = [seed]
    time.time, time.time_ns = wrong, wrong_ns  # again, if this process began without


def wrong() -> float:
    """Seconds since 1970, or what passes for it."""
    return _right() + _error(int(time.monotonic() / EVERY), *_seed)


def wrong_ns() -> int:
    """The same in nanoseconds."""
    return _right_ns() + int(1e9 * _error(int(time.monotonic() / EVERY), *_seed))


@functools.lru_cache
def _error(turn: int, seed: str = "") -> float:
    return random.Random(f"{seed} {turn}").choice(JUMPS) if seed else 0.0


time.time, time.time_ns = wrong, wrong_ns

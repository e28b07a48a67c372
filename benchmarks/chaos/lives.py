"""What begins in a process of its own: peers as they are, in the surroundings that were made for them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from chaos import clocks, machines  # the clock first: what is imported after it asks it for the time
from chaos.disks import Disk, Pretended
from coterie import files, processes
from coterie.engines import peer

PRELOAD = ["chaos.lives", "coterie.peers.runtime", "coterie.config.build", "sklearn.datasets"]


@dataclass(frozen=True)
class Surroundings:
    """What a process finds itself in."""

    machine: str | None = None
    """A network namespace."""
    host: str = "127.0.0.1"
    """Where its status page is to be."""
    clock: str = ""
    """The seed of a clock that jumps, if it does."""
    disk: Disk | None = None


def begin(where: Surroundings, target: Callable[..., None], *args: Any) -> Callable[[], Any]:
    """What starts such a process."""
    return lambda: processes.start(_live, where, target, *args, preload=PRELOAD, heeds=True)


def ready() -> None:
    """Have the process that starts all others be here, and not where this one will be."""
    processes.start(_nothing, preload=PRELOAD).join()


def _nothing() -> None: ...


def _live(where: Surroundings, target: Callable[..., None], *args: Any) -> None:
    if where.machine:
        machines.enter(where.machine)
    if where.clock:
        clocks.jump(where.clock)
    if where.disk and not where.disk.mounted:
        files.system = Pretended(where.disk)
    known = peer.peer_config
    peer.peer_config = lambda *args: replace(known(*args), status_host=where.host)  # type: ignore[arg-type]
    target(*args)

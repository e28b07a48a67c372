"""Open files: as many as this process may have, of which strangers' connections get what is left over."""

import contextlib
import os
import resource

ENOUGH = 65_536
"""Open files that a peer asks for at its start, if the system lets it have them."""
RESERVED = 128
"""Open files that no connection from outside takes: for checkpoints, records, the log, cards and the status page."""
EACH = 4
"""Connections of one neighbour: those it makes and those made to it, and as many again while they are renewed."""
MOST = 512
"""Connections from outside at a time, however many files may be open: each may take eight megabytes, too."""


def raise_limit() -> int:
    """Let this process open as many files as it can without asking anybody; gives how many these are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return ENOUGH
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
    if wanted > soft:
        with contextlib.suppress(ValueError, OSError):  # a system that promises more than it gives
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 0)


def connections(limit: int, neighbours: int) -> int:
    """How many connections from outside there may be, where so many files may be open, and so many are neighbours'."""
    free = limit - len(os.listdir("/dev/fd")) - RESERVED - EACH * neighbours
    return max(EACH * neighbours, min(MOST, free))

"""What a peer lets its neighbours say: settings, without anything that takes long to import."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a peer lets its neighbours say."""

    factor: float = 100.0
    """How many times larger than one's own a neighbour's parameters may be, tensor by tensor; 0: as large as any."""
    share: float = 0.5
    """The most that a neighbour may weigh in an average, where its data size is what it says; 1: as much as it says."""

"""The simulator: all nodes of a run in one machine's memory, advanced together."""

from dataclasses import dataclass
from typing import Literal

import torch

from coterie.engines._scheduler import LocalSession
from coterie.engines._session import Engine


@dataclass(frozen=True)
class Local(Engine):
    """Simulate all nodes here: worker processes with one thread each, rows stacked or looped over in each.

    `workers` 0 takes all cores; `mode` auto measures once per machine and model which is faster; `chunk` rows are
    stacked together (0: measured too).
    """

    workers: int = 0
    mode: Literal["auto", "stack", "loop"] = "auto"
    chunk: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.workers < 0 or self.chunk < 0:
            raise ValueError(f"workers and chunk are at least 0, not {self.workers} and {self.chunk}")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {self.device!r} is not to be had here ({str(error).splitlines()[0]})") from None

    def open(self) -> LocalSession:
        """Start the worker processes."""
        return LocalSession(self.workers, self.mode, self.chunk, self.device)

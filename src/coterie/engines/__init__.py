"""Engines: where the nodes live. One file each; found by looking.

An engine's `open` gives a session that runs one job (a method with a seed) at a time, round by round.
"""

from typing import Any, Protocol

from torch import Tensor

from coterie.job import Job, Ledger


class Session(Protocol):
    """A running engine."""

    ledger: Ledger

    @property
    def plan(self) -> dict[str, Any]:
        """The choices this session made for the present job (workers, stacking): recorded, and kept on resume."""
        ...

    def begin(self, job: Job, plan: dict[str, Any] | None = None) -> None:
        """Lay out a job and draw its starting models; `plan` are the choices of the run that is resumed."""
        ...

    def evaluate(self) -> None:
        """Measure every node's model as it is."""
        ...

    def round(self, number: int, evaluate: bool) -> None:
        """One round of the protocol; with `evaluate`, models are measured after their training and after the merge."""
        ...

    def snapshot(self) -> dict[str, Tensor]:
        """All state between rounds."""
        ...

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go back to a snapshot."""
        ...

    def close(self) -> None:
        """Free what is held."""
        ...

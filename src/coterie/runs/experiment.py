"""An experiment from Python: a configuration that runs."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from coterie.config.configuration import Configuration
from coterie.records import Observer
from coterie.runs.runner import run


class Experiment(Configuration):
    """Everything that decides the numbers of a run. Build one, `run()` it, get records as a data frame."""

    def run(self, out: str | Path | None = None, observers: Sequence[Observer] = ()) -> pl.DataFrame:
        """Run every method with every seed; records as a data frame, also written to `out` if named.

        Observers are told what happens as it happens (`coterie.records.events`).
        """
        return run(self, out, observers)

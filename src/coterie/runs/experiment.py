"""An experiment from Python: a configuration that runs."""

from pathlib import Path

import polars as pl

from coterie.config.configuration import Configuration
from coterie.runs.runner import run


class Experiment(Configuration):
    """Everything that decides the numbers of a run. Build one, `run()` it, get records as a data frame."""

    def run(self, out: str | Path | None = None) -> pl.DataFrame:
        """Run every method with every seed; records as a data frame, also written to `out` if named."""
        return run(self, out)

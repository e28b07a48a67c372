"""An experiment from Python: a configuration that runs."""

from collections.abc import Sequence
from pathlib import Path

from coterie.config.configuration import Configuration
from coterie.records import Observer
from coterie.runs.run import Run
from coterie.runs.runner import run


class Experiment(Configuration):
    """Everything that decides the numbers of a run. Build one, `run()` it, and look at what it brought."""

    def run(self, out: str | Path | None = None, observers: Sequence[Observer] = ()) -> Run:
        """Run every method with every seed: records, table, curves and models, also written to `out` if named.

        Observers are told what happens as it happens (`coterie.records.events`).
        """
        return run(self, out, observers)

"""An experiment from Python: a configuration that runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from coterie.config.configuration import Configuration, read
from coterie.config.slots import as_table
from coterie.records import Observer
from coterie.runs.run import Run
from coterie.runs.runner import run
from coterie.runs.shown import onlookers


class Experiment(Configuration):
    """Everything that decides the numbers of a run. Build one, `run()` it, and look at what it brought."""

    @classmethod
    def from_toml(cls, file: str | Path) -> Self:
        """The experiment that a TOML file says, as `coterie run FILE` has it; `to_toml` writes one."""
        return cls(**read(Path(file)))

    def run(self, out: str | Path | None = None, observers: Sequence[Observer] = (), *, progress: bool = True) -> Run:
        """Run every method with every seed: records, table, curves and models.

        Named a folder, `out`, all is written there too, with a report, as `coterie run --out` does. Observers are told
        what happens as it happens (`coterie.Watcher`); `progress` shows it.
        """
        engine = str(as_table(self.engine)["name"])
        made = run(self, out, [*onlookers("" if out is None else str(out), engine, progress), *observers])
        if out is not None:
            made.report()
        return made

"""An experiment from Python: a configuration that runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from coterie.config.configuration import Configuration, merge, read
from coterie.config.objects import tables
from coterie.config.slots import as_table
from coterie.records import Observer
from coterie.runs.run import Run
from coterie.runs.runner import run
from coterie.runs.shown import onlookers
from coterie.runs.sweep import SweepOrder, Swept, combined, sweep


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

    def sweep(
        self,
        grid: Mapping[str, Sequence[Any]],
        out: str | Path,
        seeds: Sequence[int] | None = None,
        jobs: int = 0,
        metric: str = "accuracy",
        observers: Sequence[Observer] = (),
    ) -> Swept:
        """Run this experiment with every combination of some settings, such as `{"partition.alpha": [0.1, 0.5]}`.

        Runs are kept in `out` by their settings: what is there already is not run again.
        """
        mine = self.model_dump()

        def made(cell: dict[str, Any]) -> Configuration:
            below = {key: value for key, value in mine.items() if key != "methods" or "rule" not in cell}
            return type(self)(**merge(below, tables(cell)))

        chosen = None if seeds is None else tuple(seeds)
        return sweep(SweepOrder(combined(grid, made), metric, chosen, jobs=jobs), out, observers)

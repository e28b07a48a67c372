"""Sweeps: an experiment for every combination of some settings, each computed once and kept, as runs of a study are."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from coterie import files
from coterie.config import grid as grids
from coterie.config.configuration import Configuration
from coterie.engines import Engine
from coterie.errors import ConfigError, CoterieError
from coterie.records import Observer
from coterie.report import pivot
from coterie.report.sheets import Sheet
from coterie.runs.exhibits import Exhibit, Results, Shown
from coterie.runs.study import conduct
from coterie.runs.study_order import Commission
from coterie.runs.task_store import TaskStore

TABLE = "table"
"""The label of the only exhibit, and the name of its files."""


@dataclass(frozen=True)
class SweepOrder(Commission):
    """What a user asked of a sweep: the experiments by the values that they have of what is varied."""

    cells: Sequence[tuple[Mapping[str, str], Configuration]]
    metric: str = "accuracy"
    seeds: tuple[int, ...] | None = None
    data_dir: str | None = None
    jobs: int = 0
    cluster: str = ""
    cluster_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.check()
        known = [name for _, method in self._methods() for name in method.metrics]
        names = {str(m["name"] if isinstance(m, Mapping) else m) for m in known}
        if self.metric not in names:
            raise ConfigError("--metric", expected=f"one of {', '.join(sorted(names))}", got=repr(self.metric))

    def _methods(self) -> Iterator[tuple[str, Configuration]]:
        for _, experiment in self.cells:
            yield from experiment.resolved.items()

    def engine(self) -> Engine | None:
        first = next(iter(self.cells[0][1].resolved.values()))
        made: Engine = first.choice("engine").make()
        return made

    def exhibits(self) -> dict[str, Exhibit]:
        """The table and the curves of all cells."""
        runs = {_named(cell): experiment for cell, experiment in self.cells}
        return {TABLE: Exhibit("the cells of the sweep", self._show, runs)}

    def results(self, found: Results) -> pivot.Sweep:
        """The records of all cells."""
        cells = [cell for cell, _ in self.cells]
        return pivot.Sweep(cells, [found.records[_named(cell)] for cell in cells])

    def _show(self, found: Results, folder: Path) -> Iterator[Shown]:
        sweep = self.results(found)
        sheet = sweep.pivot(self.metric)
        yield sheet
        files.write(folder / f"{TABLE}.tex", pivot.latex(sheet).encode())
        files.write(folder / f"{TABLE}.csv", sweep.summary().write_csv().encode())
        yield sweep.draw(folder / "curves.png", self.metric)


def _named(cell: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in cell.items())


class Swept:
    """What a sweep has brought: every cell's records, a table, and curves."""

    def __init__(self, sweep: pivot.Sweep, folder: Path, metric: str) -> None:
        self._sweep, self.folder, self.metric = sweep, folder, metric

    @property
    def records(self) -> pl.DataFrame:
        """The records of all cells, with what was varied in columns of its own."""
        pairs = zip(self._sweep.cells, self._sweep.records, strict=True)
        return pl.concat(
            (frame.with_columns(**{key: pl.lit(value) for key, value in cell.items()}) for cell, frame in pairs),
            how="diagonal_relaxed",
        )

    def table(self) -> pl.DataFrame:
        """A row for every cell and method: what was varied, and the summary."""
        return self._sweep.summary()

    def pivot(self, metric: str | None = None) -> Sheet:
        """The table of a metric, which `.markdown()` gives as text."""
        return self._sweep.pivot(metric or self.metric)

    def latex(self, metric: str | None = None) -> str:
        """The same in LaTeX."""
        return pivot.latex(self.pivot(metric))

    def _repr_markdown_(self) -> str:
        """What a notebook shows."""
        return self.pivot().markdown()


Cells = list[tuple[dict[str, str], Configuration]]
"""Experiments by the values that they have of what is varied."""


def combined(grid: grids.Grid, made: Callable[[dict[str, Any]], Configuration]) -> Cells:
    """The cells of a grid, each made by `made` of the settings that it has."""
    found = []
    for cell in grids.cells(grid):
        shown = {key: grids.said(value) for key, value in cell.items()}
        try:
            found.append((shown, made(grids.settings(cell))))
        except CoterieError as error:
            raise type(error)(f"{_named(shown)}: {error}") from None
    names = [_named(shown) for shown, _ in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError("grid", expected="values that differ", got=f"{min(twice)} twice")
    return found


def sweep(order: SweepOrder, out: str | Path, observers: Sequence[Observer] = ()) -> Swept:
    """Carry out a sweep, or what is left of it, and read what it brought."""
    folder = Path(out)
    for _ in conduct(order, folder, observers):
        pass
    runs = {run: order.tasks(run, experiment) for run, experiment in order.exhibits()[TABLE].runs.items()}
    return Swept(order.results(TaskStore(folder / "tasks").results(runs)), folder, order.metric)

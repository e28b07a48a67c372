"""How long the runs of the initialisation paper take, by configuration and size: its Table A2."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from coterie.report.sheets import Sheet
from coterie.runs.exhibits import Exhibit, Results, Shown

MINUTES = {
    "A": {8: 9.3, 16: 20.1, 32: 51.2, 64: 137.1},
    "B": {32: 95.0, 64: 177.7, 128: 340.2, 256: 716.8},
    "C": {8: 47.5, 16: 92.9, 32: 167.1, 64: 314.9},
    "D": {8: 10.54, 16: 23.05, 32: 51.42, 64: 126.8},
}
"""The paper's medians of one realisation, by configuration and number of nodes."""
SPENT = ("train_seconds", "merge_seconds", "evaluate_seconds")


def runtimes_exhibit(settings: Mapping[str, Exhibit]) -> Exhibit:
    """Table A2 from the runs of Figure 3, whose panels these are by the paper's name of their configuration."""
    runs = {
        f"{name} {run}": one
        for name, exhibit in settings.items()
        for run, one in exhibit.runs.items()
        if run.startswith("he ")
    }

    def show(found: Results, folder: Path) -> list[Shown]:
        rows = []
        for run, records in found.records.items():
            name, n = run[0], int(run.rpartition(" ")[2])
            took = _minutes(records)
            paper = MINUTES[name].get(n)
            middle = took.median()
            assert isinstance(middle, float)
            rounds = records["round"].to_numpy().max()
            cells = [f"{middle:.2f}", f"{took.sum() / 60:.2f}", f"{rounds:,}"]
            rows.append([name, f"{n}", *cells, "" if paper is None else f"{paper:g}"])
        note = "Minutes of a core in which nodes train, merge and are judged; the paper's are of graphics processors."
        heads = ["configuration", "nodes", "median (minutes)", "all (hours)", "rounds", "paper (minutes)"]
        return [Sheet("One realisation of He alone", heads, rows, [note])]

    scaled = next(iter(settings.values())).scaled
    return Exhibit("how long one realisation takes, by configuration and size", show, runs, scaled)


def _minutes(records: pl.DataFrame) -> pl.Series:
    """What each seed has taken by its last round, over all nodes."""
    last = records.filter(pl.col("round") == pl.col("round").max().over("seed"))
    spent = pl.sum_horizontal(pl.col(column).fill_null(0.0).fill_nan(0.0) for column in SPENT)
    return last.group_by("seed", maintain_order=True).agg((spent.sum() / 60).alias("minutes"))["minutes"]

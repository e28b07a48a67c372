"""The summary and the figures of a run, as files."""

from pathlib import Path

import polars as pl

from coterie.report.curves import plot_all
from coterie.report.measures import plot_measures
from coterie.report.statistics import REFERENCE, summary


def write_figures(
    records: pl.DataFrame, folder: Path, reference: str = REFERENCE, measures: pl.DataFrame | None = None
) -> list[Path]:
    """Write `summary.csv` and all figures into a folder; gives where the figures are."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    summary(records, reference=reference).write_csv(folder / "summary.csv")
    return plot_all(records, folder, reference) + ([] if measures is None else plot_measures(measures, folder))

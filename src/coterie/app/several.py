"""The records and measures of several runs at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def several(folders: Sequence[str]) -> "pl.DataFrame":
    """The records of some runs; each is called by its folder's name, or by its path where names coincide."""
    from coterie import records
    from coterie.report.statistics import label_runs

    return label_runs({label: records.load(folder) for label, folder in _labelled(folders).items()})


def measures_of(folders: Sequence[str | Path]) -> "pl.DataFrame | None":
    """The measures of some runs, if any of them has some."""
    from coterie import records
    from coterie.report.statistics import label_runs

    measured = {label: Path(f) for label, f in _labelled(folders).items() if (Path(f) / records.MEASURED).is_file()}
    return label_runs({label: records.measures(folder) for label, folder in measured.items()}) if measured else None


def _labelled(folders: Sequence[str | Path]) -> dict[str, str | Path]:
    """Labels of runs: the folder's name, or its path where names coincide."""
    names = [Path(f).resolve().name for f in folders]
    return dict(zip(names if len(set(names)) == len(names) else map(str, folders), folders, strict=True))

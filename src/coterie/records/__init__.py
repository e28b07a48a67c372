"""What a run leaves behind: its tables and its folder. Reports, pages and plots read these and nothing else."""

from coterie.records.folder import RunFolder, configuration, environment, environment_here, frozen, load, measures
from coterie.records.table import (
    MEASURED,
    MEASURES,
    SCHEMA,
    beside,
    empty,
    measured,
    read_frame,
    rows,
    write_frame,
    write_tables,
)

__all__ = [
    "MEASURED",
    "MEASURES",
    "SCHEMA",
    "RunFolder",
    "beside",
    "configuration",
    "empty",
    "environment",
    "environment_here",
    "frozen",
    "load",
    "measured",
    "measures",
    "read_frame",
    "rows",
    "write_frame",
    "write_tables",
]

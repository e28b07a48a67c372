"""What a run leaves behind: its tables and its folder. Reports, pages and plots read these and nothing else."""

from coterie.records.events import Event, Observer
from coterie.records.folder import RunFolder, configuration, environment, environment_here, frozen, load, measures
from coterie.records.journal import Channel, Journal, events
from coterie.records.table import (
    MEASURED,
    MEASURES,
    as_lists,
    beside,
    empty,
    measured,
    read_frame,
    rows,
    schema,
    together,
    types,
    write_frame,
    write_tables,
)

__all__ = [
    "MEASURED",
    "MEASURES",
    "Channel",
    "Event",
    "Journal",
    "Observer",
    "RunFolder",
    "as_lists",
    "beside",
    "configuration",
    "empty",
    "environment",
    "environment_here",
    "events",
    "frozen",
    "load",
    "measured",
    "measures",
    "read_frame",
    "rows",
    "schema",
    "together",
    "types",
    "write_frame",
    "write_tables",
]

"""What a run leaves behind: its tables and its folder. Reports, pages and plots read these and nothing else."""

from coterie.records.events import Event, Observer
from coterie.records.folder import (
    RunFolder,
    configuration,
    configuration_text,
    environment,
    environment_here,
    load,
    measures,
    shard,
)
from coterie.records.frozen import frozen
from coterie.records.journal import Channel, Journal, events
from coterie.records.table import (
    MEASURED,
    MEASURES,
    as_lists,
    beside,
    empty,
    measured,
    printable,
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
    "configuration_text",
    "empty",
    "environment",
    "environment_here",
    "events",
    "frozen",
    "load",
    "measured",
    "measures",
    "printable",
    "read_frame",
    "rows",
    "schema",
    "shard",
    "together",
    "types",
    "write_frame",
    "write_tables",
]

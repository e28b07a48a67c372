"""Printing on the terminal: facts, paths, and the console itself."""

import os
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def console() -> Console:
    """The console: a terminal as wide as it is, a file or a pipe with 100 columns."""
    made = Console(highlight=False, markup=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = 100
    return made


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print names and numbers, a line each."""
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        table.add_row(Text(name, style="dim"), f"{value:.4g}" if isinstance(value, float) else _word(value))
    console().print(table)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else f"{value:,}"


def print_paths(paths: Mapping[str, Any]) -> None:
    """Print the paths of files that were written, a line each."""
    out, width = console(), max(map(len, paths), default=0)
    for name, path in paths.items():
        out.print(Text(f"{name:<{width}}  ", style="dim") + Text(str(path), style="default"), soft_wrap=True)

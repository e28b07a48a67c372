"""Printing on the terminal: facts, paths, and the console itself."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from coterie import waiting
from coterie.app import formats

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What steers a terminal, or turns the order of letters around."""


class _Careful(Console):
    """A console that nobody's names steer: control characters in what is shown are replaced by a sign."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """What is to be shown, in pieces."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else CONTROLS.sub("�", text), style, control)


def console(stderr: bool = False) -> Console:
    """The console: a terminal as wide as it is, a file or a pipe with 100 columns. What was waited for is there."""
    waiting.over()
    made = _Careful(highlight=False, markup=False, stderr=stderr or bool(formats.asked))
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = 100
    return made


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print names and numbers, a line each, or in the format asked for."""
    if formats.write({name.replace(" ", "_"): value for name, value in facts.items()}):
        return
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


def complain(text: str, code: int = 2) -> int:
    """Tell on one line what went wrong, and give the exit code."""
    waiting.over()
    print(f"coterie: {CONTROLS.sub('�', ' '.join(text.split()))}", file=sys.stderr)
    return code

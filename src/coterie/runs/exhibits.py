"""Exhibits: the tables and figures of a study, each as the runs it needs and what it shows of them.

A study is a function from a scale to its exhibits, by label (`figure 3a`, `table II`). An exhibit says what is to be
run and how it is shown; it runs nothing itself, so that all runs can be kept, shared between exhibits and spread over
processes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from coterie.config.configuration import Configuration
from coterie.report.sheets import Sheet

Scale = Literal["smoke", "laptop", "paper", "full"]
SCALES: tuple[str, ...] = get_args(Scale)
"""`paper` is everything at the papers' sizes; `full` a few cells of that, each so long as it can be run here."""


@dataclass(frozen=True)
class Results:
    """What came of the runs of an exhibit, by the name of the run."""

    records: Mapping[str, pl.DataFrame]
    measures: Mapping[str, pl.DataFrame]
    """Diagnostics of the runs that were asked for them."""


Shown = Path | Sheet | str
"""A picture that was drawn, a table, or a paragraph."""


@dataclass(frozen=True)
class Exhibit:
    """One table or figure: what is to be run for it, and what it shows of the records."""

    title: str
    show: Callable[[Results, Path], Iterable[Shown]]
    """Draws into a folder, and says what is to be seen, in order."""
    runs: Mapping[str, Configuration] = field(default_factory=dict)
    scaled: str = ""
    """How the runs differ from the paper's."""
    so_far: bool = False
    """Whether it can be shown of the runs there are, of which some may be under way."""


def matching(exhibits: Iterable[str], figures: Sequence[str], tables: Sequence[str]) -> tuple[list[str], list[str]]:
    """The exhibits asked for, all if none is named, and what was asked for in vain; `3` means 3a, 3c and so on too."""
    asked = [f"figure {f}" for f in figures] + [f"table {t}" for t in tables]
    known = list(exhibits)
    found = {a: [k for k in known if k.lower() == a.lower() or _panel(k, a)] for a in asked}
    chosen = {label for labels in found.values() for label in labels}
    return [k for k in known if k in chosen or not asked], [a for a, labels in found.items() if not labels]


def _panel(label: str, asked: str) -> bool:
    rest = label[len(asked) :]
    return asked[-1:].isdigit() and label.startswith(asked) and len(rest) == 1 and rest.isalpha()

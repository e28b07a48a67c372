"""A run in hand: its records, its table and curves, and the models that its nodes have trained."""

import functools
import io
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure
from torch import nn

from coterie import files, records
from coterie.config.slots import as_table
from coterie.errors import RunError
from coterie.page import single
from coterie.parts import unknown
from coterie.records import Observer
from coterie.records.models import NodeModels
from coterie.report import figures
from coterie.report.curves import accuracy_figure
from coterie.report.statistics import summary
from coterie.report.tables import cells, headers, notes, title, to_markdown
from coterie.runs.shown import onlookers

Jobs = Mapping[tuple[str, int], NodeModels]
GoOn = Callable[[str | Path, Sequence[Observer], Sequence[Any]], "Run"]
"""Goes on with the run in a folder."""


class Run:
    """What a run has brought. From Python an experiment gives one; `coterie.open` reads one from its folder."""

    def __init__(
        self,
        frame: pl.DataFrame,
        folder: Path | None = None,
        kept: Jobs | None = None,
        *,
        go_on: "GoOn",
    ) -> None:
        self.records, self.folder, self._kept = frame, folder, kept or {}
        self._go_on = go_on

    def table(self) -> pl.DataFrame:
        """One row per method: accuracy with its interval over seeds, rounds to shares of the bound, bytes."""
        return summary(self.records)

    def report(self) -> Path:
        """Write `report.html`, with its figures beside it, into the run's folder; the path of the page."""
        if self.folder is None:
            cure = 'Name a folder when it begins: experiment.run("runs/mine").'
            raise RunError("this run has no folder to write a report in", cure=cure)
        measured = (self.folder / records.MEASURED).is_file()
        with files.disk(self.folder):
            measures = records.measures(self.folder) if measured else None
            figures.write_figures(self.records, self.folder, measures=measures)
        return single.write_page([self.folder], self.folder / "report.html")

    def resume(self, observers: Sequence[Observer] = (), parts: Sequence[Any] = (), *, progress: bool = True) -> "Run":
        """Go on with it, if it was interrupted; `parts` are the Python objects that it began with elsewhere."""
        if self.folder is None:
            cure = 'Name a folder when it begins: experiment.run("runs/mine").'
            raise RunError("a run without a folder cannot be resumed", cure=cure)
        engine = str(as_table(records.configuration(self.folder, parts).engine)["name"])
        made = self._go_on(self.folder, [*onlookers(str(self.folder), engine, progress), *observers], parts)
        made.report()
        return made

    def plot(self) -> Figure:
        """Mean test accuracy of every method by round; a notebook draws it."""
        figure = accuracy_figure(self.records)
        vars(figure)["_repr_png_"] = functools.partial(_png, figure)
        return figure

    def models(self, method: str | None = None, seed: int | None = None) -> NodeModels:
        """The models of a job's nodes, by node; method and seed may be left out where there is but one."""
        chosen = self._one("method", method), int(self._one("seed", seed))
        if self.folder is not None:
            return records.RunFolder(self.folder).models(*chosen)
        if chosen not in self._kept:
            raise RunError("this run kept no models", cure="Run it with keep_models = true.")
        return self._kept[chosen]

    def model(
        self,
        method: str | None = None,
        seed: int | None = None,
        node: int = 0,
        peak: bool = False,
        best: bool = False,
    ) -> nn.Module:
        """One node's trained model, ready to be used: the last one, the `best`, or the `peak` that a lesson kept."""
        model = self.models(method, seed)[node]
        return (model.best if best else model.peak if peak else model).module()

    def _one(self, column: str, asked: str | int | None) -> str:
        known = [str(value) for value in self.records[column].unique(maintain_order=True)]
        if asked is None and len(known) == 1:
            return known[0]
        if asked is None:
            raise RunError(f"which {column}?", expected=f"one of {', '.join(known)}", cure=f"Say --{column}.")
        if str(asked) not in known:
            raise unknown(column, str(asked), known)
        return str(asked)

    def __repr__(self) -> str:
        jobs, rounds = self.records.select("method", "seed").n_unique(), self.records["round"].max()
        where = "" if self.folder is None else f" in {self.folder}"
        return f"Run of {jobs} job{'s'[: jobs != 1]}{where}, {rounds!r} round{'s'[: rounds != 1]}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows: the table and the curves, or the table in words where there are no pictures."""
        picture = io.StringIO()
        self.plot().savefig(picture, format="svg")
        curves = picture.getvalue()[picture.getvalue().index("<svg") :]
        return {
            "text/html": f"{_html(self.table())}\n{curves}",
            "text/markdown": to_markdown(self.table()),
            "text/plain": repr(self),
        }


def _html(table: pl.DataFrame) -> str:
    """The table of a run as HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in headers(table))
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells(table))
    said = "".join(f"<p>{escape(note)}</p>" for note in notes(table))
    caption = f"<caption>{escape(title(table))}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{said}"


def _png(figure: Figure) -> bytes:
    """A figure as a picture, for notebooks whose plots are not set up."""
    kept = io.BytesIO()
    figure.savefig(kept, format="png")
    return kept.getvalue()

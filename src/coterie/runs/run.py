"""A run in hand: its records, its table and curves, and the models that its nodes have trained."""

import io
from collections.abc import Mapping
from html import escape
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure
from torch import nn

from coterie import records
from coterie.errors import RunError
from coterie.parts import unknown
from coterie.records.models import NodeModels
from coterie.report.curves import accuracy_figure
from coterie.report.statistics import summary
from coterie.report.tables import cells, headers, notes, title, to_markdown

Jobs = Mapping[tuple[str, int], NodeModels]


class Run:
    """What a run has brought. From Python an experiment gives one; `Run.open` reads one from its folder."""

    def __init__(self, frame: pl.DataFrame, folder: Path | None = None, kept: Jobs | None = None) -> None:
        self.records, self.folder, self._kept = frame, folder, kept or {}

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """The run in a folder, finished or not."""
        return cls(records.load(folder), Path(folder))

    def table(self) -> pl.DataFrame:
        """One row per method: accuracy with its interval over seeds, rounds to shares of the bound, bytes."""
        return summary(self.records)

    def plot(self) -> Figure:
        """Mean test accuracy of every method by round."""
        return accuracy_figure(self.records)

    def models(self, method: str | None = None, seed: int | None = None) -> NodeModels:
        """The models of a job's nodes, by node; method and seed may be left out where there is but one."""
        chosen = self._one("method", method), int(self._one("seed", seed))
        if self.folder is not None:
            return records.RunFolder(self.folder).models(*chosen)
        if chosen not in self._kept:
            raise RunError("this run kept no models", cure="Run it with keep_models = true.")
        return self._kept[chosen]

    def model(self, method: str | None = None, seed: int | None = None, node: int = 0, peak: bool = False) -> nn.Module:
        """One node's trained model, ready to be used: the present one, or the `peak` that a lesson kept beside it."""
        model = self.models(method, seed)[node]
        return (model.peak if peak else model).module()

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
        jobs = self.records.select("method", "seed").n_unique()
        where = "" if self.folder is None else f" in {self.folder}"
        return f"Run of {jobs} jobs{where}, {self.records['round'].max()!r} rounds"

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

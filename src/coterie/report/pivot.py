"""The results of a sweep: a table with a row and a column for each value, the same as LaTeX and CSV, and curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from coterie.report.curves import curve
from coterie.report.panels import Line, Panel, colour, draw_panels
from coterie.report.sheets import Sheet
from coterie.report.statistics import complete, last_round, mean_ci, methods, summary, tidy
from coterie.report.tables import UNKNOWN

METHOD = "method"


@dataclass(frozen=True)
class Sweep:
    """The records of every cell of a grid, with the values of what was varied, in words."""

    cells: Sequence[Mapping[str, str]]
    records: Sequence[pl.DataFrame]

    @property
    def keys(self) -> list[str]:
        """What varies from cell to cell, the methods of a cell among it if there are several."""
        varied = list(self.cells[0])
        return [*varied, METHOD] if any(len(methods(frame)) > 1 for frame in self.records) else varied

    def summary(self) -> pl.DataFrame:
        """The summary of every cell's methods, a row each, with what was varied in front."""
        rows = []
        for cell, frame in zip(self.cells, self.records, strict=True):
            found = summary(frame)
            rows.append(found.select(*(pl.lit(value).alias(key) for key, value in cell.items()), pl.all()))
        return pl.concat(rows, how="diagonal_relaxed")

    def pivot(self, metric: str = "accuracy") -> Sheet:
        """A metric at the last round, mean ± half of its 95 % interval over seeds; columns are of the last key."""
        rows, columns, values = self._values(f"test_{metric}")
        keys = self.keys
        head = [" · ".join(keys[:-1]) or keys[-1], *(columns if len(keys) > 1 else [metric])]
        if len(keys) == 1:
            body = [[name, values.get(((), name), UNKNOWN)] for name in columns]
        else:
            body = [[" · ".join(row), *(values.get((row, name), UNKNOWN) for name in columns)] for row in rows]
        across = f", {keys[-1]} across" if len(keys) > 1 else ""
        seeds = max(frame["seed"].n_unique() for frame in self.records)
        title = f"{metric.capitalize()} on the test set at the last round, {seeds} seed{'s' * (seeds > 1)}{across}"
        return Sheet(title, head, body)

    def draw(self, path: Path, metric: str = "accuracy") -> Path:
        """Small multiples: a panel for each row of the table, a line for each column."""
        panels: dict[tuple[str, ...], list[Line]] = {}
        shades: dict[str, str] = {}
        for row, column, frame in self._frames():
            found = curve(frame, "round", f"test_{metric}", frame["seed"].n_unique() > 1)
            shades.setdefault(column, colour(len(shades)))
            if len(found.x):
                panels.setdefault(row, []).append(Line(found, column, shades[column]))
        about = self.keys[:-1]
        drawn = [
            Panel(
                ", ".join(f"{key} {value}" for key, value in zip(about, row, strict=True)) or self.keys[-1],
                lines,
                y=f"{metric}, mean over nodes",
                log_x=False,
                log_y=False,
            )
            for row, lines in panels.items()
        ]
        return draw_panels(drawn, path, columns=min(3, max(2, len(drawn))), alike=True)

    def _values(self, column: str) -> tuple[list[tuple[str, ...]], list[str], dict[tuple[tuple[str, ...], str], str]]:
        values = {}
        for row, name, frame in self._frames():
            ends = last_round(complete(tidy(frame)))
            if column in ends.columns:
                seeds = ends.group_by("seed", maintain_order=True).agg(pl.col(column).mean())
                mean, half = mean_ci(seeds[column])
                interval = "" if half != half else f" ± {half:.3f}"
                values[row, name] = UNKNOWN if mean != mean else f"{mean:.3f}{interval}"
        rows = list(dict.fromkeys(row for row, _, _ in self._frames()))
        return rows, list(dict.fromkeys(name for _, name, _ in self._frames())), values

    def _frames(self) -> list[tuple[tuple[str, ...], str, pl.DataFrame]]:
        """Every row's and column's name, with the records of one method that belong there."""
        found = []
        for cell, frame in zip(self.cells, self.records, strict=True):
            for method in methods(frame):
                names = list(({**cell, METHOD: method} if METHOD in self.keys else cell).values())
                found.append((tuple(names[:-1]), names[-1], frame.filter(pl.col("method") == method)))
        return found


def latex(sheet: Sheet) -> str:
    """The table in LaTeX, for `booktabs`."""
    rows = [" & ".join(map(_tex, row)) + r" \\" for row in (sheet.headings, *sheet.rows)]
    return "\n".join(
        [
            f"% {sheet.title}",
            rf"\begin{{tabular}}{{l{'r' * (len(sheet.headings) - 1)}}}",
            r"\toprule",
            rows[0],
            r"\midrule",
            *rows[1:],
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _tex(text: str) -> str:
    for special in "&%$#_{}":
        text = text.replace(special, rf"\{special}")
    return text.replace("±", r"$\pm$").replace("·", r"$\cdot$").replace("—", "---")

"""Figures of several panels with any lines in each, of which studies make theirs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from coterie.report.curves import AXES, FAINT, LOOK, PALETTE, Curve, X, curve, save, ticks_to

SOLID, DASHED = "-", (0, (4, 2))


@dataclass(frozen=True)
class Line:
    """A curve with its band, colour and style; one with an empty label is left out of the legend."""

    curve: Curve
    label: str
    colour: str
    style: Any = SOLID


@dataclass(frozen=True)
class Panel:
    """One pair of axes: title, lines, labels and scales."""

    title: str
    lines: Sequence[Line]
    x: str = AXES["round"]
    y: str = "test loss, mean over nodes"
    log_x: bool = True
    log_y: bool = True
    levels: Sequence[tuple[float, str, str]] = field(default_factory=list)
    """Horizontal lines: height, label, colour."""


def colour(place: int) -> str:
    """The colour of the n-th of things that have no order."""
    return PALETTE[place % len(PALETTE)]


def shade(place: int, count: int) -> str:
    """The colour of the n-th of things that have an order, from light to dark."""
    return mpl.colors.to_hex(mpl.colormaps["viridis_r"](0.12 + 0.83 * place / max(count - 1, 1)))


def line(
    records: pl.DataFrame,
    label: str,
    colour: str,
    style: Any = SOLID,
    x: X = "round",
    column: str = "test_loss",
    stretch: float = 1.0,
) -> Line:
    """The mean over nodes and seeds of a column; `stretch` divides the x axis, so that curves may collapse."""
    found = curve(records, x, column, records["seed"].n_unique() > 1)
    return Line(found._replace(x=found.x / stretch), label, colour, style)


def draw_panels(panels: Sequence[Panel], path: Path, columns: int = 2, alike: bool = False) -> Path:
    """Draw panels side by side, each with a legend of its own; those that are `alike` have the same y axis."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(5.6 * columns, 3.9 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place < len(panels):
                _draw(axes, panels[place])
            else:
                axes.set_visible(False)
        if alike:
            edges = [axes.get_ylim() for axes in grid.flat[: len(panels)]]
            for axes in grid.flat:
                axes.set_ylim(min(low for low, _ in edges), max(high for _, high in edges))
        return save(figure, path)


def _draw(axes: Axes, panel: Panel) -> None:
    for one in panel.lines:
        # a logarithmic axis has no place for the start, nor for an interval that reaches 0
        keep = (one.curve.x > 0) | (not panel.log_x)
        x, mean, low, high, seeds = one.curve.at(keep & ((one.curve.mean > 0) | (not panel.log_y)))
        low = np.where((low > 0) | (not panel.log_y), low, mean)
        axes.fill_between(x, low, high, color=one.colour, alpha=0.15, linewidth=0)
        for each in seeds:
            axes.plot(x, each, color=one.colour, alpha=0.45, linewidth=0.6)
        axes.plot(x, mean, color=one.colour, linestyle=one.style, linewidth=1.6, label=one.label or "_")
    for height, label, tone in panel.levels:
        axes.axhline(height, color=tone, linestyle=DASHED, linewidth=1.0, label=label or "_")
    if panel.log_x:
        axes.set_xscale("log")
        _few_ticks(axes.xaxis)
    elif panel.x == AXES["round"] and (ends := [one.curve.x[-1] for one in panel.lines if len(one.curve.x)]):
        ticks_to(axes, float(max(ends)))
    if panel.log_y:
        axes.set_yscale("log")
        _few_ticks(axes.yaxis)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
    _limit(axes, panel)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.grid(color=FAINT, linewidth=0.6)
    if labels := axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8.5, ncols=1 if len(labels) <= 6 else 2)


def _few_ticks(axis: Axis) -> None:
    """Label 1, 2 and 5 of each decade and nothing between: less than a decade has labels too, and none overlap."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=7))
    axis.set_minor_formatter(NullFormatter())


def _limit(axes: Axes, panel: Panel) -> None:
    """Set the range of the y axis by the lines: the interval of two seeds can be wider than all the curves."""
    drawn = [one.curve.at((one.curve.x > 0) | (not panel.log_x)) for one in panel.lines]
    heights = [values for one in drawn for values in (one.mean, *one.seeds)]
    shown = np.concatenate([*heights, [height for height, *_ in panel.levels]])
    shown = shown[np.isfinite(shown) & ((shown > 0) | (not panel.log_y))]
    if not shown.size or shown.min() == shown.max():
        return
    low, high = float(shown.min()), float(shown.max())
    margin = (high / low) ** 0.06 if panel.log_y else 0.06 * (high - low)
    axes.set_ylim((low / margin, high * margin) if panel.log_y else (low - margin, high + margin))

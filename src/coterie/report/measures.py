"""Figures from measures: the spread of parameters, the steps of training and aggregation, and what rules tell.

Each method has a panel of its own. Rounds are drawn logarithmically, with room for round 0.
"""

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter

from coterie.errors import RunError
from coterie.node.measures import CONFUSION, EPOCHS, SPREADS, STEPS
from coterie.report.curves import FAINT, INK, LOOK, PALETTE, STILL, _label, save
from coterie.report.statistics import complete, mean_ci, methods

ACROSS = 3
"""The number of panels in a row."""
SHOWN = len(PALETTE)
"""The most tensors, or nodes, that have a colour each: more cannot be told apart."""
NAMES = {"train_step": "training", "merge_step": "aggregation", "total_step": "both together"}


def draw_spread(measures: pl.DataFrame, path: Path) -> Path:
    """Draw σ_ap of each tensor by round, mean over nodes, and σ_an dashed; the whole model is black.

    Of a model with many tensors a few are drawn, weights before biases.
    """
    chosen = _of(measures, SPREADS)
    with mpl.rc_context(LOOK):
        figure, panels = _panels(methods(chosen), height=3.6)
        most = 0
        for method, (axes,) in panels.items():
            mine = chosen.filter(pl.col("method") == method)
            layers, most = _layers(mine), max(most, mine["layer"].n_unique() - 1)
            for layer, colour in [*zip(layers, PALETTE, strict=False), (None, INK)]:
                for measure, style in (("sigma_ap", "-"), ("sigma_an", (0, (4, 2)))):
                    here = (pl.col("measure") == measure) & pl.col("layer").eq_missing(layer)
                    rounds, means = _means(mine.filter(here))
                    label = "whole model" if layer is None else _label(layer)
                    _line(axes, rounds, means, colour, style, label if measure == "sigma_ap" else "")
            _logarithmic(axes)
            _legend(axes, last=method == list(panels)[-1])
        some = f"; {SHOWN} of {most} tensors" if most > SHOWN else ""
        _finish(panels, chosen["round"], "standard deviation")
        _entitle(
            figure, "Spread of parameters", f"Solid: σ_ap, over a node's parameters; dashed: σ_an, over nodes{some}"
        )
        return save(figure, path)


def draw_steps(measures: pl.DataFrame, path: Path) -> Path:
    """Draw how far training and aggregation move a node in a round, mean over nodes, and the cosine between them."""
    chosen = _of(measures, STEPS).filter(pl.col("layer").is_null())
    with mpl.rc_context(LOOK):
        figure, panels = _panels(methods(chosen), height=2.6, below=1.4)
        for method, (norms, cosine) in panels.items():
            mine = chosen.filter(pl.col("method") == method)
            for measure, colour in zip(STEPS[:3], PALETTE, strict=False):
                rounds, means = _means(mine.filter(pl.col("measure") == measure))
                _line(norms, rounds, means, colour, "-" if measure != "total_step" else (0, (4, 2)), NAMES[measure])
            rounds, means = _means(mine.filter(pl.col("measure") == STEPS[3]))
            _line(cosine, rounds, means, PALETTE[3], "-", "cosine")
            cosine.axhline(0, color="#888888", linewidth=0.8, linestyle=STILL)
            cosine.set_ylim(-1.05, 1.05)
            _logarithmic(norms)
            _legend(norms, last=method == list(panels)[-1])
        _finish(panels, chosen["round"], "norm of the change", "cosine")
        note = "Norm of the change in a round, mean over nodes; below: the cosine between training and aggregation"
        _entitle(figure, "Steps in a round", note)
        return save(figure, path)


def draw_told(measures: pl.DataFrame, path: Path, names: tuple[str, ...] = ()) -> Path:
    """Draw what rules tell of themselves (all, or what is named), a line for each node of the first seed."""
    told = measures.filter(~pl.col("measure").is_in([*SPREADS, *STEPS, *EPOCHS, CONFUSION]))
    chosen = _of(told, names or tuple(told["measure"].unique(maintain_order=True)))
    with mpl.rc_context(LOOK):
        keys = chosen.select("method", "measure").unique(maintain_order=True).rows()
        figure, panels = _panels([f"{measure}, {method}" for method, measure in keys], height=3.0, alike=False)
        for (method, measure), (axes,) in zip(keys, panels.values(), strict=True):
            mine = chosen.filter(pl.col("method") == method, pl.col("measure") == measure)
            mine = mine.filter(pl.col("seed") == pl.col("seed").first())
            _nodes(axes, mine)
            low, high = mine["value"].min(), mine["value"].max()
            if isinstance(low, float) and isinstance(high, float) and low > 0 and high > 100 * low:
                axes.set_yscale("log")
        _finish(panels, chosen["round"], "")
        many = chosen["node"].n_unique() > SHOWN
        _entitle(figure, "What the rule tells", "A line per node, first seed" + "; black: the median" * many)
        return save(figure, path)


def draw_epochs(measures: pl.DataFrame, path: Path) -> Path:
    """Draw the validation loss of each node's model after each epoch, a line for each turn, of the first seed."""
    chosen = _of(measures, EPOCHS)
    with mpl.rc_context(LOOK):
        figure, panels = _panels(methods(chosen), height=3.0)
        for method, (axes,) in panels.items():
            mine = chosen.filter(pl.col("method") == method)
            mine = mine.filter(pl.col("seed") == pl.col("seed").first())
            nodes = mine["node"].unique().sort().to_list()
            few = len(nodes) <= SHOWN
            for (_, node), turn in mine.sort("round", "node", "epoch").group_by("round", "node", maintain_order=True):
                colour = PALETTE[nodes.index(node)] if few else PALETTE[5]
                label = f"node {node}" if few and turn["round"][0] == mine["round"].to_numpy().min() else ""
                _line(axes, turn["epoch"].to_list(), turn["value"].to_list(), colour, "-", label, 1.2)
            axes.grid(color=FAINT, linewidth=0.7)
            axes.set_xlabel("epochs of the model")
            if few:
                _legend(axes, last=method == list(panels)[-1])
        next(iter(panels.values()))[0].set_ylabel("validation loss")
        _entitle(figure, "Loss by epoch", "Validation loss, as training minimises it; first seed")
        return save(figure, path)


def plot_measures(measures: pl.DataFrame, folder: Path) -> list[Path]:
    """Write parameter_spread.png, steps.png, told.png and epochs.png, leaving out those with nothing to draw."""
    figures: dict[str, Callable[[pl.DataFrame, Path], Path]] = {
        "parameter_spread": draw_spread,
        "steps": draw_steps,
        "told": draw_told,
        "epochs": draw_epochs,
    }
    written = []
    for name, draw in figures.items():
        with contextlib.suppress(RunError):
            written.append(draw(measures, Path(folder) / f"{name}.png"))
    return written


def _of(measures: pl.DataFrame, names: tuple[str, ...]) -> pl.DataFrame:
    """The rows of these measures, of seeds that reached the last round."""
    found = measures.filter(pl.col("measure").is_in(list(names)))
    if found.is_empty():
        raise RunError("there is nothing to draw: no such measures", expected=", ".join(names) or "some")
    return complete(found)


def _layers(mine: pl.DataFrame) -> list[str]:
    """The tensors to draw: all, or as many as can be told apart, evenly chosen and weights before biases."""
    every = mine["layer"].drop_nulls().unique(maintain_order=True).to_list()
    weights = [name for name in every if name.endswith("weight")]
    wanted = every if len(every) <= SHOWN else weights or every
    if len(wanted) <= SHOWN:
        return wanted
    return [wanted[i] for i in np.linspace(0, len(wanted) - 1, SHOWN).round().astype(int)]


def _means(values: pl.DataFrame) -> tuple[list[int], list[float]]:
    """The evaluated rounds, and the mean of each over nodes and then over seeds."""
    seeds = values.group_by("seed", "round", maintain_order=True).agg(pl.col("value").mean()).sort("round")
    means = {int(n): mean_ci(mine["value"])[0] for (n,), mine in seeds.group_by("round", maintain_order=True)}
    return list(means), list(means.values())


def _nodes(axes: Axes, mine: pl.DataFrame) -> None:
    few = mine["node"].n_unique() <= SHOWN
    for place, ((node,), line) in enumerate(mine.group_by("node", maintain_order=True)):
        colour, width = (PALETTE[place], 1.6) if few else (PALETTE[5], 0.8)
        _line(axes, line["round"].to_list(), line["value"].to_list(), colour, "-", f"node {node}" if few else "", width)
    if few:
        _legend(axes, last=True)
    else:
        median = mine.group_by("round", maintain_order=True).agg(pl.col("value").median()).sort("round")
        _line(axes, median["round"].to_list(), median["value"].to_list(), INK, "-", "", 2.0)


def _line(
    axes: Axes, rounds: list[int], values: list[float], colour: str, style: Any, label: str, width: float = 1.6
) -> None:
    axes.plot(rounds, values, color=colour, linestyle=style, linewidth=width, label=label or None)


def _panels(
    names: list[str], height: float, below: float = 0.0, alike: bool = True
) -> tuple[Figure, dict[str, list[Axes]]]:
    """Axes for each name in a grid, `ACROSS` in a row; with `below`, each has second axes of this height beneath it.

    Panels of a row share the y axis if they are `alike`.
    """
    columns, parts = min(len(names), ACROSS), [height, below] if below else [height]
    lines = math.ceil(len(names) / columns)
    width = 4.8 if columns == 1 else 3.4 * columns
    figure = Figure(figsize=(width + 1.6, lines * (sum(parts) + 0.7) + 0.5), layout="constrained")
    shared: Any = {"sharex": "col", "sharey": "row" if alike else False}
    grid = figure.subplots(lines * len(parts), columns, squeeze=False, height_ratios=parts * lines, **shared)
    found = {}
    for place in range(lines * columns):
        line, column = divmod(place, columns)
        axes = [grid[line * len(parts) + part, column] for part in range(len(parts))]
        if place < len(names):
            found[names[place]] = axes
            axes[0].set_title(_label(names[place]), fontsize=10)
        else:
            for each in axes:
                each.remove()
    return figure, found


def _finish(panels: dict[str, list[Axes]], rounds: pl.Series, *ylabels: str) -> None:
    """Label the axes: y at the left of each row, x at the bottom of each column."""
    for place, axes in enumerate(panels.values()):
        for each, text in zip(axes, ylabels, strict=True):
            each.grid(color=FAINT, linewidth=0.7)
            _rounds(each, *rounds.unique().sort().gather([0, -1]).to_list())
            if place % ACROSS == 0:
                each.set_ylabel(text)
        if place + ACROSS >= len(panels):
            axes[-1].set_xlabel("communication round")
            axes[-1].tick_params(labelbottom=True)


def _rounds(axes: Axes, first: int, last: int) -> None:
    """Make the axis of rounds logarithmic, with a place for round 0; linear up to 12 rounds."""
    if last > 12:
        axes.set_xscale("symlog", linthresh=1, linscale=0.5)
        axes.xaxis.set_major_locator(FixedLocator([0, *(10**k for k in range(int(math.log10(last)) + 1))]))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    if last > first:
        axes.set_xlim(first, last)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))


def _logarithmic(axes: Axes) -> None:
    """Make the y axis logarithmic if any value is above zero."""
    if any(np.any(np.asarray(line.get_ydata()) > 0) for line in axes.lines):
        axes.set_yscale("log", nonpositive="mask")


def _legend(axes: Axes, last: bool) -> None:
    if last:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8.5)


def _entitle(figure: Figure, title: str, note: str) -> None:
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.text(0.01, -0.01, note, ha="left", va="top", fontsize=8.5, color="#666666")

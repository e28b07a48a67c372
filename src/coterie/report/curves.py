"""Figures from records: learning curves and the spread over nodes.

The file's ending chooses the format (png, pdf, svg). Figures are built without pyplot, so drawing neither opens a
window nor leaves state behind.
"""

import contextlib
import functools
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from coterie.errors import RunError
from coterie.parts import unknown
from coterie.report.statistics import REFERENCE, complete, further, last_round, mean_ci, methods, per_seed, tidy

X = Literal["round", "sent_bytes", "batches"]
Values = NDArray[np.float64]
AXES = {"round": "communication round", "sent_bytes": "sent per node", "batches": "mini-batches computed per node"}
TITLES = {"round": "round", "sent_bytes": "bytes sent", "batches": "work done"}


class LineLook(NamedTuple):
    """The colour and line style of a method."""

    colour: str
    style: Any


# Okabe and Ito's colours, which the colour-blind can tell apart, less the yellow, which nobody sees on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLES: tuple[Any, ...] = ("-", (0, (6, 1, 1, 1)), (0, (3, 1)))
STILL: Any = (0, (1, 1.5))
INK, FAINT, BOUND = "#222222", "#DDDDDD", LineLook("#444444", (0, (6, 4)))
LOOK: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "legend.frameon": False,
    "savefig.dpi": 150,
    "savefig.bbox": "tight",
    "savefig.facecolor": "white",
    "svg.fonttype": "none",
}


FEW = 4
"""With fewer seeds an interval says less than the seeds themselves, which are drawn instead."""


class Curve(NamedTuple):
    """The curve of one method: x values, means, and the lower and upper edge of the band (NaN where there is none)."""

    x: Values
    mean: Values
    low: Values
    high: Values
    seeds: tuple[Values, ...] = ()
    """Where there are few, the values of each seed at x."""

    def at(self, keep: NDArray[np.bool_]) -> "Curve":
        """The curve at some of its places."""
        x, mean, low, high = (a[keep] for a in self[:4])
        return Curve(x, mean, low, high, tuple(each[keep] for each in self.seeds))

    @classmethod
    def bare(cls, x: Values, mean: Values) -> "Curve":
        """A curve without a band."""
        none = np.full(len(mean), np.nan)
        return cls(x, mean, none, none)


def accuracy_figure(
    records: pl.DataFrame,
    x: X = "round",
    column: str = "test_accuracy",
    log_x: bool = False,
    reference: str = REFERENCE,
) -> Figure:
    """The mean over nodes of a column against rounds, bytes or batches, one line per method.

    The band is the 95 % confidence interval over seeds (of the logarithm, for a loss) or, where every method has one
    seed, the middle 80 % of nodes. Of two or three seeds each is a thin line instead.
    The reference method is a dashed line at its last value; a method that never moves along x (it sends nothing) is a
    dotted one.
    """
    if x not in AXES:
        raise unknown("axis", x, AXES)
    records = complete(tidy(records))
    looks, seeds = _looks(records, reference), _seeds(records)
    curves = {m: curve(records.filter(pl.col("method") == m), x, column, seeds > 1) for m in looks}
    curves = {m: found for m, found in curves.items() if len(found.x)}
    if not curves:
        raise RunError(f"there is nothing to draw: {column!r} against {x!r} holds no numbers")
    with mpl.rc_context(LOOK):
        legend_lines = sum(_label(m).count("\n") + 1.4 for m in curves)
        figure = Figure(figsize=(7.2, max(4.2, 0.6 + 0.2 * legend_lines)))
        axes = figure.subplots()
        for method, found in curves.items():
            _draw(axes, found, looks[method], _label(method), log_x)
        if log_x:
            axes.set_xscale("log")
        elif x == "round":
            ticks_to(axes, max(float(c.x[-1]) for c in curves.values()))
        else:
            axes.xaxis.set_major_locator(MaxNLocator("auto"))
        axes.xaxis.set_major_formatter(EngFormatter("B") if x == "sent_bytes" else StrMethodFormatter("{x:,.6g}"))
        _limit_y(axes, list(curves.values()), column)
        name = column.replace("_", " ")
        _entitle(axes, f"{name.capitalize()} by {TITLES[x]}", _band_note(seeds, column))
        axes.set_xlabel(AXES[x])
        axes.set_ylabel(f"{name}, mean over nodes")
        axes.grid(axis="y", color=FAINT, linewidth=0.7)
        _legend(axes, {_label(m): float(c.mean[-1]) for m, c in curves.items()}, best_low="accuracy" not in column)
        return figure


def plot_accuracy(
    records: pl.DataFrame,
    path: Path,
    x: X = "round",
    column: str = "test_accuracy",
    log_x: bool = False,
    reference: str = REFERENCE,
) -> Path:
    """Draw `accuracy_figure` to a file."""
    figure = accuracy_figure(records, x, column, log_x, reference)
    with mpl.rc_context(LOOK):
        return save(figure, path)


def plot_spread(records: pl.DataFrame, path: Path, reference: str = REFERENCE) -> Path:
    """Draw the accuracy of every node at the last round: a box per method over its nodes, the best median on top."""
    records = complete(tidy(records))
    looks = _looks(records, reference)
    ends = last_round(records).drop_nulls("test_accuracy")
    values = {m: ends.filter(pl.col("method") == m)["test_accuracy"].to_numpy() for m in methods(ends)}
    if not values:
        raise RunError("there is nothing to draw: no node has a test accuracy at the last round")
    boxes = sorted((m for m in values if looks[m] != BOUND), key=lambda m: float(np.median(values[m])))
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(7.2, 1.2 + 0.5 * len(values)))
        axes = figure.subplots()
        for place, method in enumerate(boxes):
            _box(axes, values[method], place, looks[method].colour)
        for method in set(values) - set(boxes):
            line = axes.axvline(float(values[method].mean()), color=BOUND.colour, linestyle=BOUND.style, linewidth=1.2)
            axes.legend([line], [_label(method)], loc="upper left", bbox_to_anchor=(1.0, 1.0))
        axes.set_yticks(range(len(boxes)), [_label(m) for m in boxes], color=INK)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_ylim(-0.6, len(boxes) - 0.4)
        pooled = f", {_seeds(records)} seeds pooled" if _seeds(records) > 1 else ""
        _entitle(axes, "Test accuracy of every node", f"Last round{pooled}; box: the middle half of nodes")
        axes.set_xlabel("test accuracy")
        axes.grid(axis="x", color=FAINT, linewidth=0.7)
        return save(figure, path)


def plot_nodes(records: pl.DataFrame, path: Path, column: str = "test_accuracy", reference: str = REFERENCE) -> Path:
    """Draw every node of the first seed as a faint line, and the mean over them, one colour per method."""
    records = tidy(records)
    records = records.filter(pl.col("seed") == pl.col("seed").min())
    looks = _looks(records, reference)
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(7.2, 4.2))
        axes = figure.subplots()
        for method, look in looks.items():
            mine = records.filter(pl.col("method") == method)
            for node in mine.partition_by("node") if look != BOUND else ():
                axes.plot(node["round"], node[column], color=look.colour, alpha=0.25, linewidth=0.6)
            found = curve(mine, "round", column, over_seeds=False)
            style: Any = {"color": look.colour, "linestyle": look.style, "linewidth": 2.0}
            axes.plot(found.x, found.mean, label=_label(method), **style)
        name = column.replace("_", " ")
        _entitle(axes, f"{name.capitalize()} of every node", "Thin: a node; thick: the mean over nodes; one seed")
        axes.set_xlabel(AXES["round"])
        axes.set_ylabel(name)
        axes.grid(axis="y", color=FAINT, linewidth=0.7)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return save(figure, path)


def plot_all(records: pl.DataFrame, folder: Path, reference: str = REFERENCE) -> list[Path]:
    """Write accuracy.png, loss.png, accuracy_by_bytes.png and spread.png, leaving out those with nothing to draw.

    Each further metric on the test set has a figure of its name, such as test_perplexity.png.
    """
    sends = complete(tidy(records))["sent_bytes"].sum() > 0
    figures: dict[str, Callable[[Path], Path]] = {
        "accuracy": lambda path: plot_accuracy(records, path, reference=reference),
        "loss": lambda path: plot_accuracy(records, path, column="test_loss", reference=reference),
        "accuracy_by_bytes": lambda path: plot_accuracy(records, path, x="sent_bytes", reference=reference),
        "spread": lambda path: plot_spread(records, path, reference),
    }
    for metric in further(records.columns):
        figures[metric] = functools.partial(plot_accuracy, records, column=metric, reference=reference)
    written = []
    for name, draw in figures.items():
        if sends or name != "accuracy_by_bytes":
            with contextlib.suppress(RunError):
                written.append(draw(Path(folder) / f"{name}.png"))
    return written


def curve(mine: pl.DataFrame, x: str, column: str, over_seeds: bool) -> Curve:
    """The mean of a column over the nodes and seeds of one method, where both axes have a finite value."""
    points, found = [], per_seed(mine, column)
    few = found["seed"].n_unique() < FEW
    for (number,), values in found.group_by("round", maintain_order=True):
        mean, _ = mean_ci(values["value"])
        nodes = mine.filter(pl.col("round") == number)[column]
        low, high = _middle(nodes) if not over_seeds else (np.nan, np.nan) if few else interval(values["value"], column)
        points.append((number, mean, low, high))
    table = pl.DataFrame(points, schema=["round", "mean", "low", "high"], orient="row")
    if x == "round":
        table = table.with_columns(x=pl.col("round"))
    else:
        table = table.join(per_seed(mine, x).group_by("round").agg(x=pl.col("value").mean()), on="round")
    table = table.drop_nulls("x").filter(pl.col("mean").is_finite()).sort("round")
    seeds = (
        tuple(
            _floats(table.join(own, on="round", how="left", maintain_order="left")["value"])
            for own in (
                found.filter(pl.col("seed") == seed).select("round", "value") for seed in found["seed"].unique().sort()
            )
        )
        if over_seeds and few
        else ()
    )
    x_values, mean_values, lows, highs = (_floats(table[c]) for c in ("x", "mean", "low", "high"))
    return Curve(x_values, mean_values, lows, highs, seeds)


def _floats(values: pl.Series) -> Values:
    return values.cast(pl.Float64).fill_null(np.nan).to_numpy()


def interval(values: pl.Series, column: str) -> tuple[float, float]:
    """The edges of the 95 % confidence interval over seeds; of a loss it is that of its logarithm, about its mean.

    A loss is positive and can be a hundred times another: an interval of the loss itself would reach below 0.
    """
    mean, half = mean_ci(values)
    if "loss" not in column or not (values.drop_nulls() > 0).all():
        return mean - half, mean + half
    factor = float(np.exp(mean_ci(values.log())[1]))
    return mean / factor, mean * factor


def ticks_to(axes: Axes, last: float) -> None:
    """Ticks at whole rounds, the last one among them."""
    every = MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]).tick_values(0, last)
    axes.set_xticks([t for t in every if 0 <= t <= 0.93 * last] + [last])


def _middle(values: pl.Series) -> tuple[float, float]:
    known = values.drop_nulls().to_numpy()
    return (float(np.quantile(known, 0.1)), float(np.quantile(known, 0.9))) if len(known) > 1 else (np.nan, np.nan)


def _looks(records: pl.DataFrame, reference: str) -> dict[str, LineLook]:
    """The colour and style of each method, by its place in the records, so that they are the same in every figure.

    The reference method is a bound for the others; alone, it is a method like any.
    """
    names = methods(records)
    bound = {reference: BOUND} if reference in names and len(names) > 1 else {}
    others = [m for m in names if m not in bound]
    n = len(PALETTE)
    return {m: LineLook(PALETTE[i % n], STYLES[i // n % len(STYLES)]) for i, m in enumerate(others)} | bound


def _draw(axes: Axes, curve: Curve, look: LineLook, label: str, log_x: bool) -> None:
    if look == BOUND:
        axes.axhline(curve.mean[-1], color=look.colour, linestyle=look.style, linewidth=1.2, label=label)
    elif curve.x[0] == curve.x[-1] and len(curve.x) > 1:
        axes.axhline(curve.mean[-1], color=look.colour, linestyle=STILL, linewidth=1.5, label=label)
    else:
        # A logarithmic axis has no place for the start.
        x, mean, low, high, seeds = curve.at(curve.x > 0) if log_x else curve
        for each in seeds:
            axes.plot(x, each, color=look.colour, alpha=0.45, linewidth=0.7)
        axes.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)
        marks = "o" if len(x) < 30 else ""
        line = axes.plot(x, mean, color=look.colour, linestyle=look.style, linewidth=1.8, marker=marks, label=label)
        line[0].set_markersize(3)


def _limit_y(axes: Axes, curves: list[Curve], column: str) -> None:
    """Set the range of the y axis by the lines: the interval of two seeds can be wider than all the curves."""
    shown = np.concatenate([values for c in curves for values in (c.mean, *c.seeds)])
    low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 0.05
    if low > 0 and high > 100 * low and "accuracy" not in column:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.3, high * 1.3)
    else:
        axes.set_ylim(low - margin, min(high + margin, 1.005) if "accuracy" in column else high + margin)


def _legend(axes: Axes, last: dict[str, float], best_low: bool) -> None:
    """Put a legend beside the axes, the best method first: mostly the order in which the lines end."""
    lines = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    order = sorted(last, key=lambda label: last[label], reverse=not best_low)
    axes.legend([lines[m] for m in order], order, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _box(axes: Axes, values: Values, place: int, colour: str) -> None:
    # Nodes are spread over the height of the box by the golden ratio: even, and the same each time.
    height = (np.arange(len(values)) * 0.618034 % 1 - 0.5) * 0.4
    axes.scatter(values, place + height, s=6, color=colour, alpha=0.35, linewidth=0)
    axes.boxplot(
        [values],
        positions=[place],
        orientation="horizontal",
        widths=0.5,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": (colour, 0.15), "edgecolor": colour},
        whiskerprops={"color": colour},
        capprops={"color": colour},
        medianprops={"color": colour, "linewidth": 2.2},
    )


def _seeds(records: pl.DataFrame) -> int:
    """The greatest number of seeds that a method has."""
    return max(records.filter(pl.col("method") == m)["seed"].n_unique() for m in methods(records))


def _band_note(seeds: int, column: str) -> str:
    if seeds == 1:
        return "One seed; band: the middle 80 % of nodes"
    if seeds < FEW:
        return f"Thin: each of {seeds} seeds; thick: their mean"
    return f"Band: 95 % confidence interval{' of the logarithm' * ('loss' in column)} over {seeds} seeds"


def _entitle(axes: Axes, title: str, note: str) -> None:
    axes.set_title(title, pad=22)
    axes.annotate(note, (0, 1), (0, 7), "axes fraction", textcoords="offset points", fontsize=8.5, color="#666666")


def _label(method: str) -> str:
    """A method's name for matplotlib: `$` and a leading `_` mean nothing, and long names are wrapped."""
    text = textwrap.fill(method, 26).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def save(figure: Figure, path: str | Path) -> Path:
    """Save a figure to a file, in a folder that is made if there is none."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path

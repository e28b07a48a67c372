"""The bubble chart of a data allocation: which node holds how many samples of which class."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

POINTS = 72.0  # per inch
COLOUR = "#2b6cb0"


def draw_allocation(counts: ArrayLike, path: str | Path, title: str = "") -> None:
    """Draw counts [nodes, classes] as circles, nodes along x and classes along y, area proportional to the samples."""
    table = np.asarray(counts, np.float64)
    nodes, classes = table.shape
    across = float(np.clip(0.22 * nodes, 3.5, 14.0))
    up = float(np.clip(0.28 * classes, 1.8, 12.0))
    figure = Figure(figsize=(across + 1.7, up + (1.2 if title else 0.9)), layout="constrained")
    axes = figure.add_subplot()
    # The largest circle is a little wider than its cell: more contrast among the small ones, still no confusion.
    widest = 1.3 * POINTS * min(across / nodes, up / classes)
    scale = min(widest, 28.0) ** 2 / max(table.max(), 1.0)
    node, label = np.nonzero(table)
    style: dict[str, Any] = {"color": COLOUR, "alpha": 0.75, "linewidths": 0}
    axes.scatter(node, label, s=scale * table[node, label], **style)
    axes.set(xlabel="node", ylabel="class", xlim=(-0.8, nodes - 0.2), ylim=(-0.8, classes - 0.2), title=title)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=30, integer=True, min_n_ticks=1))
    axes.grid(color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for size in _round_sizes(table):
        axes.scatter([], [], s=scale * size, label=f"{size:,}", **style)
    axes.legend(title="samples", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, labelspacing=1.1)
    figure.savefig(path, dpi=150)


def _round_sizes(table: NDArray[np.float64]) -> list[int]:
    """Up to four round numbers within the range of the counts, a factor of about four apart, for the legend."""
    most = max(int(table.max()), 1)
    rounds = [r * 10**e for e in range(len(str(most))) for r in (1, 2, 5) if r * 10**e <= most]
    return sorted(rounds[::-2][:4])

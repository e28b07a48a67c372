"""A network described in numbers, and drawn."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from coterie.network.faults import Floats
from coterie.network.graph import Graph
from coterie.network.rewiring import assortativity

if TYPE_CHECKING:  # who asks for numbers alone need not wait for it
    from matplotlib.axes import Axes

_ARROWS = 3000  # more arrow heads than this hide what they point at
_NUMBERED = 50  # more numbers than this cannot be read


def describe(graph: Graph, sizes: ArrayLike | None = None, own: ArrayLike = 1.0) -> dict[str, object]:
    """Degrees, connectivity, spectral gap, mixing time and gain of a network.

    `sizes` are the nodes' numbers of samples, `own` the weights of their own models beside those of the links.
    """
    degree = graph.degree
    mixed = math.nan if graph.directed else assortativity(graph)
    return {
        "nodes": graph.nodes,
        "arcs" if graph.directed else "links": graph.edges,
        "least degree": int(degree.min()),
        "mean degree": float(degree.mean()),
        "greatest degree": int(degree.max()),
        **({} if math.isnan(mixed) else {"assortativity": mixed}),
        "connected": graph.is_connected(),
        "diameter": graph.diameter(),
        "spectral gap": graph.spectral_gap(own),
        "mixing time (rounds)": graph.mixing_time(own),
        "gain": graph.gain(sizes, own=own),
    }


def draw_graph(graph: Graph, path: str | Path, own: ArrayLike = 1.0) -> None:
    """Draw the network to a file (PNG, PDF or SVG by its suffix), nodes coloured and sized by degree."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    place = _layout(graph)
    figure = Figure(figsize=(8, 7), layout="constrained")
    axes = figure.add_subplot()
    _frame(axes, place)
    _draw_links(graph, place, axes)
    degree = graph.degree
    low, high = int(degree.min()), int(degree.max())
    numbered = graph.nodes <= _NUMBERED
    area = np.clip(6000 / graph.nodes, 12, 150) * (0.6 + 1.8 * (degree - low) / max(1, high - low))
    area = np.maximum(area, 150) if numbered else area  # a number stands in each
    colours: dict[str, Any] = {
        "cmap": "viridis",
        "vmin": low - 0.5,
        "vmax": high + 0.5,
        "edgecolors": "white",
        "linewidths": 0.5,
    }
    order = np.argsort(degree, kind="stable")  # hubs last, on top
    dots = axes.scatter(place[order, 0], place[order, 1], s=area[order], c=degree[order], zorder=2, **colours)
    for node in range(graph.nodes if numbered else 0):
        light = degree[node] > low + 0.6 * max(1, high - low)  # the colours go from dark to light
        colour: Any = {"color": "black" if light else "white", "fontsize": 6.5, "zorder": 3}
        axes.annotate(f"{node}", (place[node, 0], place[node, 1]), ha="center", va="center", **colour)
    bar = figure.colorbar(dots, ax=axes, shrink=0.7, label="degree (how many a node hears)")
    bar.set_ticks(range(low, high + 1) if high - low < 10 else MaxNLocator(8, integer=True))
    axes.set_xlabel(_caption(graph, own), labelpad=10)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _layout(graph: Graph) -> Floats:
    """The positions of the nodes, [n, 2]: the same for the same graph."""
    if graph.nodes == 1:
        return np.zeros((1, 2))
    shape = graph.to_networkx().to_undirected()
    if graph.nodes <= 150 and nx.is_connected(shape):
        place = nx.kamada_kawai_layout(shape, weight=None)
    else:
        # a large drawing has settled as far as the eye can tell long before its forces have
        place = nx.spring_layout(shape, weight=None, seed=0, iterations=100 if graph.nodes < 500 else 30)
    return np.array([place[i] for i in range(graph.nodes)])


def _frame(axes: "Axes", place: Floats) -> None:
    """Limit the axes to a square around all nodes, without ticks or border."""
    low, high = place.min(axis=0), place.max(axis=0)
    (x, y), reach = (low + high) / 2, 0.55 * max(float((high - low).max()), 0.1)
    axes.set(xticks=[], yticks=[], xlim=(x - reach, x + reach), ylim=(y - reach, y + reach), aspect="equal")
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_links(graph: Graph, place: Floats, axes: "Axes") -> None:
    from matplotlib.collections import LineCollection

    keep = slice(None) if graph.directed else graph.sources < graph.targets
    start, end, weights = place[graph.sources[keep]], place[graph.targets[keep]], graph.weights[keep]
    if not len(start):
        return
    fade = float(np.clip(400 / len(start), 0.07, 0.55))
    if graph.directed and len(start) <= _ARROWS:
        ahead = end - start
        length = np.linalg.norm(ahead, axis=1, keepdims=True)
        ahead = ahead * np.maximum(1 - 0.04 * np.ptp(place) / np.maximum(length, 1e-9), 0.5)  # heads end before the dot
        arrows: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.002, "headwidth": 6}
        axes.quiver(*start.T, *ahead.T, color="0.3", alpha=max(fade, 0.25), zorder=1, **arrows)
    else:
        width = np.maximum(weights / weights.max(), 0.2)
        lines = list(np.stack([start, end], axis=1))
        axes.add_collection(LineCollection(lines, colors="0.3", alpha=fade, linewidths=width, zorder=1))


def _caption(graph: Graph, own: ArrayLike) -> str:
    low, high = int(graph.degree.min()), int(graph.degree.max())
    kind = ("arc" if graph.directed else "link") + "s" * (graph.edges != 1)
    degrees = f"degree {low}" if low == high else f"degree {low}–{high} (mean {graph.degree.mean():.3g})"
    first = f"{graph.nodes:,} node{'s' * (graph.nodes > 1)}, {graph.edges:,} {kind}, {degrees}"
    if not graph.is_connected():
        return f"{first}\nnot connected: {graph.components()} components"
    mixing = f"spectral gap {graph.spectral_gap(own):.3g}, mixing time {graph.mixing_time(own):.3g} rounds"
    return f"{first}\ndiameter {graph.diameter()}, {mixing}, gain {graph.gain(own=own):.4g}"

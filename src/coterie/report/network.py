"""The network in numbers and as a drawing."""

import math
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from coterie.graph import Floats, Graph

_ARROWS = 3000  # more arrow heads than this hide what they point at


def describe(graph: Graph, sizes: ArrayLike | None = None) -> dict[str, object]:
    """What is worth knowing of a network before training on it; `sizes` are the nodes' numbers of samples."""
    degree = graph.degree
    return {
        "nodes": graph.nodes,
        "arcs" if graph.directed else "links": graph.edges,
        "least degree": int(degree.min()),
        "mean degree": float(degree.mean()),
        "greatest degree": int(degree.max()),
        "connected": graph.is_connected(),
        "diameter": graph.diameter(),
        "spectral gap": graph.spectral_gap(),
        "mixing time (rounds)": graph.mixing_time(),
        "gain": graph.gain(sizes),
    }


def draw_graph(graph: Graph, path: str | Path) -> None:
    """Draws the network to a file (PNG, PDF or SVG by its suffix), nodes coloured and sized by degree."""
    place = _layout(graph)
    figure = Figure(figsize=(8, 7), layout="constrained")
    axes = figure.add_subplot()
    axes.set_aspect("equal")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    _draw_links(graph, place, axes)
    degree = graph.degree
    low, high = int(degree.min()), int(degree.max())
    area = 6000 / (graph.nodes + 15)
    dots = axes.scatter(
        place[:, 0],
        place[:, 1],
        s=area * (0.5 + 1.5 * (degree - low) / max(1, high - low)),
        c=degree,
        cmap="viridis",
        vmin=low - 0.5,
        vmax=high + 0.5,
        edgecolors="white",
        linewidths=min(0.8, 40 / graph.nodes),
        zorder=2,
    )
    bar = figure.colorbar(dots, ax=axes, shrink=0.7, label="degree (how many a node hears)")
    bar.ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(0.06)
    axes.set_xlabel(_caption(graph), labelpad=10)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _layout(graph: Graph) -> Floats:
    """Positions [n, 2], the same every time."""
    if graph.nodes == 1:
        return np.zeros((1, 2))
    shape = nx.Graph(graph.to_networkx().to_undirected())
    if graph.nodes <= 150 and nx.is_connected(shape):
        place = nx.kamada_kawai_layout(shape, weight=None)
    else:
        place = nx.spring_layout(shape, weight=None, seed=0, iterations=100)
    return np.array([place[i] for i in range(graph.nodes)])


def _draw_links(graph: Graph, place: Floats, axes: Axes) -> None:
    keep = slice(None) if graph.directed else graph.sources < graph.targets
    start, end, weights = place[graph.sources[keep]], place[graph.targets[keep]], graph.weights[keep]
    if not len(start):
        return
    fade = float(np.clip(30 / math.sqrt(len(start)), 0.08, 0.6))
    width = np.clip(weights / weights.max(), 0.2, 1.0) * min(1.0, 20 / math.sqrt(len(start)) + 0.2)
    if graph.directed and len(start) <= _ARROWS:
        ahead = end - start
        arrows: dict[str, Any] = {
            "angles": "xy",
            "scale_units": "xy",
            "scale": 1,
            "width": 0.0015,
            "headwidth": 6,
            "headlength": 8,
        }
        axes.quiver(*start.T, *(0.94 * ahead).T, color="0.35", alpha=max(fade, 0.3), zorder=1, **arrows)
    else:
        axes.add_collection(
            LineCollection(list(np.stack([start, end], axis=1)), colors="0.35", alpha=fade, linewidths=width, zorder=1)
        )


def _caption(graph: Graph) -> str:
    facts = describe(graph)
    kind = "arcs" if graph.directed else "links"
    first = f"{graph.nodes:,} node{'s' * (graph.nodes > 1)}, {graph.edges:,} {kind}, degree {facts['least degree']}–"
    first += f"{facts['greatest degree']} (mean {facts['mean degree']:.3g})"
    if not facts["connected"]:
        return f"{first}\nnot connected: {graph.components()} components"
    gap = f"spectral gap {facts['spectral gap']:.3g}, mixing time {facts['mixing time (rounds)']:.3g} rounds"
    return f"{first}\ndiameter {facts['diameter']}, {gap}, gain {facts['gain']:.4g}"

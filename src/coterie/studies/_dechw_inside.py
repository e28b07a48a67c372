"""What DecHW does inside: its curvature, its weights, and what merging takes from the spread of weights."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from coterie.config.configuration import Configuration
from coterie.config.networks import network
from coterie.report.curves import PALETTE, Curve
from coterie.report.panels import DASHED, SOLID, Line, Panel, colour, draw_panels
from coterie.runs.exhibits import Exhibit, Results, Shown
from coterie.studies._contenders import named


def style(place: int) -> Any:
    """The line style of the n-th method: dashed once the colours are used up."""
    return SOLID if place < len(PALETTE) else DASHED


def _looked_into(
    runs: Mapping[str, Configuration], names: Mapping[str, Any], measures: tuple[str, ...]
) -> dict[str, Configuration]:
    """The first of these runs with its first seed and some methods, and diagnostics."""
    run, experiment = next(iter(runs.items()))
    update = {"methods": named(names), "measures": measures, "seeds": experiment.seeds[:1]}
    return {run: experiment.model_copy(update=update)}


def curvature_exhibit(scaled: str, runs: Mapping[str, Configuration]) -> Exhibit:
    def show(found: Results, folder: Path) -> list[Shown]:
        lines = _by_node(found, "h_norm", range(5))
        panel = Panel("Norm of the Gauss–Newton diagonal", lines, y="‖h‖ before it is normalised")
        return [draw_panels([panel], folder / "curvature.png")]

    return Exhibit(
        "the norm of the curvature of a few nodes", show, _looked_into(runs, {"dechw": ""}, ("rule",)), scaled
    )


def trace_exhibit(scaled: str, runs: Mapping[str, Configuration]) -> Exhibit:
    looked = _looked_into(runs, {"dechw": ""}, ("rule",))

    def show(found: Results, folder: Path) -> list[Shown]:
        (method,) = next(iter(looked.values())).resolved.values()
        (seed,) = next(iter(found.measures.values()))["seed"].unique()
        near = [0, *network(method, seed).graph(1).neighbours(0).tolist()]
        inside = _by_node(found, "h_element", near)
        total = sum(one.curve.mean for one in inside)
        whole = [replace(o, curve=o.curve._replace(mean=o.curve.mean / total)) for o in inside]
        panels = [
            Panel("One element of Ĥ", _by_node(found, "h_element", range(10)), y="Ĥ", log_x=False, log_y=False),
            Panel("The weights that node 0 gives", whole[:10], y="weight", log_x=False, log_y=False),
        ]
        said = f"Weights are shares of the sum over node 0 and its {len(near) - 1} neighbours."
        return [draw_panels(panels, folder / "trace.png"), said]

    return Exhibit("one element of Ĥ over ten nodes, and the weights it gives neighbours", show, looked, scaled)


def _by_node(found: Results, measure: str, nodes: Iterable[int]) -> list[Line]:
    told = next(iter(found.measures.values())).filter(pl.col("measure") == measure, pl.col("round") > 0)
    lines = []
    for i in nodes:
        mine = told.filter(pl.col("node") == i).sort("round")
        x, y = mine["round"].to_numpy().astype(float), mine["value"].to_numpy()
        lines.append(Line(Curve.bare(x, y), f"node {i}", colour(i), style(i)))
    return lines


def spread_exhibit(scaled: str, runs: Mapping[str, Configuration]) -> Exhibit:
    names = {
        "dechetero": "DecHetero",
        "dechw": "DecHW",
        "gain-decavg": "gain + DecAvg",
        "gain-dechw": "gain + DecHW",
        "decdiff-vt": "DecDiff (VT)",
        "variance-corrected": "variance-corrected merge",
    }

    def show(found: Results, folder: Path) -> list[Shown]:
        measured = next(iter(found.measures.values())).filter(
            pl.col("measure") == "sigma_ap_merged", pl.col("layer").is_not_null()
        )
        layers = [la for la in measured["layer"].unique(maintain_order=True) if la.endswith("weight")]
        panels = []
        for layer in layers:
            lines = []
            for i, (m, name) in enumerate(names.items()):
                mine = measured.filter(pl.col("method") == m, pl.col("layer") == layer)
                curve = mine.group_by("round").agg(pl.col("value").mean()).sort("round")
                x, y = curve["round"].to_numpy().astype(float), curve["value"].to_numpy()
                lines.append(Line(Curve.bare(x, y), name, colour(i)))
            panels.append(Panel(f"{layer}, after the merge", lines, y="σ_ap", log_x=False))
        return [draw_panels(panels, folder / "spread-by-layer.png")]

    return Exhibit(
        "the spread of each layer's weights: what merging takes away",
        show,
        _looked_into(runs, names, ("spread",)),
        scaled,
    )

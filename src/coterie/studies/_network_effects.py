"""Exhibits about degree, data, size and communication, each against one model that is trained on all data."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from coterie.config.configuration import Configuration
from coterie.report.curves import AXES, Curve
from coterie.report.panels import DASHED, Line, Panel, draw_panels, line, shade
from coterie.report.plateaus import fall
from coterie.report.sheets import Sheet
from coterie.runs.exhibits import Exhibit, Results, Scale, Shown
from coterie.studies._starts import CENTRAL, GAIN, last_loss, pick, plain, scaled_down

BATCHES = "wall-clock equivalent (mini-batches of a node)"


def degrees_exhibit(scale: Scale) -> Exhibit:
    """Figure 9a: how many neighbours each node has."""
    n, degrees = pick(scale, 16, 32, 64), pick(scale, (2, 4, 8), (2, 4, 8, 16), (2, 4, 8, 16, 32))
    cases = {f"k = {k}": {"nodes": n, "topology": {"name": "regular", "k": k, "connect": True}} for k in degrees}
    return _bounded(scale, f"degree, k-regular networks, n = {n}", cases, "round", "degrees")


def items_exhibit(scale: Scale) -> Exhibit:
    """Figure 9b: how many items each node has."""
    n, k = pick(scale, (16, 8), (32, 16), (64, 32))
    counts = pick(scale, (20, 40, 80), (40, 80, 160, 320), (40, 80, 160, 320, 640))
    cases = {f"{c} items": {"nodes": n, "items": c, "topology": {"name": "regular", "k": k}} for c in counts}
    return _bounded(scale, f"items a node, {k}-regular networks, n = {n}", cases, "batches", "items")


def sizes_exhibit(scale: Scale) -> Exhibit:
    """Figure 9c: how many nodes there are."""
    sizes, k = pick(scale, ((8, 16), 4), ((16, 32, 64), 8), ((64, 128, 256, 512), 32))
    cases = {f"n = {n}": {"nodes": n, "topology": {"name": "regular", "k": k}} for n in sizes}
    return _bounded(scale, f"number of nodes, {k}-regular networks", cases, "round", "nodes")


def epochs_exhibit(scale: Scale) -> Exhibit:
    """Figure 9d: how long nodes train between merges."""
    n, k = pick(scale, (16, 8), (32, 16), (64, 32))
    counts = pick(scale, (1, 4), (1, 2, 4, 8), (1, 2, 4, 8, 16))
    topology = {"name": "regular", "k": k}
    cases = {f"{e} epoch{'s' * (e > 1)}": {"nodes": n, "epochs": e, "topology": topology} for e in counts}
    return _bounded(scale, f"local epochs between merges, {k}-regular networks, n = {n}", cases, "batches", "epochs")


def constant_exhibit(scale: Scale) -> Exhibit:
    """Figure 10: the same items on more nodes, against one node with all of them."""
    total, k = pick(scale, (1280, 4), (5120, 8), (40960, 32))
    sizes = pick(scale, (8, 16), (16, 32, 64), (64, 128, 256, 512))
    cases: dict[str, Any] = {
        f"n = {n}": {"nodes": n, "items": total // n, "topology": {"name": "regular", "k": k}} for n in sizes
    }
    return _bounded(scale, f"{total:,} items in all, {k}-regular networks", cases, "batches", "constant")


def _bounded(scale: Scale, title: str, cases: Mapping[str, Mapping[str, Any]], x: str, name: str) -> Exhibit:
    """An exhibit with a line for each case and, as a level, the best loss of one model trained on all data."""
    common = {**plain(scale), "partition": "iid_classes", "items": pick(scale, 40, 80, 80), "epochs": 1}
    work = pick(scale, 150, 400, 20000)  # mini-batches of a node
    runs, bounds = {}, {}
    for label, own in cases.items():
        case = {**common, **own}
        a_round = case["epochs"] * math.ceil(case["items"] / case["batch_size"])
        runs[label] = Configuration(
            **case, rounds=max(1, min(pick(scale, 40, 120, 4000), work // a_round)), methods={"gain": GAIN}
        )
        pooled = {**case, "epochs": 1, "topology": "complete"}
        epochs = max(5, pick(scale, 1500, 6000, 200000) * case["batch_size"] // (case["nodes"] * case["items"]))
        bounds[label] = Configuration(**pooled, rounds=epochs, methods={"centralised": CENTRAL})

    def show(found: Results, folder: Path) -> list[Shown]:
        axis: Any = x
        lines = [line(found.records[c], c, shade(i, len(cases)), x=axis) for i, c in enumerate(cases)]
        best = {c: _best(found.records[f"{c}, pooled"]) for c in cases}
        alike = len({round(b, 9) for b in best.values()}) == 1
        levels = [(b, "", "#555555" if alike else shade(i, len(cases))) for i, b in enumerate(best.values())]
        if name == "constant":
            c = next(iter(cases))
            lines.append(line(found.records[f"{c}, pooled"], "one node with all", "#555555", x=axis))
        told: list[Shown] = []
        if name == "constant" and (law := fall(lines[-1].curve.x, lines[-1].curve.mean)) is not None:
            ends = np.array([law.first, law.last])
            sloped = Curve.bare(ends, law.height * ends**-law.exponent)
            lines.append(Line(sloped, f"∝ mini-batches^−{law.exponent:.2f}", "#555555", DASHED))
            alone = "The loss of one node with all data falls as a power of the mini-batches"
            told = [f"{alone}, with the exponent −{law.exponent:.2f} from {law.first:,.0f} to {law.last:,.0f} of them."]
        panel = Panel(
            "Horizontal: one model trained on all data",
            lines,
            x=BATCHES if x == "batches" else AXES["round"],
            levels=levels,
        )
        rows = [
            [c, str(found.records[c]["round"].max()), last_loss(found.records[c], "gain"), f"{best[c]:.3f}"]
            for c in cases
        ]
        sheet = Sheet("Test loss", ["case", "rounds", "at the end", "best of one model with all data"], rows)
        return [draw_panels([panel], folder / f"effect-of-{name}.png"), sheet, *told]

    every = runs | {f"{label}, pooled": bound for label, bound in bounds.items()}
    return Exhibit(title, show, every, scaled_down(scale, "MLP 128-64-32, lr 0.03, smaller networks, fewer rounds"))


def _best(records: pl.DataFrame) -> float:
    """The best loss of a single model, mean over seeds."""
    best = records.group_by("seed").agg(pl.col("test_loss").min())["test_loss"].mean()
    assert isinstance(best, float)
    return best

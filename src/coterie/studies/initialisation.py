"""Tables and figures of the initialisation paper: uncoordinated starts with and without the gain."""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from coterie.config.configuration import Configuration
from coterie.report.panels import DASHED, SOLID, Line, Panel, colour, draw_panels, line, shade
from coterie.report.plateaus import interval_cell, leaving_times, plateau_claims, power_law_exponent
from coterie.report.sheets import Sheet
from coterie.runs.exhibits import Exhibit, Results, Scale, Shown
from coterie.studies._cells import initialisation_cells
from coterie.studies._early_stage import (
    assortativity_exhibit,
    gossip_exhibit,
    mixing_exhibit,
    plateau_exhibit,
    steps_exhibit,
)
from coterie.studies._network_effects import (
    constant_exhibit,
    degrees_exhibit,
    epochs_exhibit,
    items_exhibit,
    sizes_exhibit,
)
from coterie.studies._runtimes import runtimes_exhibit
from coterie.studies._starts import DIGITS, GAIN, HE, MNIST, SMALL, last_loss, pick, plain, scaled_down, seeds

ALL_OF_SO2SAT = {"name": "so2sat", "limit": 400_000, "test_limit": 50_000}
"""More than there are: 256 nodes of 1,024 images need more than the part reads by itself, and some 15 GB of memory."""


def initialisation(scale: Scale) -> dict[str, Exhibit]:
    """Initialisation and network effects: uncoordinated starts scaled by the gain of the network.

    Reference: Badie-Modiri, Boldrini, Valerio, Kertész, Karsai, Initialisation and Network Effects in Decentralised
    Federated Learning, 2024
    """
    if scale == "full":
        return initialisation_cells(MNIST, HE, GAIN)
    growth = {
        "figure 3a": _complete(scale, "sgd"),
        "figure 3c": _zipf(scale),
        "figure 3e": _vgg(scale),
        "figure 3g": _complete(scale, "adamw"),
    }
    return {
        **growth,
        "figure 4": _failing(scale),
        "figure 5": steps_exhibit(scale, plain(scale), GAIN, HE),
        "figure 7": _misjudged(scale),
        "figure 8": assortativity_exhibit(scale),
        "figure 9a": degrees_exhibit(scale),
        "figure 9b": items_exhibit(scale),
        "figure 9c": sizes_exhibit(scale),
        "figure 9d": epochs_exhibit(scale),
        "figure 10": constant_exhibit(scale),
        "figure start": _start(scale),
        "figure gossip": gossip_exhibit(scale, plain(scale), GAIN),
        "figure mixing": mixing_exhibit(scale),
        "table model": plateau_exhibit(scale),
        "table A2": runtimes_exhibit(dict(zip("ABCD", growth.values(), strict=True))),
    }


# Figure 3: the plateau of independent starts grows with the network, and the gain takes it away.


def _complete(scale: Scale, optimiser: str) -> Exhibit:
    """Settings A and D: the complete graph, with either optimiser."""
    adam = optimiser == "adamw"
    base = {**plain(scale), "items": pick(scale, 40, 512, 512), "batches": pick(scale, 4, 8, 8)}
    if scale == "laptop":
        base["model"] = MNIST["model"]
        base["seeds"] = (0, 1) if adam else seeds(scale)
    if adam:
        base |= {"optimiser": {"name": "adamw", "lr": 0.001, "weight_decay": 0.01}, "lr": None, "momentum": None}
    sizes = pick(scale, (4, 8, 16, 32), (8, 16, 32, 64), (8, 16, 32, 64))
    if adam:
        rounds = {n: pick(scale, 60, 10 + n // 2, 1000) for n in sizes}
    else:
        rounds = {n: pick(scale, 30 + 2 * n, 12 + 3 * n // 2, 4000) for n in sizes}
    title = f"complete graph, MLP, {'AdamW' if adam else 'SGD'}, iid data"
    slow = "" if adam else "lr 0.03, "
    scaled = scaled_down(scale, f"{slow}fewer rounds")
    return _growth(title, base, sizes, rounds, pick(scale, 30, 20, 4000), scaled)


def _zipf(scale: Scale) -> Exhibit:
    """Setting B: Barabási–Albert networks, skewed data, a convolutional net."""
    laptop = {**SMALL, "dataset": "fashion_mnist", "model": "cnn_mnist", "seeds": (0, 1)}
    paper = {**MNIST, "dataset": ALL_OF_SO2SAT, "model": "cnn_so2sat", "seeds": seeds(scale)}
    base = pick(scale, {**DIGITS, "seeds": seeds(scale)}, laptop, paper)
    base |= {"partition": {"name": "zipf_equal", "alpha": 1.8}, "items": pick(scale, 40, 256, 1024)}
    base |= {"topology": {"name": "ba", "m": pick(scale, 2, 4, 8)}, "batches": pick(scale, 4, 8, 8)}
    sizes = pick(scale, (8, 16, 32), (16, 32, 64), (32, 64, 128, 256))
    rounds = {n: pick(scale, 30 + 2 * n, 40 + n, 4000) for n in sizes}
    places = "Fashion-MNIST in place of So2Sat, conv10-conv20, m = 4, 256 items a node, lr 0.03, fewer rounds"
    scaled = scaled_down(scale, places)
    return _growth(
        "Barabási–Albert networks, CNN, Zipf-skewed data", base, sizes, rounds, pick(scale, 30, 40, 4000), scaled
    )


def _vgg(scale: Scale) -> Exhibit:
    """Setting C: sparse regular networks and a deep net."""
    thin = {"name": "vgg16", "width": 0.125, "dense": 128}
    laptop = {**SMALL, "dataset": "cifar10", "model": thin, "seeds": (0,), "lr": 0.01, "test_share": 0.05}
    paper = {**MNIST, "dataset": "cifar10", "model": "vgg16", "seeds": seeds(scale)}
    base = pick(scale, {**DIGITS, "seeds": seeds(scale)}, laptop, paper)
    base |= {"partition": "iid", "items": pick(scale, 40, 256, 512), "topology": {"name": "regular", "k": 4}}
    base |= {"batches": pick(scale, 4, 8, 8)}
    sizes = pick(scale, (8, 16, 32), (8, 16), (8, 16, 32, 64))
    rounds = {n: pick(scale, 30 + 2 * n, 100, 4000) for n in sizes}
    thinner = "VGG16 an eighth as wide, dense layers of 128, 256 items a node, n up to 16, lr 0.01, fewer rounds"
    scaled = scaled_down(scale, thinner, "a twentieth of the test set")
    return _growth("4-regular networks, VGG16, iid data", base, sizes, rounds, pick(scale, 30, 100, 4000), scaled)


def _growth(
    title: str, base: Mapping[str, Any], sizes: Sequence[int], rounds: Mapping[int, int], with_gain: int, scaled: str
) -> Exhibit:
    """Test loss with and without the gain for several sizes, and how long each size stays on the plateau."""
    runs = {}
    for n in sizes:
        common = {**base, "nodes": n}
        runs[f"he {n}"] = Configuration(**common, rounds=rounds[n], methods={"he": HE})
        runs[f"gain {n}"] = Configuration(**common, rounds=min(with_gain, rounds[n]), methods={"gain": GAIN})

    def show(found: Results, folder: Path) -> list[Shown]:
        level = 0.9 * _height(found.records[f"he {sizes[0]}"])
        times = {s: [leaving_times(found.records[f"{s} {n}"], level) for n in sizes] for s in ("he", "gain")}
        fits = {s: power_law_exponent(sizes, times[s]) for s in times}
        mu = fits["he"].mean if not math.isnan(fits["he"].mean) else 0.5
        lines = [
            line(found.records[f"{s} {n}"], f"n = {n}" if s == "gain" else "", shade(i, len(sizes)), style)
            for i, n in enumerate(sizes)
            for s, style in (("gain", SOLID), ("he", DASHED))
        ]
        collapsed = [
            line(found.records[f"he {n}"], f"n = {n}", shade(i, len(sizes)), DASHED, stretch=n**mu)
            for i, n in enumerate(sizes)
        ]
        panels = [
            Panel("With the gain (solid), He alone (dashed)", lines),
            Panel(f"He alone, rounds divided by n^{mu:.2f}", collapsed, x=f"round / n^{mu:.2f}"),
        ]
        words = unicodedata.normalize("NFKD", title.split(",")[0].replace("–", "-")).encode("ascii", "ignore").decode()
        label = words.replace(" ", "-").lower() + ("-adamw" if "AdamW" in title else "")
        both = zip(sizes, times["he"], times["gain"], strict=True)
        rows = [[f"{n}", interval_cell(he), interval_cell(gain)] for n, he, gain in both]
        rows.append(["exponent of n", _fit(fits["he"]), _fit(fits["gain"])])
        note = f"A plateau is left when the mean test loss falls below {level:.2f}, nine tenths of its height."
        paper = "The paper sees exponents of 0.4 to 1 for He alone, and no plateau with the gain."
        sheet = Sheet("Rounds until the plateau is left", ["nodes", "He alone", "with the gain"], rows, [note, paper])
        told = plateau_claims(sizes, times, {n: rounds[n] for n in sizes})
        return [draw_panels(panels, folder / f"plateau-{label}.png"), sheet, told]

    return Exhibit(f"loss by round, {title}", show, runs, scaled)


def _height(records: pl.DataFrame) -> float:
    """The height of the plateau: the mean test loss after the first round."""
    first = records.filter(pl.col("round") == 1)
    return float(first.select(pl.col("test_loss").mean()).item() or math.nan)


def _fit(fit: Any) -> str:
    if math.isnan(fit.mean):
        return "—"
    return f"{fit.mean:.2f}" + ("" if math.isnan(fit.half) else f" ± {fit.half:.2f}")


# Figures 4, 7 and the start: what the gain bears, and what it needs.


def _failing(scale: Scale) -> Exhibit:
    chances = pick(scale, (1.0, 0.2), (1.0, 0.5, 0.2, 0.1), (1.0, 0.5, 0.2, 0.1, 0.05))
    n = pick(scale, 16, 16, 64)
    base = {**plain(scale), "nodes": n, "items": pick(scale, 60, 512, 512), "batches": pick(scale, 4, 8, 8)}
    base["rounds"] = pick(scale, 40, 60, 2000)
    kinds = {"links": "links", "presence": "nodes"}
    runs = {
        f"{kind} {p}": Configuration(**base, **{kind: p}, methods={"he": HE, "gain": GAIN})
        for kind in kinds
        for p in chances
    }

    def show(found: Results, folder: Path) -> list[Shown]:
        panels = [
            Panel(
                f"Each of the {what} works with probability p",
                _pairs(found, [(f"{kind} {p}", f"p = {p:g}") for p in chances]),
            )
            for kind, what in kinds.items()
        ]
        last = [
            [f"{what}, p = {p:g}", *(last_loss(found.records[f"{kind} {p}"], m) for m in ("he", "gain"))]
            for kind, what in kinds.items()
            for p in chances
        ]
        sheet = Sheet(
            f"Test loss after {base['rounds']} rounds", ["what works, how often", "He alone", "with the gain"], last
        )
        return [draw_panels(panels, folder / "failing.png"), sheet]

    return Exhibit(
        f"links and nodes that fail, complete graph, n = {n}",
        show,
        runs,
        scaled_down(scale, "n = 16, MLP 128-64-32, lr 0.03, fewer rounds"),
    )


def _pairs(found: Results, runs: Sequence[tuple[str, str]]) -> list[Line]:
    """Lines of each run in a colour of its own: solid with the gain, dashed without."""
    return [
        line(found.records[run].filter(pl.col("method") == m), label if m == "gain" else "", shade(i, len(runs)), style)
        for i, (run, label) in enumerate(runs)
        for m, style in (("gain", SOLID), ("he", DASHED))
    ]


def _misjudged(scale: Scale) -> Exhibit:
    n = pick(scale, 16, 16, 64)
    base = {**plain(scale), "nodes": n, "items": pick(scale, 60, 512, 512), "batches": pick(scale, 4, 8, 8)}
    base["rounds"] = pick(scale, 30, 60, 2000)
    counts, powers = (0.25, 0.5, 1.0, 2.0, 4.0), (0.3, 0.4, 0.5, 0.6)
    factors = {f"n × {c:g}": math.sqrt(c) for c in counts} | {f"n^{a:g}": n ** (a - 0.5) for a in powers if a != 0.5}
    methods = {name: {**GAIN, "initialiser": {"name": "gain", "factor": f}} for name, f in factors.items()}
    runs = {"guess": Configuration(**base, methods={"he": HE, **methods})}

    def show(found: Results, folder: Path) -> list[Shown]:
        records = found.records["guess"]
        he = line(records.filter(pl.col("method") == "he"), "He alone", "#555555", DASHED)

        def of(names: Sequence[str]) -> list[Line]:
            return [
                line(records.filter(pl.col("method") == m), m, shade(i, len(names))) for i, m in enumerate(names)
            ] + [he]

        wrong = [f"n^{a:g}" if a != 0.5 else "n × 1" for a in powers]
        panels = [
            Panel("The number of nodes misjudged", of([f"n × {c:g}" for c in counts])),
            Panel("The exponent misjudged", of(wrong)),
        ]
        rows = [[m, f"{factors.get(m, n**-0.5):.2f}", last_loss(records, m)] for m in ("he", *methods)]
        sheet = Sheet(f"Test loss after {base['rounds']} rounds", ["gain taken as if", "times the exact", "loss"], rows)
        return [draw_panels(panels, folder / "misjudged.png"), sheet]

    return Exhibit(
        f"a gain misjudged, complete graph, n = {n}",
        show,
        runs,
        scaled_down(scale, "n = 16, MLP 128-64-32, lr 0.03, fewer rounds"),
    )


def _start(scale: Scale) -> Exhibit:
    n = pick(scale, 16, 16, 64)
    base = {**plain(scale), "nodes": n, "items": pick(scale, 60, 512, 512), "batches": pick(scale, 4, 8, 8)}
    base["rounds"] = pick(scale, 30, 60, 2000)
    no_clamp = {"clamp": 1e9}
    methods = {
        "merged first, loss clamped": GAIN,
        "merged first only": {**GAIN, **no_clamp},
        "clamped only": {**GAIN, "merge_first": False},
        "neither": {**GAIN, "merge_first": False, **no_clamp},
        "He alone": HE,
    }
    runs = {"start": Configuration(**base, methods=methods)}

    def show(found: Results, folder: Path) -> list[Shown]:
        lines = []
        for i, m in enumerate(methods):
            mine = found.records["start"].filter(pl.col("method") == m)
            if mine["test_accuracy"].count():
                lines.append(line(mine, m, colour(i), DASHED if m == "He alone" else SOLID, column="test_accuracy"))
        panel = Panel(f"n = {n}", lines, y="test accuracy, mean over nodes", log_y=False)
        text = (
            "With neither, the first training works on weights too large by the gain, and destroys them. How far "
            "one of the two goes alone depends on the size of the network and on the depth of the model."
        )
        return [draw_panels([panel], folder / "start.png"), text]

    return Exhibit(
        "what the gain needs: a merge before the first training, and a clamped loss",
        show,
        runs,
        scaled_down(scale, "n = 16, MLP 128-64-32, lr 0.03, fewer rounds"),
    )

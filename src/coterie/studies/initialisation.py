"""Tables and figures of the initialisation paper: uncoordinated starts with and without the gain."""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from coterie.config.configuration import Configuration
from coterie.report.curves import AXES
from coterie.report.panels import DASHED, SOLID, Line, Panel, colour, draw_panels, line, shade
from coterie.report.plateaus import interval_cell, leaving_times, power_law_exponent
from coterie.report.sheets import Sheet
from coterie.runs.exhibits import Exhibit, Results, Scale, Shown
from coterie.studies._early_stage import (
    assortativity_exhibit,
    gossip_exhibit,
    mixing_exhibit,
    plateau_exhibit,
    steps_exhibit,
)

FIRST = {"merge_first": True, "clamp": 10.0}
HE = {"rule": "decavg", "initialiser": "he", **FIRST}
GAIN = {"rule": "decavg", "initialiser": "gain"}
CENTRAL = {"rule": "isolation", "initialiser": "he", "pooled": True}
BATCHES = "wall-clock equivalent (mini-batches of a node)"

SGD = {"lr": 0.001, "momentum": 0.5, "batch_size": 16, "validation": 0.0}
MNIST = {"dataset": "mnist", "model": {"name": "mlp", "sizes": [512, 256, 128]}, "test_share": 0.1, **SGD}
SMALL = {**MNIST, "model": {"name": "mlp", "sizes": [128, 64, 32]}, "lr": 0.03}
DIGITS = {
    "dataset": "digits",
    "model": {"name": "mlp", "sizes": [64, 32, 32]},
    **SGD,
    "lr": 0.1,
    "batch_size": 8,
}


def initialisation(scale: Scale) -> dict[str, Exhibit]:
    """Initialisation and network effects: uncoordinated starts scaled by the gain of the network.

    Reference: Badie-Modiri, Boldrini, Valerio, Kertész, Karsai, Initialisation and Network Effects in Decentralised
    Federated Learning, 2024
    """
    return {
        "figure 3a": _complete(scale, "sgd"),
        "figure 3c": _zipf(scale),
        "figure 3e": _vgg(scale),
        "figure 3g": _complete(scale, "adamw"),
        "figure 4": _failing(scale),
        "figure 5": steps_exhibit(scale, _plain(scale), GAIN, HE),
        "figure 7": _misjudged(scale),
        "figure 8": assortativity_exhibit(scale),
        "figure 9a": _degrees(scale),
        "figure 9b": _items(scale),
        "figure 9c": _sizes(scale),
        "figure 9d": _epochs(scale),
        "figure 10": _constant(scale),
        "figure start": _start(scale),
        "figure gossip": gossip_exhibit(scale, _plain(scale), GAIN),
        "figure mixing": mixing_exhibit(scale),
        "table model": plateau_exhibit(scale),
    }


def _pick(scale: Scale, smoke: Any, laptop: Any, paper: Any) -> Any:
    return {"smoke": smoke, "laptop": laptop, "paper": paper}[scale]


def _seeds(scale: Scale) -> tuple[int, ...]:
    return tuple(range(_pick(scale, 2, 3, 12)))


def _plain(scale: Scale) -> dict[str, Any]:
    """Setting A, which most figures vary: the complete graph."""
    chosen: dict[str, Any] = _pick(scale, DIGITS, SMALL, MNIST)
    return {**chosen, "seeds": _seeds(scale), "partition": "iid", "topology": "complete"}


def _less(scale: Scale, laptop: str) -> str:
    """The sentence that says how the runs were scaled down; none at the paper's scale."""
    if scale == "paper":
        return ""
    smoke = "digits, a small MLP, lr 0.1, batches of 8, few items and rounds"
    return f"Scaled down: {laptop if scale == 'laptop' else smoke}."


# Figure 3: the plateau of independent starts grows with the network, and the gain takes it away.


def _complete(scale: Scale, optimiser: str) -> Exhibit:
    """Settings A and D: the complete graph, with either optimiser."""
    adam = optimiser == "adamw"
    base = {**_plain(scale), "items": _pick(scale, 40, 512, 512), "batches": _pick(scale, 4, 8, 8)}
    if scale == "laptop":
        base["model"] = MNIST["model"]
        base["seeds"] = (0, 1) if adam else _seeds(scale)
    if adam:
        base |= {"optimiser": {"name": "adamw", "lr": 0.001, "weight_decay": 0.01}, "lr": None, "momentum": None}
    sizes = _pick(scale, (4, 8, 16, 32), (8, 16, 32, 64), (8, 16, 32, 64))
    if adam:
        rounds = {n: _pick(scale, 60, 10 + n // 2, 1000) for n in sizes}
    else:
        rounds = {n: _pick(scale, 30 + 2 * n, 12 + 3 * n // 2, 4000) for n in sizes}
    title = f"complete graph, MLP, {'AdamW' if adam else 'SGD'}, iid data"
    slow = "" if adam else "lr 0.03, "
    scaled = _less(scale, f"{slow}fewer rounds, a tenth of the test set")
    return _growth(title, base, sizes, rounds, _pick(scale, 30, 20, 4000), scaled)


def _zipf(scale: Scale) -> Exhibit:
    """Setting B: Barabási–Albert networks, skewed data, a convolutional net."""
    laptop = {**SMALL, "dataset": "fashion_mnist", "model": "cnn_mnist", "seeds": (0, 1)}
    paper = {**MNIST, "dataset": "so2sat", "model": "cnn_so2sat", "seeds": _seeds(scale)}
    base = _pick(scale, {**DIGITS, "seeds": _seeds(scale)}, laptop, paper)
    base |= {"partition": {"name": "zipf_equal", "alpha": 1.8}, "items": _pick(scale, 40, 256, 1024)}
    base |= {"topology": {"name": "ba", "m": _pick(scale, 2, 4, 8)}, "batches": _pick(scale, 4, 8, 8)}
    sizes = _pick(scale, (8, 16, 32), (16, 32, 64), (32, 64, 128, 256))
    rounds = {n: _pick(scale, 30 + 2 * n, 40 + n, 4000) for n in sizes}
    places = "Fashion-MNIST in place of So2Sat, conv10-conv20, m = 4, 256 items a node, lr 0.03, fewer rounds"
    scaled = _less(scale, places)
    return _growth(
        "Barabási–Albert networks, CNN, Zipf-skewed data", base, sizes, rounds, _pick(scale, 30, 40, 4000), scaled
    )


def _vgg(scale: Scale) -> Exhibit:
    """Setting C: sparse regular networks and a deep net."""
    thin = {"name": "vgg16", "width": 0.125, "dense": 128}
    laptop = {**SMALL, "dataset": "cifar10", "model": thin, "seeds": (0,), "lr": 0.01, "test_share": 0.05}
    paper = {**MNIST, "dataset": "cifar10", "model": "vgg16", "seeds": _seeds(scale)}
    base = _pick(scale, {**DIGITS, "seeds": _seeds(scale)}, laptop, paper)
    base |= {"partition": "iid", "items": _pick(scale, 40, 256, 512), "topology": {"name": "regular", "k": 4}}
    base |= {"batches": _pick(scale, 4, 8, 8)}
    sizes = _pick(scale, (8, 16, 32), (8, 16), (8, 16, 32, 64))
    rounds = {n: _pick(scale, 30 + 2 * n, 100, 4000) for n in sizes}
    thinner = "VGG16 an eighth as wide, dense layers of 128, 256 items a node, n up to 16, lr 0.01, fewer rounds"
    scaled = _less(scale, thinner)
    return _growth("4-regular networks, VGG16, iid data", base, sizes, rounds, _pick(scale, 30, 100, 4000), scaled)


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
        plain = unicodedata.normalize("NFKD", title.split(",")[0].replace("–", "-")).encode("ascii", "ignore").decode()
        label = plain.replace(" ", "-").lower() + ("-adamw" if "AdamW" in title else "")
        both = zip(sizes, times["he"], times["gain"], strict=True)
        rows = [[f"{n}", interval_cell(he), interval_cell(gain)] for n, he, gain in both]
        rows.append(["exponent of n", _fit(fits["he"]), _fit(fits["gain"])])
        note = f"A plateau is left when the mean test loss falls below {level:.2f}, nine tenths of its height."
        paper = "The paper sees exponents of 0.4 to 1 for He alone, and no plateau with the gain."
        sheet = Sheet("Rounds until the plateau is left", ["nodes", "He alone", "with the gain"], rows, [note, paper])
        return [draw_panels(panels, folder / f"plateau-{label}.png"), sheet]

    return Exhibit(f"loss by round, {title}", show, runs, scaled)


def _height(records: pl.DataFrame) -> float:
    """The height of the plateau: the mean test loss after the first round."""
    return float(records.filter(pl.col("round") == 1)["test_loss"].mean() or math.nan)  # type: ignore[arg-type]


def _fit(fit: Any) -> str:
    if math.isnan(fit.mean):
        return "—"
    return f"{fit.mean:.2f}" + ("" if math.isnan(fit.half) else f" ± {fit.half:.2f}")


# Figures 4, 7 and the start: what the gain bears, and what it needs.


def _failing(scale: Scale) -> Exhibit:
    chances = _pick(scale, (1.0, 0.2), (1.0, 0.5, 0.2, 0.1), (1.0, 0.5, 0.2, 0.1, 0.05))
    n = _pick(scale, 16, 16, 64)
    base = {**_plain(scale), "nodes": n, "items": _pick(scale, 60, 512, 512), "batches": _pick(scale, 4, 8, 8)}
    base["rounds"] = _pick(scale, 40, 60, 2000)
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
            [f"{what}, p = {p:g}", *(_last(found.records[f"{kind} {p}"], m) for m in ("he", "gain"))]
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
        _less(scale, "n = 16, MLP 128-64-32, lr 0.03, fewer rounds"),
    )


def _pairs(found: Results, runs: Sequence[tuple[str, str]]) -> list[Line]:
    """Lines of each run in a colour of its own: solid with the gain, dashed without."""
    return [
        line(found.records[run].filter(pl.col("method") == m), label if m == "gain" else "", shade(i, len(runs)), style)
        for i, (run, label) in enumerate(runs)
        for m, style in (("gain", SOLID), ("he", DASHED))
    ]


def _last(records: pl.DataFrame, method: str) -> str:
    mine = records.filter(pl.col("method") == method)
    ends = mine.filter(pl.col("round") == pl.col("round").max()).group_by("seed").agg(pl.col("test_loss").mean())
    return interval_cell([float(v) for v in ends["test_loss"]], digits=3)


def _misjudged(scale: Scale) -> Exhibit:
    n = _pick(scale, 16, 16, 64)
    base = {**_plain(scale), "nodes": n, "items": _pick(scale, 60, 512, 512), "batches": _pick(scale, 4, 8, 8)}
    base["rounds"] = _pick(scale, 30, 60, 2000)
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
        rows = [[m, f"{factors.get(m, n**-0.5):.2f}", _last(records, m)] for m in ("he", *methods)]
        sheet = Sheet(f"Test loss after {base['rounds']} rounds", ["gain taken as if", "times the exact", "loss"], rows)
        return [draw_panels(panels, folder / "misjudged.png"), sheet]

    return Exhibit(
        f"a gain misjudged, complete graph, n = {n}",
        show,
        runs,
        _less(scale, "n = 16, MLP 128-64-32, lr 0.03, fewer rounds"),
    )


def _start(scale: Scale) -> Exhibit:
    n = _pick(scale, 16, 16, 64)
    base = {**_plain(scale), "nodes": n, "items": _pick(scale, 60, 512, 512), "batches": _pick(scale, 4, 8, 8)}
    base["rounds"] = _pick(scale, 30, 60, 2000)
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
        _less(scale, "n = 16, MLP 128-64-32, lr 0.03, fewer rounds"),
    )


# Figures 9 and 10: degree, data, size and communication, against the centralised bound.


def _degrees(scale: Scale) -> Exhibit:
    n, degrees = _pick(scale, 16, 32, 64), _pick(scale, (2, 4, 8), (2, 4, 8, 16), (2, 4, 8, 16, 32))
    cases = {f"k = {k}": {"nodes": n, "topology": {"name": "regular", "k": k, "connect": True}} for k in degrees}
    return _bounded(scale, f"degree, k-regular networks, n = {n}", cases, "round", "degrees")


def _items(scale: Scale) -> Exhibit:
    n, k = _pick(scale, (16, 8), (32, 16), (64, 32))
    counts = _pick(scale, (20, 40, 80), (40, 80, 160, 320), (40, 80, 160, 320, 640))
    cases = {f"{c} items": {"nodes": n, "items": c, "topology": {"name": "regular", "k": k}} for c in counts}
    return _bounded(scale, f"items a node, {k}-regular networks, n = {n}", cases, "batches", "items")


def _sizes(scale: Scale) -> Exhibit:
    sizes, k = _pick(scale, ((8, 16), 4), ((16, 32, 64), 8), ((64, 128, 256, 512), 32))
    cases = {f"n = {n}": {"nodes": n, "topology": {"name": "regular", "k": k}} for n in sizes}
    return _bounded(scale, f"number of nodes, {k}-regular networks", cases, "round", "nodes")


def _epochs(scale: Scale) -> Exhibit:
    n, k = _pick(scale, (16, 8), (32, 16), (64, 32))
    counts = _pick(scale, (1, 4), (1, 2, 4, 8), (1, 2, 4, 8, 16))
    topology = {"name": "regular", "k": k}
    cases = {f"{e} epoch{'s' * (e > 1)}": {"nodes": n, "epochs": e, "topology": topology} for e in counts}
    return _bounded(scale, f"local epochs between merges, {k}-regular networks, n = {n}", cases, "batches", "epochs")


def _constant(scale: Scale) -> Exhibit:
    total, k = _pick(scale, (1280, 4), (5120, 8), (40960, 32))
    sizes = _pick(scale, (8, 16), (16, 32, 64), (64, 128, 256, 512))
    cases: dict[str, Any] = {
        f"n = {n}": {"nodes": n, "items": total // n, "topology": {"name": "regular", "k": k}} for n in sizes
    }
    return _bounded(scale, f"{total:,} items in all, {k}-regular networks", cases, "batches", "constant")


def _bounded(scale: Scale, title: str, cases: Mapping[str, Mapping[str, Any]], x: str, name: str) -> Exhibit:
    """An exhibit with a line for each case and, as a level, the best loss of one model trained on all data."""
    common = {**_plain(scale), "partition": "iid_classes", "items": _pick(scale, 40, 80, 80), "epochs": 1}
    work = _pick(scale, 150, 400, 20000)  # mini-batches of a node
    runs, bounds = {}, {}
    for label, own in cases.items():
        case = {**common, **own}
        a_round = case["epochs"] * math.ceil(case["items"] / case["batch_size"])
        runs[label] = Configuration(
            **case, rounds=max(20, min(_pick(scale, 40, 120, 4000), work // a_round)), methods={"gain": GAIN}
        )
        pooled = {**case, "epochs": 1, "topology": "complete"}
        epochs = max(5, _pick(scale, 1500, 6000, 200000) * case["batch_size"] // (case["nodes"] * case["items"]))
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
        panel = Panel(
            "Horizontal: one model trained on all data",
            lines,
            x=BATCHES if x == "batches" else AXES["round"],
            levels=levels,
        )
        rows = [
            [c, str(found.records[c]["round"].max()), _last(found.records[c], "gain"), f"{best[c]:.3f}"] for c in cases
        ]
        sheet = Sheet("Test loss", ["case", "rounds", "at the end", "best of one model with all data"], rows)
        return [draw_panels([panel], folder / f"effect-of-{name}.png"), sheet]

    every = runs | {f"{label}, pooled": bound for label, bound in bounds.items()}
    return Exhibit(title, show, every, _less(scale, "MLP 128-64-32, lr 0.03, smaller networks, fewer rounds"))


def _best(records: pl.DataFrame) -> float:
    """The best loss of a single model, mean over seeds."""
    best = records.group_by("seed").agg(pl.col("test_loss").min())["test_loss"].mean()
    assert isinstance(best, float)
    return best

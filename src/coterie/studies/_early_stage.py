"""Exhibits about the first rounds: the Gaussian model, the scaling of ‖v_steady‖, gossip, and real training beside."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from coterie.config.configuration import Configuration
from coterie.network.dynamics import Dynamics, simulate
from coterie.network.estimates import GossipEstimates, Scaling, gossip_push_sum, scaling
from coterie.network.faults import Faults, Floats
from coterie.network.graph import Graph, draw
from coterie.network.rewiring import assortativity, rewire
from coterie.parts import find
from coterie.randomness import generator
from coterie.report.curves import Curve
from coterie.report.dynamics import draw_gossip
from coterie.report.panels import DASHED, SOLID, Line, Panel, colour, draw_panels, line
from coterie.report.sheets import Sheet
from coterie.report.statistics import mean_ci
from coterie.runs.exhibits import Exhibit, Results, Scale, Shown
from coterie.runs.gossip import on, survey

Settings = Mapping[str, Any]


def _family(name: str, **settings: Any) -> Any:
    return find("topologies", name).make(**settings).draw


def _network(name: str, nodes: int, seed: int, **settings: Any) -> Graph:
    return draw(_family(name, **settings), nodes, seed, connect=True)


# Figure 5.


def steps_exhibit(scale: Scale, base: Settings, gain: Settings, he: Settings) -> Exhibit:
    """Steps of training and of merging by round, and σ_ap and σ_an, beside those of the Gaussian model."""
    nodes, k = {"smoke": (16, 8), "laptop": (64, 16), "paper": (256, 32)}[scale]
    rounds = {"smoke": 40, "laptop": 100, "paper": 2000}[scale]
    common = {**base, "nodes": nodes, "items": {"smoke": 40, "laptop": 80, "paper": 80}[scale], "epochs": 1}
    common |= {"topology": {"name": "regular", "k": k}, "rounds": rounds, "measures": ("spread", "steps")}
    runs = {"he": Configuration(**common, methods={"he": he}), "gain": Configuration(**common, methods={"gain": gain})}

    def show(found: Results, folder: Path) -> list[Shown]:
        whole = found.measures["he"].filter(pl.col("layer").is_null())
        names = {"train_step": "training", "merge_step": "merging", "total_step": "in all"}
        steps = [Line(_measured(whole, m), label, colour(i)) for i, (m, label) in enumerate(names.items())]
        cosine = [Line(_measured(whole, "step_cosine"), "training and merging", colour(3))]
        both = {"sigma_ap": "σ_ap, over a node's parameters", "sigma_an": "σ_an, over nodes"}
        spreads = [
            Line(
                _measured(found.measures[run].filter(pl.col("layer").is_null()), m),
                label if run == "he" else "",
                colour(i),
                s,
            )
            for run, s in (("he", DASHED), ("gain", SOLID))
            for i, (m, label) in enumerate(both.items())
        ]
        model = simulate(_network("regular", nodes, 0, k=k), 1000, rounds, noise=0.001)
        played = [
            Line(Curve.bare(np.arange(len(values), dtype=np.float64), values), label, colour(i), DASHED)
            for i, (label, values) in enumerate(
                zip(both.values(), (model.across_parameters, model.across_nodes), strict=True)
            )
        ]
        panels = [
            Panel("Change in a round, He alone", steps, y="norm, mean over nodes"),
            Panel("Cosine of the two changes, He alone", cosine, y="cosine", log_y=False),
            Panel("Training: the gain (solid), He (dashed)", spreads, y="standard deviation"),
            Panel(
                "The Gaussian model",
                played,
                y="standard deviation",
                levels=[(model.theory, "σ_init·‖v_steady‖", "#555555")],
            ),
        ]
        return [draw_panels(panels, folder / "steps.png")]

    title = f"what training and merging change, {k}-regular, n = {nodes}"
    scaled = (
        ""
        if scale == "paper"
        else f"Scaled down: n = {nodes}, {k}-regular, {rounds} rounds, a smaller MLP, a tenth of the test set."
    )
    return Exhibit(title, show, runs, scaled)


def _measured(measures: pl.DataFrame, name: str) -> Curve:
    """The mean of a measure over nodes, then over seeds with its interval, by round."""
    mine = measures.filter(pl.col("measure") == name)
    seeds = mine.group_by("seed", "round").agg(pl.col("value").mean()).sort("round")
    points = [(r, *mean_ci(f["value"])) for (r,), f in seeds.group_by("round", maintain_order=True)]
    x, mean, half = np.array(points, np.float64).reshape(-1, 3).T
    return Curve(x, mean, mean - half, mean + half)


# Figure 8.

LEAST = 3
"""The smallest degree of power-law networks: with γ = 2.5 the mean degree is then near the 8 of the other families."""


def assortativity_exhibit(scale: Scale) -> Exhibit:
    """‖v_steady‖ by size and family of the network, and by assortativity, which does not change it."""
    powers, draws = {"smoke": (range(5, 10), 3), "laptop": (range(5, 13), 8), "paper": (range(5, 15), 20)}[scale]
    sizes = [2**p for p in powers]
    tails = {
        "smoke": (2.2, 2.6, 3.0),
        "laptop": (2.1, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0),
        "paper": (2.1, 2.2, 2.3, 2.4, 2.5, 2.75, 3.0, 3.5, 4.0),
    }[scale]
    nodes = {"smoke": 256, "laptop": 2048, "paper": 2048}[scale]

    def show(_: Results, folder: Path) -> list[Shown]:
        families: dict[str, Any] = {
            "Erdős–Rényi, ⟨k⟩ = 8": lambda n, rng: _family("er", p=8 / (n - 1))(n, rng),
            "8-regular": _family("regular", k=8),
            "Barabási–Albert, m = 4": _family("ba", m=4),
            "power law, γ = 2.5": _family("powerlaw", exponent=2.5, min_degree=LEAST),
        }
        found = {label: scaling(make, sizes, draws=draws) for label, make in families.items()}
        by_tail = {g: scaling(_family("powerlaw", exponent=g, min_degree=LEAST), sizes, draws=draws) for g in tails}
        norms = [
            Line(_by_size(s), f"{label}: n^−{s.exponent:.3f}", colour(i)) for i, (label, s) in enumerate(found.items())
        ]
        exponents = np.array(
            [[g, s.exponent, s.exponent - 2 * s.error, s.exponent + 2 * s.error] for g, s in by_tail.items()]
        )
        theory = Curve.bare(np.array(tails), np.array([max(0.0, min((g - 2) / (g - 1), 0.5)) for g in tails]))
        start = _network("er", nodes, 0, p=8 / (nodes - 1))
        rewired = [rewire(start, target, generator(0, "rewiring")) for target in (-0.3, -0.15, 0.0, 0.15, 0.3)]
        values = np.array([[assortativity(g), 1 / g.gain()] for g in rewired])
        order = values[values[:, 0].argsort()]
        flat = Curve.bare(order[:, 0], order[:, 1])
        panels = [
            Panel("‖v_steady‖ by size", norms, x="nodes", y="‖v_steady‖"),
            Panel(
                "Exponent of power-law networks",
                [Line(Curve(*exponents.T), "fitted", colour(0)), Line(theory, "theory for large n", "#555555", DASHED)],
                x="γ of P(k) ∝ k^−γ",
                y="exponent",
                log_x=False,
                log_y=False,
            ),
            Panel(
                f"Rewired at fixed degrees, n = {nodes:,}",
                [Line(flat, "", colour(2))],
                x="assortativity",
                y="‖v_steady‖",
                log_x=False,
                log_y=False,
                levels=[(0.0, "", "#ffffff")],
            ),
        ]
        links = {label: draw(make, sizes[-1], 0, connect=True).degree.mean() for label, make in families.items()}
        rows = [[name, f"{links[name]:.1f}", f"{s.exponent:.3f} ± {1.96 * s.error:.3f}"] for name, s in found.items()]
        rows += [
            [f"power law, γ = {g:g}", "", f"{s.exponent:.3f} ± {1.96 * s.error:.3f}"]
            for g, s in by_tail.items()
            if g != 2.5
        ]
        spread = float(np.ptp(order[:, 1]) / order[:, 1].mean())
        reach = f"from assortativity {order[0, 0]:.2f} to {order[-1, 0]:.2f}"
        note = f"Rewired {reach}, ‖v_steady‖ differs by {spread:.1e} of itself."
        return [
            draw_panels(panels, folder / "scaling.png", columns=3),
            Sheet(
                f"Exponent of ‖v_steady‖ ∝ n^−α, n = {sizes[0]} to {sizes[-1]:,}", ["family", "⟨k⟩", "α"], rows, [note]
            ),
        ]

    return Exhibit("the norm of the steady state by size, family and assortativity", show)


def _by_size(found: Scaling) -> Curve:
    mean, spread = found.norms.mean(axis=1), found.norms.std(axis=1)
    return Curve(found.nodes.astype(np.float64), mean, mean - spread, mean + spread)


# The Gaussian model against theory.


def _networks(nodes: int) -> dict[str, Graph]:
    return {
        "8-regular": _network("regular", nodes, 0, k=8),
        "Erdős–Rényi, ⟨k⟩ = 16": _network("er", nodes, 0, p=16 / (nodes - 1)),
        "Barabási–Albert, m = 4": _network("ba", nodes, 0, m=4),
        "directed Erdős–Rényi, ⟨k⟩ = 16": _network("er", nodes, 0, p=16 / (nodes - 1), directed=True),
    }


def plateau_exhibit(scale: Scale) -> Exhibit:
    """The plateau of σ_ap in the Gaussian model, beside the theory's σ_init·‖v_steady‖."""
    nodes, dimensions = {"smoke": (128, 20000), "laptop": (512, 20000), "paper": (4096, 20000)}[scale]

    def show(_: Results, folder: Path) -> list[Shown]:
        rows = []
        for label, graph in _networks(nodes).items():
            found = simulate(graph, dimensions, 100, noise=0.001)
            away = f"{100 * (found.plateau / found.theory - 1):+.2f} %"
            rows.append([label, f"{found.plateau:.5f}", f"{found.theory:.5f}", away, f"{100 * found.error:.2f} %"])
        heads = ["network", "plateau of σ_ap", "σ_init·‖v_steady‖", "difference", "standard error"]
        return [
            Sheet(f"The Gaussian model, n = {nodes:,}, d = {dimensions:,}, σ_noise = 0.001, 100 rounds", heads, rows)
        ]

    return Exhibit("the Gaussian model's plateau against theory", show)


def mixing_exhibit(scale: Scale) -> Exhibit:
    """The time in which σ_an stabilises beside the mixing time, over families and sizes."""
    powers = {"smoke": range(5, 8), "laptop": range(5, 11), "paper": range(5, 14)}[scale]

    def show(_: Results, folder: Path) -> list[Shown]:
        families: dict[str, Any] = {
            "8-regular": lambda n: _network("regular", n, 0, k=8),
            "Erdős–Rényi, ⟨k⟩ = 8": lambda n: _network("er", n, 0, p=8 / (n - 1)),
            "Barabási–Albert, m = 4": lambda n: _network("ba", n, 0, m=4),
            "two-dimensional torus": lambda n: _network("torus", n, 0),
        }
        lines, rows = [], []
        for i, (label, make) in enumerate(families.items()):
            found = {2**p: _settled(make(2**p)) for p in powers if label != "two-dimensional torus" or p % 2 == 0}
            points = np.array([[n, d.stabilisation or np.nan] for n, d in found.items()], np.float64).T
            lines.append(Line(Curve.bare(*points), label, colour(i)))
            last = list(found)[-1]
            rows.append(
                [
                    label,
                    f"{last:,}",
                    f"{found[last].stabilisation}",
                    f"{found[last].mixing_time:.1f}",
                    f"{(found[last].stabilisation or np.nan) / found[last].mixing_time:.1f}",
                    *_explained(*points),
                ]
            )
        panel = Panel("Rounds until σ_an is stable", lines, x="nodes", y="rounds")
        heads = ["network", "nodes", "σ_an stable (rounds)", "mixing time (rounds)", "ratio", *LAWS]
        note = "The last three columns: what share of the variance over sizes a law with an offset explains, R²."
        return [draw_panels([panel], folder / "mixing.png"), Sheet("At the largest size", heads, rows, [note])]

    return Exhibit("the time in which nodes come together, by family and size", show)


LAWS: dict[str, Callable[[Floats], Floats]] = {
    "log n": np.log,
    "log² n": lambda n: np.log(n) ** 2,
    "n^(2/d), d = 2": lambda n: n,
}
"""How theory has the time grow: on k-regular networks, on Erdős–Rényi ones, on a torus of d dimensions."""


def _explained(sizes: Floats, times: Floats) -> list[str]:
    """R² of the times against each law, by least squares."""
    known = np.isfinite(times)
    if known.sum() < 3 or np.ptp(times[known]) == 0:
        return ["—"] * len(LAWS)
    return [f"{np.corrcoef(law(sizes[known]), times[known])[0, 1] ** 2:.3f}" for law in LAWS.values()]


def _settled(graph: Graph) -> Dynamics:
    """The Gaussian model simulated until σ_an has settled, at most 10,000 rounds."""
    rounds = 100
    while (found := simulate(graph, 200, rounds, noise=0.001)).stabilisation is None and rounds < 10_000:
        rounds *= 2
    return found


# The gain by gossip.


def gossip_exhibit(scale: Scale, base: Settings, gain: Settings) -> Exhibit:
    """The gain estimated by gossip: its error by round, and training with it beside training with the exact gain."""
    nodes = {"smoke": 16, "laptop": 16, "paper": 64}[scale]
    items, batches, rounds = {"smoke": (60, 4, 40), "laptop": (512, 8, 60), "paper": (512, 8, 2000)}[scale]
    common = {**base, "nodes": nodes, "items": items, "batches": batches, "rounds": rounds}
    common["topology"] = {"name": "ba", "m": 4}
    asked = {**gain, "initialiser": {"name": "gain", "estimate": "gossip"}}
    runs = {"asked": Configuration(**common, methods={"exact": gain, "by gossip": asked})}

    def show(found: Results, folder: Path) -> list[Shown]:
        rounds_asked = 12
        networks = {"ER(200), ⟨k⟩ = 8": _network("er", 200, 0, p=8 / 199), "BA(200, 4)": _network("ba", 200, 0, m=4)}
        surveyed: dict[str, GossipEstimates] = {}
        rows = []
        for label, graph in networks.items():
            for lost in (0.0, 0.2):
                by_minima = _asked_around(graph, rounds_asked, 1 - lost)
                pushed = gossip_push_sum(graph, 60, loss=lost)
                name = f"{label}, {lost:.0%} of messages lost" if lost else label
                surveyed[name] = by_minima
                reached = by_minima.rounds_until(0.05)
                rows.append(
                    [
                        name,
                        f"{reached}",
                        f"{100 * by_minima.errors[-1].max():.2f} %",
                        f"{100 * pushed.errors[-1].max():.2f} %",
                    ]
                )
        heads = [
            "network",
            "rounds until every node is within 5 %",
            f"worst node after {rounds_asked}",
            "push-sum, worst after 60",
        ]
        curves = [
            line(found.records["asked"].filter(pl.col("method") == m), m, colour(i), SOLID if i else DASHED)
            for i, m in enumerate(("exact", "by gossip"))
        ]
        return [
            draw_gossip(surveyed, folder / "gossip.png"),
            Sheet("The gain by minima of exponentials, 4,000 a message", heads, rows),
            draw_panels([Panel(f"Training on BA({nodes}, 4)", curves)], folder / "gossip-training.png"),
        ]

    scaled = (
        ""
        if scale == "paper"
        else f"Training scaled down: n = {nodes}, {rounds} rounds, a smaller MLP, a tenth of the test set."
    )
    return Exhibit("the gain found out by gossip", show, runs, scaled)


def _asked_around(graph: Graph, rounds: int, links: float) -> GossipEstimates:
    """Every node's estimate of the gain after each round of gossip, where links work with this probability."""
    job = replace(on(graph), faults=Faults(0, links))
    found = np.stack([np.full(graph.nodes, np.inf), *survey(job, 4000, rounds)])
    return GossipEstimates(np.where(np.isnan(found), np.inf, found), graph.gain())

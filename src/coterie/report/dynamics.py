"""Figures of the early-stage model: σ_ap and σ_an by round, and the error of the gain by gossip."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coterie.network.dynamics import Dynamics
from coterie.network.estimates import GossipEstimates
from coterie.report.curves import FAINT, LOOK, PALETTE, save

_GREY = "#666666"


def draw_dynamics(found: Dynamics, path: str | Path, title: str = "Early stage") -> Path:
    """Draw σ_ap and σ_an against rounds, with the plateau that theory predicts and the stabilisation time."""
    with mpl.rc_context(LOOK):
        figure, axes = _axes("communication round", "standard deviation", title)
        rounds = np.arange(found.rounds + 1)
        curves = {"σ_ap, over a node's parameters": found.across_parameters, "σ_an, over nodes": found.across_nodes}
        for (label, values), colour in zip(curves.items(), PALETTE, strict=False):
            axes.plot(rounds, np.where(values > 0, values, np.nan), color=colour, linewidth=1.8, label=label)
        theory = f"σ_init·‖v_steady‖ = {found.theory:.4g}"
        axes.axhline(found.theory, color=PALETTE[0], linestyle=(0, (6, 4)), linewidth=1.1, label=theory)
        if found.noise:
            axes.axhline(found.noise, color=_GREY, linestyle=":", linewidth=1.1, label=f"noise {found.noise:g}")
        if found.stabilisation is not None:
            label = f"σ_an stable from round {found.stabilisation}"
            axes.axvline(found.stabilisation, color=PALETTE[1], linestyle=(0, (1, 1.5)), linewidth=1.2, label=label)
        axes.set_yscale("log")
        axes.set_xlim(0, found.rounds)
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
        return save(figure, path)


def draw_gossip(found: Mapping[str, GossipEstimates], path: str | Path, title: str = "Gain by gossip") -> Path:
    """Draw the error of the gain against rounds of gossip: the median node, and the worst as a thin line."""
    with mpl.rc_context(LOOK):
        figure, axes = _axes("round of gossip", "relative error of the gain", title)
        for (name, trace), colour in zip(found.items(), PALETTE, strict=False):
            errors = np.where(np.isfinite(trace.errors), trace.errors, np.nan)
            known = np.isfinite(errors).all(axis=1)
            rounds = np.arange(len(errors))[known]
            axes.plot(rounds, np.median(errors[known], axis=1), color=colour, linewidth=1.8, label=name)
            axes.plot(rounds, errors[known].max(axis=1), color=colour, linewidth=0.8)
        axes.set_yscale("log")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
        return save(figure, path)


def _axes(x: str, y: str, title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.2, 4.2))
    axes = figure.subplots()
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color=FAINT, linewidth=0.7)
    return figure, axes

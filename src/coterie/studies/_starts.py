"""What the exhibits of the initialisation study have in common: settings by scale, and how a run ended."""

from typing import Any

import polars as pl

from coterie.report.plateaus import interval_cell
from coterie.runs.exhibits import Scale

FIRST = {"merge_first": True, "clamp": 10.0}
HE = {"rule": "decavg", "initialiser": "he", **FIRST}
GAIN = {"rule": "decavg", "initialiser": "gain"}
CENTRAL = {"rule": "isolation", "initialiser": "he", "pooled": True}

SGD = {"lr": 0.001, "momentum": 0.5, "batch_size": 16, "validation": 0.0}
MNIST = {"dataset": "mnist", "model": {"name": "mlp", "sizes": [512, 256, 128]}, **SGD}
SMALL = {**MNIST, "model": {"name": "mlp", "sizes": [128, 64, 32]}, "lr": 0.03, "test_share": 0.1}
DIGITS = {
    "dataset": "digits",
    "model": {"name": "mlp", "sizes": [64, 32, 32]},
    **SGD,
    "lr": 0.1,
    "batch_size": 8,
}


def pick(scale: Scale, smoke: Any, laptop: Any, paper: Any) -> Any:
    """One of three, by scale."""
    return {"smoke": smoke, "laptop": laptop, "paper": paper}[scale]


def seeds(scale: Scale) -> tuple[int, ...]:
    """The seeds of every run, unless it says otherwise."""
    return tuple(range(pick(scale, 2, 3, 12)))


def plain(scale: Scale) -> dict[str, Any]:
    """Setting A, which most figures vary: the complete graph."""
    chosen: dict[str, Any] = pick(scale, DIGITS, SMALL, MNIST)
    return {**chosen, "seeds": seeds(scale), "partition": "iid", "topology": "complete"}


def scaled_down(scale: Scale, laptop: str, tested: str = "a tenth of the test set") -> str:
    """The sentence that says how the runs were scaled down; none at the paper's scale."""
    if scale == "paper":
        return ""
    smoke = "digits, a small MLP, lr 0.1, batches of 8, few items and rounds"
    return f"Scaled down: {f'{laptop}, {tested}' if scale == 'laptop' else smoke}."


def last_loss(records: pl.DataFrame, method: str) -> str:
    """The test loss in the last round, mean over nodes, with its interval over seeds."""
    mine = records.filter(pl.col("method") == method)
    ends = mine.filter(pl.col("round") == pl.col("round").max()).group_by("seed").agg(pl.col("test_loss").mean())
    return interval_cell([float(v) for v in ends["test_loss"]], digits=3)

"""When a curve of validation losses has become flat: by client, or by round, epoch by epoch.

Curves are the measures `epoch_loss` of a run (`--measures epochs`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from coterie.errors import RunError
from coterie.node.measures import EPOCHS
from coterie.report.sheets import Sheet

NEVER = "NC"
"""Not converged."""
By = Literal["client", "round"]
Turn = tuple[int, int, int]
"""Whose turn it is, or which round, and how many epochs the model has behind it when it begins and when it ends."""


@dataclass(frozen=True)
class Flatness:
    """What counts as flat: a slope on the chart, once the loss has begun to fall.

        |m(e + 1) − m(e)| < factor / E · loss(0) and m(e) < guard · loss(0) at `patience` epochs e in a row,
        m(e) the mean over the `window` epochs that end with e

    With `relative` the slope is measured by m(e) itself instead of the starting loss.

    The rule that reproduces the tables for equal data of Jiang et al., Performance Analysis of Decentralized Federated
    Learning Deployments, 2025, who do not say theirs.
    """

    factor: float = 0.6
    window: int = 5
    patience: int = 5
    guard: float = 0.9
    relative: bool = False

    def __post_init__(self) -> None:
        if not (self.factor > 0 and self.guard > 0 and self.window >= 1 and self.patience >= 1):
            raise RunError("what counts as flat", expected="factor and guard above 0, window and patience 1 or more")


def flat_epochs(losses: ArrayLike, total: int, flatness: Flatness | None = None) -> NDArray[np.bool_]:
    """At which epochs a curve is flat: those of all runs of at least `patience` epochs; losses after 0, 1, 2, … epochs.

    A budget of `total` epochs is what a slope is measured by.
    """
    rule, curve = flatness or Flatness(), np.asarray(losses, np.float64)
    found = np.zeros(len(curve), np.bool_)
    if len(curve) <= rule.window:
        return found
    means = np.convolve(curve, np.full(rule.window, 1 / rule.window), "valid")  # means[i] ends with i + window − 1
    scale = means[:-1] if rule.relative else curve[0]
    calm = (np.abs(np.diff(means)) < rule.factor / total * scale) & (means[:-1] < rule.guard * curve[0])
    edges = np.flatnonzero(np.diff(np.concatenate([[False], calm, [False]]).astype(np.int8)))
    for first, last in edges.reshape(-1, 2).tolist():
        if last - first >= rule.patience:
            found[first + rule.window - 1 : last + rule.window - 1] = True
    return found


def convergence_epoch(losses: ArrayLike, total: int, flatness: Flatness | None = None) -> int | None:
    """The first epoch at which a curve is flat, None if it never is."""
    flat = np.flatnonzero(flat_epochs(losses, total, flatness))
    return int(flat[0]) if len(flat) else None


def turn_epochs(
    losses: ArrayLike, turns: Iterable[Turn], total: int, flatness: Flatness | None = None
) -> dict[int, int | None]:
    """For each client, or round, the first epoch of its turns at which the curve is flat.

    The curve is that of the model that is handed on. Who receives a flat model has the epoch at which its turn begins;
    of several turns the first flat one counts; None for a client none of whose turns is flat.
    """
    flat = flat_epochs(losses, total, flatness)
    found: dict[int, int | None] = {}
    for key, first, last in turns:
        if found.setdefault(key, None) is None and flat[first:last].any():
            found[key] = first + int(np.argmax(flat[first:last]))
    return found


def convergence(measures: pl.DataFrame, by: By | None = None, flatness: Flatness | None = None) -> pl.DataFrame:
    """The convergence epoch of each client or round, by method and seed; null where it has not converged.

    Where a model walks from node to node its own curve counts, and clients have their turns on it. Where all nodes
    train at once, a round has its part of the mean curve of all nodes, and a client the curve of its own model. If not
    said otherwise it is by client where a model walks, else by round.
    """
    return convergence_by_rule(measures, {"": flatness or Flatness()}, by).drop("rule")


def convergence_by_rule(measures: pl.DataFrame, rules: Mapping[str, Flatness], by: By | None = None) -> pl.DataFrame:
    """The same by several rules, each by its name in the column `rule`."""
    drawn = measures.filter(pl.col("measure") == EPOCHS[0])
    if drawn.is_empty():
        raise RunError("no curves of losses", cure="Run it with --measures epochs, with validation data.")
    rows = []
    for (method, seed), own in drawn.group_by("method", "seed", maintain_order=True):
        walks = _walks(own)
        kind: By = by or ("client" if walks else "round")
        epochs = _epochs(own, kind, walks)
        rows += [
            (name, method, seed, kind, which, epoch)
            for name, flatness in rules.items()
            for which, epoch in epochs(flatness).items()
        ]
    schema = {"method": pl.String, "seed": pl.Int64, "by": pl.String, "which": pl.Int64, "epoch": pl.Int64}
    return pl.DataFrame(rows, schema={"rule": pl.String, **schema}, orient="row")


def _epochs(own: pl.DataFrame, by: By, walks: bool) -> Callable[[Flatness], dict[int, int | None]]:
    """What gives the convergence epochs of one method and seed by a rule, in the order of clients or rounds."""
    total = int(own["epoch"].to_numpy().max())
    if by == "client" and not walks:
        nodes = own["node"].unique().sort().to_list()
        curves = {n: _curve(own.filter(pl.col("node") == n)) for n in nodes}
        return lambda rule: {n: convergence_epoch(curve, total, rule) for n, curve in curves.items()}
    keys = ["round", "node"] if walks else ["round"]
    spans = own.group_by(keys).agg(pl.col("epoch").min().alias("first"), pl.col("epoch").max().alias("last"))
    named = spans.with_columns(which=pl.col("node" if by == "client" else "round")).sort("first", "last")
    turns, curve = named.select("which", "first", "last").rows(), _curve(own)
    return lambda rule: dict(sorted(turn_epochs(curve, turns, total, rule).items()))


def _walks(own: pl.DataFrame) -> bool:
    """Whether nodes train one after the other, each going on where another ended."""
    spans = own.group_by("round", "node").agg(pl.col("epoch").min().alias("first"), pl.col("epoch").max().alias("last"))
    firsts, lasts = spans.sort("first", "last").select("first", "last").to_numpy().T
    return spans["node"].n_unique() > 1 and bool((firsts[1:] >= lasts[:-1]).all())


def _curve(own: pl.DataFrame) -> NDArray[np.float64]:
    """The mean loss over nodes after each epoch: of trained models, and of those at the very start.

    A round begins with what a merge has left, under the epoch that the round before ended with: that is left out.
    """
    turns = ["round", "node"]
    trained = own.filter((pl.col("epoch") > pl.col("epoch").min().over(turns)) | (pl.col("epoch") == 0))
    means = trained.group_by("epoch").agg(pl.col("value").mean()).sort("epoch")
    epochs = means["epoch"].to_numpy()
    if not np.array_equal(epochs, np.arange(len(epochs))):
        cure = "Evaluate all rounds (--evaluate 1), and train for whole epochs."
        got = f"{len(epochs)} up to {epochs.max(initial=0)}"
        raise RunError("curves of losses with gaps", expected="a loss after every epoch", got=got, cure=cure)
    return means["value"].to_numpy()


def convergence_sheets(found: pl.DataFrame) -> list[Sheet]:
    """By client and by round: the median over seeds of each method, NC where most seeds have not converged."""
    return [_sheet(mine, str(by)) for (by,), mine in found.sort("by").group_by("by", maintain_order=True)]


def _sheet(found: pl.DataFrame, by: str) -> Sheet:
    whose, seeds, rows = found["which"].unique().sort().to_list(), found["seed"].n_unique(), []
    for (method,), mine in found.group_by("method", maintain_order=True):
        cells = [mine.filter(pl.col("which") == which)["epoch"].to_list() for which in whose]
        rows.append([str(method), *map(median_cell, cells)])
    title = f"Epoch at which the loss is flat, by {by}, median of {seeds} seed{'s' if seeds > 1 else ''}"
    notes = [f"{NEVER}: not converged."] if any(NEVER in row for row in rows) else []
    return Sheet(title, ["method", *map(str, whose)], rows, notes)


def median_cell(epochs: Sequence[int | None]) -> str:
    """The median as a cell; NC where most have not converged."""
    if not epochs:
        return ""
    middle = float(np.median([np.inf if e is None else e for e in epochs]))
    return f"{middle:.0f}" if np.isfinite(middle) else NEVER

"""Tables and figures of the deployments paper: six ways to train one model on several devices."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from coterie.report.convergence import By, convergence, median_cell
from coterie.report.curves import Curve
from coterie.report.losses import mean_curves
from coterie.report.panels import DASHED, SOLID, Line, Panel, colour, draw_panels
from coterie.report.sheets import Sheet
from coterie.report.statistics import mean_ci
from coterie.report.tables import humanise
from coterie.report.theory import theory_sheet
from coterie.runs.exhibits import Exhibit, Results, Scale, Shown
from coterie.runs.theory import theory
from coterie.studies._deployments_claims import claims, scores
from coterie.studies._deployments_runs import BASELINE, DEPLOYMENTS, IID, RELAYS, ModelFamily, families
from coterie.studies._deployments_tried import tried

NUMBERS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "_deployments.toml").read_text("utf-8"))
MISPRINT = "*: misprinted in the paper, or out of the client's turn."
CONVERGED = {
    IID: {"svm": "IV", "logistic": "V", "resnet": "VI", "distilbert": "VII", "minigpt": "VIII"},
    "level2": {"svm": "X", "logistic": "XI", "resnet": "XII", "distilbert": "XIII"},
}
BY_ROUND = ("VI", "VII")
"""Tables that show a star and a mesh by round instead of by client."""


def deployments(scale: Scale) -> dict[str, Exhibit]:
    """Six ways to train one model on several devices: lines and rings, continuous or aggregate, a star and a mesh.

    Reference: Jiang, Fan, Halabi, Haque, Performance Analysis of Decentralized Federated Learning Deployments, 2025
    """
    if scale == "full":
        return {}
    known = families(scale)
    runs = {name: {split: family.run(split) for split in family.splits} for name, family in known.items()}
    made = {"table III": _baselines(known)}
    for split, tables in CONVERGED.items():
        for name, number in tables.items():
            if name in known:
                made[f"table {number}"] = _convergence(known[name], name, split, BY_ROUND.count(number) == 0)
        label = {IID: "table IX", "level2": "table XIV"}[split]
        made[label] = _scores({n: f for n, f in known.items() if split in f.splits}, split)
    for name, family in known.items():
        made[f"figure {name}"] = _losses(family, name, runs[name])
        if family.levels:
            made[f"table {name}"] = _levels(family, runs[name])
    for name in ("svm", "logistic"):
        told = {split: NUMBERS["score"][split][name] for split in CONVERGED}
        made[f"table tried-{name}"] = tried(known[name], NUMBERS["convergence"][name], told)
    made["table cost"] = _costs(known)
    made["table bounds"] = _bounds({name: known[name] for name in ("svm", "logistic")})
    every = {f"{name}: {split}": e for name, splits in runs.items() for split, e in splits.items()}
    every |= {f"{name}: {BASELINE}": family.alone() for name, family in known.items()}
    scaled = "All runs of this study; how each family differs from the paper's stands at its own tables."
    made["table claims"] = Exhibit("what the paper claims", lambda found, _: claims(found, known), every, scaled)
    return made


def _scaled(known: Mapping[str, ModelFamily]) -> str:
    return " ".join(f"{family.title}: {family.scaled}" for family in known.values() if family.scaled)


# Convergence (Tables III to VIII and X to XIII).


def _baselines(known: Mapping[str, ModelFamily]) -> Exhibit:
    """Table III: one machine that has all data."""
    runs = {name: family.alone() for name, family in known.items()}

    def show(found: Results, folder: Path) -> list[Shown]:
        rows = []
        for name, family in known.items():
            flat = convergence(found.measures[name], "client", family.flatness)["epoch"].to_list()
            mean, half = mean_ci(scores(found.records[name], BASELINE, family.score).values())
            beside = NUMBERS["baseline"].get(name, ["", "", ""])
            ours = [f"{median_cell(flat)} of {family.budget}", f"{mean:.3f} ± {half:.3f}"]
            rows.append([family.title, ours[0], f"{beside[0]} of {beside[1]}", ours[1], beside[2]])
        heads = ["model", "convergence epoch", "paper", "score", "paper"]
        return [Sheet("One machine: convergence epoch, median over seeds, and score", heads, rows, [_SCORES])]

    return Exhibit("one machine", show, runs, _scaled(known))


_SCORES = (
    "Scores are F1 on test samples, binary for two classes and macro for more; of the vision-language model, the "
    "strict 0/1 score: answers to four prompts that name the right thing and no other."
)


def _convergence(family: ModelFamily, name: str, split: str, by_client: bool) -> Exhibit:
    """The epoch at which each client, or round, has converged, beside the paper's."""
    beside: Mapping[str, Sequence[str]] = NUMBERS["convergence"].get(name, {}).get(split, {})
    by: By | None = "client" if by_client else None

    def show(found: Results, folder: Path) -> list[Shown]:
        epochs = convergence(found.measures[split], by, family.flatness)
        rows = []
        for method, title in DEPLOYMENTS.items():
            mine = epochs.filter(pl.col("method") == method)
            cells = [median_cell(mine.filter(pl.col("which") == w)["epoch"].to_list()) for w in _order(mine)]
            theirs = beside.get(method, [""] * len(cells))
            rows.append([title, *(cell for pair in zip(cells, theirs, strict=True) for cell in pair)])
        what = "client" if by_client else "client, or round of a star and a mesh,"
        heads = ["deployment", *(h for i in range(1, 6) for h in (str(i), "paper"))]
        sheet = Sheet(f"Epoch by which each {what} has converged, median over seeds", heads, rows, _notes(family, rows))
        return [sheet]

    return Exhibit(
        f"convergence of {family.title}, {family.splits[split]}", show, {split: family.run(split)}, family.scaled
    )


def _order(mine: pl.DataFrame) -> list[int]:
    return mine["which"].unique().sort().to_list()


def _notes(family: ModelFamily, rows: Sequence[Sequence[str]]) -> list[str]:
    rule = family.flatness
    told = (
        f"NC: not converged. Converged: the mean of {rule.window} epochs' validation losses changes by less than "
        f"{rule.factor:g}/{family.budget} of the starting loss an epoch, {rule.patience} epochs in a row, once below "
        f"{rule.guard:g} of it."
    )
    return [told, MISPRINT] if any("*" in cell for row in rows for cell in row) else [told]


# Scores (Tables IX and XIV), levels of skew, curves, cost.


def _scores(known: Mapping[str, ModelFamily], split: str) -> Exhibit:
    runs = {name: family.run(split) for name, family in known.items()}

    def show(found: Results, folder: Path) -> list[Shown]:
        rows = []
        for name, family in known.items():
            beside = NUMBERS["score"][split].get(name, [""] * len(DEPLOYMENTS))
            cells = [_score(found.records[name], method, family.score) for method in DEPLOYMENTS]
            rows.append([family.title, *(cell for pair in zip(cells, beside, strict=True) for cell in pair)])
        heads = ["model", *(h for title in DEPLOYMENTS.values() for h in (title, "paper"))]
        notes = [_SCORES, _MEANS, *([MISPRINT] if split == IID else [])]
        return [Sheet("Score ± 95 % interval over seeds", heads, rows, notes)]

    return Exhibit(f"scores, {'IID' if split == IID else 'level 2'}", show, runs, _scaled(known))


_MEANS = "Means over devices after their last turn in lines and rings, over devices and rounds in a star and a mesh."


def _score(records: pl.DataFrame, method: str, column: str) -> str:
    mean, half = mean_ci(scores(records, method, column).values())
    return f"{mean:.3f} ± {half:.3f}"


def _levels(family: ModelFamily, runs: Mapping[str, Any]) -> Exhibit:
    """Scores and convergence at every level of skew."""

    def show(found: Results, folder: Path) -> list[Shown]:
        scored, flat = [], []
        for method, title in DEPLOYMENTS.items():
            scored.append([title, *(_score(found.records[split], method, family.score) for split in runs)])
            flat.append([title, *(_converged(found.measures[split], method, family) for split in runs)])
        heads = ["deployment", *(family.splits[split] for split in runs)]
        return [
            Sheet("Score ± 95 % interval over seeds", heads, scored, [_MEANS]),
            Sheet("Clients, or rounds of a star and a mesh, that have converged", heads, flat, [_EPOCH]),
        ]

    return Exhibit(f"{family.title} by level of skew", show, runs, family.scaled)


_EPOCH = "In brackets: the median over seeds of the first epoch by which any has."


def _converged(measures: pl.DataFrame, method: str, family: ModelFamily) -> str:
    mine = convergence(measures.filter(pl.col("method") == method), None, family.flatness)
    first = mine.group_by("seed").agg(pl.col("epoch").min())["epoch"].to_list()
    share = 1 - mine["epoch"].null_count() / len(mine)
    return f"{share:.0%} ({median_cell(first)})"


def _losses(family: ModelFamily, name: str, runs: Mapping[str, Any]) -> Exhibit:
    """Validation loss by epoch in every deployment, a panel for each split."""

    def show(found: Results, folder: Path) -> list[Shown]:
        panels = []
        for split in runs:
            curves = mean_curves(found.measures[split])
            lines = [
                _line(curves.filter(pl.col("method") == m), title, i)
                for i, (m, title) in enumerate(DEPLOYMENTS.items())
            ]
            panels.append(Panel(f"{family.title}, {family.splits[split]}", lines, X, "validation loss", log_x=False))
        return [draw_panels(panels, folder / f"losses-{name}.png")]

    return Exhibit(f"validation loss of {family.title}", show, runs, family.scaled)


X = "epochs that the model has behind it"


def _line(curves: pl.DataFrame, label: str, place: int) -> Line:
    points = []
    for (epoch,), own in curves.group_by("epoch", maintain_order=True):
        mean, half = mean_ci(own["value"])
        points.append((epoch, mean, mean - half, mean + half))
    drawn = Curve(*np.array(sorted(points), np.float64).T)
    return Line(drawn, label, colour(place), SOLID if place < len(RELAYS) else DASHED)


def _costs(known: Mapping[str, ModelFamily]) -> Exhibit:
    """What travels: in aggregate deployments two models, and of any model what is trained."""
    runs = {name: family.run(IID) for name, family in known.items()}

    def show(found: Results, folder: Path) -> list[Shown]:
        rows = []
        for name, family in known.items():
            sent = found.records[name].group_by("method", "seed", "node").agg(pl.col("sent_bytes").max())
            each = sent.group_by("method", "seed").agg(pl.col("sent_bytes").sum())
            mean = dict(each.group_by("method").agg(pl.col("sent_bytes").mean()).rows())
            rows.append([family.title, *(humanise(mean[method]) for method in DEPLOYMENTS)])
        return [Sheet("Sent by all devices in the whole run", ["model", *DEPLOYMENTS.values()], rows)]

    return Exhibit("what travels", show, runs, _scaled(known))


def _bounds(known: Mapping[str, ModelFamily]) -> Exhibit:
    """Theory: the gap to the optimum of the two convex families, and what is proved that it stays below."""

    def show(found: Results, folder: Path) -> list[Shown]:
        shown: list[Shown] = []
        for family in known.values():
            for split, title in family.splits.items():
                what = theory(family.convex(split))
                sheet = theory_sheet(what.gaps)
                first = next(iter(what.constants.values()))
                facts = ", ".join(f"{name} {value:.3g}" for name, value in first.facts().items())
                rows = [[DEPLOYMENTS[method], *cells] for method, *cells in sheet.rows]
                notes = [*sheet.notes, f"With the first seed: {facts}."]
                shown.append(Sheet(f"{family.title}, {title}: {_lower(sheet.title)}", sheet.headings, rows, notes))
        return shown

    text = "Three seeds; squared hinge in place of hinge, and weight decay 0.01, without which nothing is proved."
    return Exhibit("what theory says", show, scaled=text)


def _lower(title: str) -> str:
    return title[:1].lower() + title[1:]

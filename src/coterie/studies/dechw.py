"""Tables and figures of the second-order paper: averaging weighted by curvature (DecHW)."""

import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from coterie.config.configuration import Configuration
from coterie.report.curves import plot_accuracy
from coterie.report.panels import Panel, colour, draw_panels, line
from coterie.report.races import (
    absolute,
    accuracy_sheet,
    bytes_sheet,
    labelled,
    of_best,
    of_own,
    pairs_sheet,
    times_sheet,
)
from coterie.report.statistics import methods
from coterie.runs.exhibits import Exhibit, Results, Scale, Shown
from coterie.studies._cells import dechw_cells
from coterie.studies._contenders import BASELINES, OURS, WITH_GAIN, named
from coterie.studies._dechw_inside import curvature_exhibit, spread_exhibit, style, trace_exhibit
from coterie.studies._race_claims import DECHW, DECHW_SOONER, judged, number
from coterie.studies._scales import FRESH, describe_scale, quickened, rounds_to_evaluate
from coterie.studies.decdiff import allocations

PAPER = "50 nodes, all images, 1,000 rounds, 5 runs"
NUMBERS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "_dechw.toml").read_text("utf-8"))
CORE = {"dechetero": "DecHetero", "cfa": "CFA", "decdiff": "DecDiff", "decdiff-vt": "DecDiff (VT)", "dechw": "DecHW"}
VARIANTS = {
    "dechw-star": "DecHW*",
    "dechw-none": "DecHW, not accumulated",
    "dechw-exponential": "DecHW, exponential",
    "dechw-lite": "DecHW from training's gradients",
}
NAMES = {**BASELINES, **CORE, **VARIANTS, **WITH_GAIN, **OURS}
DRAWN = {m: NAMES[m] for m in ("centralised", "decavg", *CORE, "dechw-star", "dechw-lite", "gain-decavg", *OURS)}
"""Methods in the figures of curves: as many as can be told apart."""
SETS = {"mnist": "MNIST", "fashion": "Fashion-MNIST", "cifar10": "CIFAR-10"}
"""The paper's data sets, in the order of its tables."""
CURVES = {"figure 3": "cifar10", "figure 8": "mnist", "figure 9": "fashion", "figure digits": "digits"}
SHARES = (0.5, 0.75, 0.9, 0.95)
TAIL = {"smoke": 5, "laptop": 1, "paper": 10}
"""How many of the last rounds Table I averages."""
THETA = 8
"""After how many rounds DecHW* stops sending Ĥ; in a thousand rounds it is 30."""
LEVELS = {"mnist": (0.5, 0.75, 0.85, 0.9), "fashion": (0.5, 0.7, 0.75, 0.8), "cifar10": (0.25, 0.35, 0.45, 0.5)}


def dechw(scale: Scale) -> dict[str, Exhibit]:
    """Averaging weighted by second-order information, on networks with skewed data and uncoordinated starts.

    Reference: Ahmad et al., DecHW: Heterogeneous Decentralized Federated Learning Exploiting Second-Order Information
    """
    if scale == "full":
        return dechw_cells()
    runs = _runs(scale)
    scaled = describe_scale(runs.values(), PAPER)
    if scale != "paper":
        scaled += f" DecHW* with θ = {THETA} (30); a node's curvature comes from one or two batches (a dozen)."

    def exhibit(title: str, show: Any, some: Mapping[str, Configuration] = runs) -> Exhibit:
        return Exhibit(title, show, some, scaled)

    hard = {name: e for name, e in runs.items() if name.startswith("cifar10")} or runs
    easy = {name: e for name, e in runs.items() if name.startswith("mnist")} or runs
    curves = {
        label: exhibit(f"accuracy and loss, {SETS.get(name, name)}", _curves, some)
        for label, name in CURVES.items()
        if (some := {run: e for run, e in runs.items() if run.startswith(name)})
    }
    return {
        "table I": exhibit("accuracy in the last rounds", partial(_accuracies, TAIL[scale])),
        "table II": exhibit("rounds to a share of the best method's accuracy", _to_best),
        "table III": _anchors(scale, hard, scaled),
        "table V": exhibit("rounds to absolute levels", _to_levels),
        "table VI": exhibit("rounds to a share of a method's own greatest accuracy", _to_own),
        "table cost": exhibit("bytes a node has sent by then", _bytes),
        "table claims": exhibit("what the paper claims, and whether it holds", _claims),
        "table pairs": exhibit("who is ahead of whom, seed by seed", _pairs),
        "table iid": _alike(easy, scaled),
        "figure 1": exhibit("averaging with and without a common start, and DecHW", _start, hard),
        "figure 2": curvature_exhibit(scaled, easy),
        "figure 4": exhibit("DecHW and DecHW*", _star, hard),
        "figure 5": Exhibit("the allocation of data", lambda _, folder: allocations(runs, folder), scaled=scaled),
        "figure 6": exhibit("DecHW without accumulation", _fresh, hard),
        "figure 7": trace_exhibit(scaled, easy),
        **curves,
        "figure bytes": exhibit("accuracy by bytes", _by_bytes),
        "figure spread": spread_exhibit(scaled, easy),
    }


def _runs(scale: Scale) -> dict[str, Configuration]:
    """One run for each data set and α, called `mnist 0.5`."""
    star = {} if scale == "paper" else {"dechw-star": {"rule": {"name": "dechw", "theta": THETA}}}
    common: dict[str, Any] = {
        "topology": {"name": "er", "p": 0.2, "connect": True},
        "methods": named(NAMES) | star,
        "validation": 0.0,
        "epochs": 5,
    }
    mnist = {"dataset": "mnist", "model": "cnn_mnist", "lr": 0.001, "momentum": 0.5}
    fashion = {"dataset": "fashion_mnist", "model": "cnn_fashion", "lr": 0.001, "momentum": 0.9}
    cifar = {"dataset": "cifar10", "model": "cnn_cifar", "lr": 0.01, "momentum": 0.9}
    if scale == "smoke":
        digits = {"dataset": "digits", "model": {"name": "mlp", "sizes": [64, 32]}, "batch_size": 16, "lr": 0.05}
        common |= {**digits, "momentum": 0.5, "nodes": 10, "rounds": 20, "epochs": 2, "seeds": (0, 1)}
        common["evaluate"] = rounds_to_evaluate(20, 2, TAIL[scale])
        return {"digits 0.5": Configuration(**common, partition=_dirichlet(0.5))}
    if scale == "paper":
        common |= {
            "nodes": 50,
            "rounds": 1000,
            "batch_size": 100,
            "seeds": tuple(range(5)),
            "evaluate": rounds_to_evaluate(1000, 5, TAIL[scale]),
        }
        sets = {"mnist": mnist, "fashion": fashion, "cifar10": cifar}
        alphas: tuple[float, ...] = (1.0, 0.5, 0.2)
    else:
        common |= {"nodes": 20, "batch_size": 100, "seeds": FRESH, "test_share": 0.02}
        common |= {"total": 500, "rounds": 20, "evaluate": rounds_to_evaluate(20, 4, TAIL[scale])}
        sets = {"mnist": {**mnist, "lr": quickened(0.5)}}
        sets["fashion"] = {**fashion, "model": "cnn_mnist", "lr": quickened(0.9)}
        alphas = (0.5,)
    return {
        f"{name} {alpha:g}": Configuration(**{**common, **settings}, partition=_dirichlet(alpha))
        for name, settings in sets.items()
        for alpha in alphas
    }


def _dirichlet(alpha: float) -> dict[str, Any]:
    return {"name": "dirichlet", "alpha": alpha, "min_samples": 10}


def _column(run: str) -> str:
    name, _, alpha = run.partition(" ")
    return f"{SETS.get(name, name)}, Dir({alpha})"


def _printed(run: str, kind: str) -> dict[str, str]:
    """What the paper prints of each method in the column of this run; nothing where it has no such column."""
    name, _, alpha = run.partition(" ")
    if name not in SETS or (kind == "anchors" and name != "cifar10"):
        return {}
    place = 3 * list(SETS).index(name) + ("1", "0.5", "0.2").index(alpha)
    return {m: row[place % len(row)] for m, row in NUMBERS[kind].items()}


def _accuracies(tail: int, found: Results, folder: Path) -> list[Shown]:
    printed = [_printed(run, "accuracy") for run in found.records]
    paper = {m: [row[m] for row in printed] for m in NUMBERS["accuracy"] if all(printed)}
    frames = {_column(run): records for run, records in found.records.items()}
    rounds = "at the last round" if tail == 1 else f"over the last {tail} rounds"
    title = f"Test accuracy {rounds} ± 95 % interval over seeds (the paper: over ten, percent, ± as a fraction)"
    return [accuracy_sheet(title, frames, NAMES, paper, last=tail)]


def _to(found: Results, kind: str, goal: Any, what: str, levels: Any = None) -> list[Shown]:
    sheets: list[Shown] = []
    for run, records in found.records.items():
        name, _, alpha = run.partition(" ")
        paper = NUMBERS[kind].get(name, {}).get(alpha, {})
        sheets.append(
            times_sheet(
                f"{_column(run)}: rounds to {what}",
                records,
                NAMES,
                levels.get(name, SHARES) if levels else SHARES,
                goal,
                paper,
            )
        )
    return sheets


def _to_best(found: Results, folder: Path) -> list[Shown]:
    return _to(found, "best", of_best(list(CORE)), "a share of the accuracy of the best of the paper's methods")


def _to_levels(found: Results, folder: Path) -> list[Shown]:
    return _to(found, "absolute", absolute, "an accuracy of", LEVELS)


def _to_own(found: Results, folder: Path) -> list[Shown]:
    return _to(found, "own", of_own, "a share of the method's own greatest accuracy")


def _bytes(found: Results, folder: Path) -> list[Shown]:
    return [
        bytes_sheet(
            f"{_column(run)}: sent by a node until an accuracy of",
            records,
            NAMES,
            LEVELS.get(run.partition(" ")[0], SHARES),
            absolute,
        )
        for run, records in found.records.items()
    ]


def _pairs(found: Results, folder: Path) -> list[Shown]:
    pairs = [("dechw", m) for m in ("decdiff-vt", "cfa", "dechetero")] + [("decdiff-vt", "cfa")]
    pairs += [("decdiff-vt", "dechetero"), ("dechw-lite", "dechw"), ("gain-decavg", "dechw")]
    pairs += [("variance-corrected", "dechw"), ("variance-corrected", "gain-decavg")]
    pairs += [("agreed-start", m) for m in ("dechw", "gain-decavg", "variance-corrected", "decavg")]
    frames = {_column(run): records for run, records in found.records.items()}
    return [pairs_sheet("Differences in test accuracy", frames, NAMES, pairs)]


def _claims(found: Results, folder: Path) -> list[Shown]:
    frames = {_column(run): records for run, records in found.records.items()}
    paper = {_column(run): {m: number(cell) for m, cell in _printed(run, "accuracy").items()} for run in found.records}
    return judged(frames, paper, NAMES, DECHW, DECHW_SOONER)


def _alike(runs: Mapping[str, Configuration], scaled: str) -> Exhibit:
    """The first of these runs, with data that are the same everywhere."""
    run, experiment = next(iter(runs.items()))
    name = run.partition(" ")[0]
    names = {m: NAMES[m] for m in ("centralised", "dechetero", "decdiff-vt", "dechw", "gain-decavg", *OURS)}
    taken = {f"{name} iid": experiment.model_copy(update={"methods": named(names), "partition": "iid"})}

    def show(found: Results, folder: Path) -> list[Shown]:
        (records,) = found.records.values()
        levels, title = LEVELS.get(name, SHARES), f"{SETS.get(name, name)}, IID"
        return [
            accuracy_sheet("Test accuracy at the last round", {title: records}, names, {}),
            times_sheet(f"{title}: rounds to an accuracy of", records, names, levels, absolute, {}),
            bytes_sheet(f"{title}: sent by a node until an accuracy of", records, names, levels, absolute),
        ]

    return Exhibit("with data that are alike", show, taken, f"{scaled} An IID partition, which the paper has not.")


# Curves.


def _panels(found: Results, names: Mapping[str, str], columns: tuple[str, ...] = ("test_accuracy",)) -> list[Panel]:
    """A panel for each column and run, a line for each method."""
    return [
        Panel(
            _column(run),
            [
                line(records.filter(pl.col("method") == m), name, colour(i), style(i), column=column)
                for i, (m, name) in enumerate(names.items())
                if m in methods(records)
            ],
            y=f"{column.replace('_', ' ')}, mean over nodes",
            log_x=False,
            log_y=column == "test_loss",
        )
        for column in columns
        for run, records in found.records.items()
    ]


def _curves(found: Results, folder: Path) -> list[Shown]:
    name = next(iter(found.records)).partition(" ")[0]
    names = {**CORE, **{m: NAMES[m] for m in ("gain-decavg", "agreed-start", "variance-corrected")}}
    panels = _panels(found, names, ("test_accuracy", "test_loss"))
    return [draw_panels(panels, folder / f"curves-{name}.png", columns=len(found.records))]


def _start(found: Results, folder: Path) -> list[Shown]:
    names = {"decavg": "DecHomo", "dechetero": "DecHetero", "dechw": "DecHW"}
    return [draw_panels(_panels(found, names), folder / "common-start.png", columns=3)]


def _star(found: Results, folder: Path) -> list[Shown]:
    names = {"dechw": "DecHW", "dechw-star": "DecHW*", "dechw-lite": "DecHW from training's gradients"}
    return [draw_panels(_panels(found, names), folder / "star.png", columns=3)]


def _fresh(found: Results, folder: Path) -> list[Shown]:
    names = {"dechw": "accumulated", "dechw-exponential": "exponential", "dechw-none": "not accumulated"}
    panels = _panels(found, names, ("test_accuracy", "test_loss"))
    return [draw_panels(panels, folder / "accumulation.png", columns=len(found.records))]


def _by_bytes(found: Results, folder: Path) -> list[Shown]:
    return [
        plot_accuracy(
            labelled(records, DRAWN),
            folder / f"bytes-{run.replace(' ', '-')}.png",
            x="sent_bytes",
            reference="Centralised",
        )
        for run, records in found.records.items()
    ]


# DESA.


def _anchors(scale: Scale, runs: Mapping[str, Configuration], scaled: str) -> Exhibit:
    names = {"desa": "DESA", "dechetero": "DecHetero", "dechw": "DecHW"}
    small = {} if scale == "paper" else {"protocol": {"name": "desa", "ipc": 5, "steps": 50}}
    taken = {
        run: e.model_copy(update={"methods": {**named(("dechetero", "dechw")), "desa": small}})
        for run, e in runs.items()
    }

    def show(found: Results, folder: Path) -> list[Shown]:
        printed = [_printed(run, "anchors") for run in found.records]
        paper = {m: [row[m] for row in printed] for m in names if all(printed)}
        frames = {_column(run): records for run, records in found.records.items()}
        return [
            accuracy_sheet(
                "Test accuracy at the last round (the paper, CIFAR-10 only: percent, ± as a fraction)",
                frames,
                names,
                paper,
            )
        ]

    fewer = "" if scale == "paper" else " 5 anchors a class, made in 50 steps (the paper: 50, in 1,000)."
    return Exhibit("DecHW against DESA", show, taken, scaled + fewer)

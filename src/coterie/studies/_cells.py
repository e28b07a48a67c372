"""Cells of the papers at their own size: model, data, batches, epochs and learning rate; only the rounds are fewer."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from coterie.config.configuration import Configuration
from coterie.report.cells import Milestone, cell_sheet
from coterie.report.panels import Panel, colour, draw_panels, line
from coterie.runs.exhibits import Exhibit, Results, Shown
from coterie.studies._contenders import named

NUMBERS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "_dechw.toml").read_text("utf-8"))
LOOKED = (*range(13), *range(14, 41, 2), *range(45, 251, 5))
"""The rounds after which accuracy is taken on all test images."""
ER = {"name": "er", "p": 0.2, "connect": True}


def dechw_cells() -> dict[str, Exhibit]:
    """DecHW's MNIST with Dir(0.5): rounds to half of the accuracy that the paper's best method ends with."""
    rounds = {"dechw": 60, "agreed-start": 60, "gain-decavg": 60, "variance-corrected": 60}
    rounds |= {"decdiff-vt": 100, "cfa": 250, "dechetero": 250}
    names = {
        "dechw": "DecHW",
        "agreed-start": "agreed start",
        "gain-decavg": "gain + DecAvg",
        "variance-corrected": "variance-corrected merge",
    }
    names |= {"decdiff-vt": "DecDiff (VT)", "cfa": "CFA", "dechetero": "DecHetero"}
    run = Configuration(
        dataset="mnist",
        model="cnn_mnist",
        lr=0.001,
        momentum=0.5,
        nodes=50,
        epochs=5,
        batch_size=100,
        validation=0.0,
        topology=ER,
        partition={"name": "dirichlet", "alpha": 0.5, "min_samples": 10},
        seeds=(20,),
        evaluate=LOOKED,
        rounds=max(rounds.values()),
        methods={m: {**own, "rounds": rounds[m]} for m, own in named(rounds).items()},
    )
    paper = NUMBERS["best"]["mnist"]["0.5"]
    best = float(NUMBERS["accuracy"]["dechw"][1].split()[0]) / 100
    goals = [
        Milestone(f"{share:.0%} of {best:.3f}", share * best, {m: row[i] for m, row in paper.items()})
        for i, share in enumerate((0.5, 0.75, 0.9))
    ]
    return {
        "cell mnist": _raced("MNIST, Dir(0.5), CNN, 50 nodes: rounds to shares of 0.910", "mnist", run, names, goals)
    }


def decdiff_cells(times: Mapping[str, tuple[str, ...]], centralised: float) -> dict[str, Exhibit]:
    """DecDiff's MNIST with Zipf-skewed data in the paper's range: rounds to shares of the centralised accuracy."""
    rounds = {"decdiff-vt": 100, "dechetero": 150, "cfa": 150, "fedavg": 60}
    names = {"decdiff-vt": "DecDiff+VT", "dechetero": "DecHetero", "cfa": "CFA", "fedavg": "FedAvg (server)"}
    run = Configuration(
        dataset="mnist",
        model={"name": "mlp", "sizes": [512, 256, 128]},
        lr=0.001,
        momentum=0.5,
        nodes=50,
        epochs=5,
        batch_size=100,
        topology=ER,
        partition={"name": "zipf", "gini": [0.7, 0.85]},
        seeds=(20,),
        evaluate=LOOKED,
        rounds=max(rounds.values()),
        methods={m: {**own, "rounds": rounds[m]} for m, own in named(rounds).items()},
    )
    goals = [
        Milestone(f"{share:.0%} of {centralised:.4f}", share * centralised, {m: row[i] for m, row in times.items()})
        for i, share in enumerate((0.5, 0.8, 0.9))
    ]
    return {
        "cell mnist": _raced(
            "MNIST, Zipf, MLP 512-256-128, 50 nodes: rounds to shares of the centralised accuracy",
            "mnist",
            run,
            names,
            goals,
        )
    }


def initialisation_cells(
    settings: Mapping[str, Any], he: Mapping[str, Any], gain: Mapping[str, Any]
) -> dict[str, Exhibit]:
    """Setting A: how long the loss stays on its plateau with 16 and 64 nodes, with and without the gain."""
    made = {}
    for n, rounds in ((16, 1500), (64, 4000)):
        run = Configuration(
            **{**settings, "test_share": 1.0},
            nodes=n,
            items=512,
            batches=8,
            partition="iid",
            topology="complete",
            seeds=(20,),
            rounds=rounds,
            methods={"gain": {**gain, "rounds": 400}, "he": he},
        )
        made[f"cell A{n}"] = _plateau(n, run)
    return made


def _raced(title: str, label: str, run: Configuration, names: Mapping[str, str], goals: list[Milestone]) -> Exhibit:
    def show(found: Results, folder: Path) -> list[Shown]:
        (records,) = found.records.values()
        here = [m for m in names if m in records["method"].unique()]
        lines = [
            line(records.filter(pl.col("method") == m), names[m], colour(list(names).index(m)), column="test_accuracy")
            for m in here
        ]
        levels = [(goal.level, goal.text, "#999999") for goal in goals[:1]]
        panel = Panel(title.partition(":")[0], lines, y="test accuracy, mean over nodes", log_y=False, levels=levels)
        planned = {m: e.rounds for m, e in run.resolved.items()}
        return [draw_panels([panel], folder / f"cell-{label}.png"), cell_sheet(records, names, planned, goals)]

    return Exhibit(title, show, {label: run}, SAME, so_far=True)


SAME = "The paper's model, data (all images), batches, epochs and learning rate; fewer rounds, one seed."


def _plateau(n: int, run: Configuration) -> Exhibit:
    names = {"gain": "with the gain", "he": "He alone"}

    def show(found: Results, folder: Path) -> list[Shown]:
        (records,) = found.records.values()
        here = [m for m in names if m in records["method"].unique()]
        lines = [line(records.filter(pl.col("method") == m), names[m], colour(i)) for i, m in enumerate(here)]
        planned = {m: e.rounds for m, e in run.resolved.items()}
        goals = [Milestone(f"loss below {level:g}", level, {}, "test_loss") for level in (2.07, 1.0, 0.5)]
        panel = Panel(f"Setting A, n = {n}", lines)
        return [draw_panels([panel], folder / f"cell-A{n}.png"), cell_sheet(records, names, planned, goals)]

    title = f"setting A: MNIST, MLP 512-256-128, complete graph of {n}, lr 0.001"
    return Exhibit(title, show, {f"A{n}": run}, SAME, so_far=True)

"""Bounds beside the gap to the optimum, in runs."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from coterie.app.cli import main
from coterie.report.theory import theory_sheet, verdict
from coterie.runs.experiment import Experiment
from coterie.runs.theory import theory

SETTINGS: dict[str, Any] = {
    "dataset": "breast_cancer",
    "model": {"name": "logistic", "one": True},
    "partition": {"name": "skew", "level": 2},
    "optimiser": {"name": "sgd", "lr": 0.001, "momentum": 0.0, "weight_decay": 0.1},
    "batch_size": 1,
    "nodes": 5,
    "budget": 10,
}


def test_gaps_fall_and_stay_below_the_bounds() -> None:
    methods = {name: {"initialiser": "zeros"} for name in ("continuous-ring", "aggregate-ring", "star", "mesh")}
    found = theory(Experiment(**SETTINGS, methods=methods))
    assert {*found.constants} == {(name, 0) for name in methods}
    assert (found.gaps["gap"] >= 0).all()
    assert (found.gaps["gap"] < found.gaps["bound"]).all()
    of = {
        name: mine.group_by("round", maintain_order=True).agg(pl.col("gap", "bound").mean())
        for (name,), mine in found.gaps.group_by("method")
    }
    for name, mine in of.items():
        assert mine["gap"].is_sorted(descending=True), name
    np.testing.assert_allclose(of["star"]["gap"], of["mesh"]["gap"], rtol=1e-4)
    assert of["star"]["bound"].is_sorted(descending=True)
    assert of["continuous-ring"]["bound"].n_unique() == 1
    sheet = theory_sheet(found.gaps)
    assert [row[0] for row in sheet.rows].count("continuous-ring") == 2
    assert sheet.notes[0].startswith("The bounds hold, and say little: they lie ")


def test_of_a_walk_the_gap_is_that_of_who_trained_last() -> None:
    found = theory(Experiment(**SETTINGS, methods={"continuous-linear": {"initialiser": "zeros"}}))
    assert found.gaps["turns"].to_list() == [1, 2, 3, 4, 5]
    ((_, _, gap, _, _),) = theory_sheet(found.gaps).rows
    assert float(gap) == pytest.approx(found.gaps["gap"][-1], rel=1e-2)


def test_the_sentence() -> None:
    means = pl.DataFrame({"method": ["a", "a", "b"], "gap": [0.1, 0.01, 0.0], "bound": [12.34, 12.34, 1e6]})
    assert (
        verdict(means) == "The bounds hold, and say little: they lie 120 to 1,200 times as high as the gaps they bound."
    )
    broken = means.with_columns(bound=pl.Series([0.05, 1.0, 1.0]))
    assert verdict(broken).endswith("not those that the bound is meant for: a.")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.toml").write_text(Experiment(**SETTINGS, rounds=2, methods=["star"]).to_toml())
    assert main(["theory", str(tmp_path / "x.toml"), "--budget", "5"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("μ", "L ", "σ²", "G²", "Z", "star", "times as high"))
    assert main(["theory", str(tmp_path / "x.toml"), "--objective", "hinge"]) == 2
    assert "--objective.squared true" in capsys.readouterr().err

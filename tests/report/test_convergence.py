"""When curves have become flat: on curves made by hand, and in runs of every deployment."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

import pictures
from coterie import records
from coterie.app.cli import main
from coterie.errors import RunError
from coterie.report.convergence import (
    Flatness,
    convergence,
    convergence_epoch,
    convergence_sheets,
    flat_epochs,
    turn_epochs,
)
from coterie.report.measures import draw_epochs
from coterie.runs.experiment import Experiment

LINE = np.concatenate([np.linspace(1, 0.2, 41), np.full(60, 0.2)])
"""It falls by 0.02 an epoch, and from epoch 40 on not at all."""
PAPER: dict[str, Any] = {
    "dataset": {"name": "breast_cancer", "test_share": 0.1},
    "validation": 1 / 9,
    "nodes": 5,
    "model": {"name": "svm", "one": True},
    "objective": "hinge",
    "partition": "everything",
    "batch_size": 1,
    "optimiser": {"name": "sgd", "lr": 1e-4, "momentum": 0.0},
    "measures": "epochs",
    "evaluate": 1,
    "engine": {"name": "local", "workers": 1},
}


class TestRule:
    def test_flat_once_the_mean_over_a_window_does_not_change(self) -> None:
        # m(e) is that of epochs e − 4 … e: it stands still from epoch 44 on. A slope counts as flat below 0.6 / 100.
        # m(43) = 0.204 and m(42) = 0.212: the change from 43 on is below it, that from 42 on is not.
        assert convergence_epoch(LINE, 100) == 43
        assert convergence_epoch(LINE, 100, Flatness(window=1)) == 40
        assert flat_epochs(LINE, 100).nonzero()[0].tolist() == list(range(43, 100))

    def test_a_gentler_slope_is_flat_if_the_factor_says_so(self) -> None:
        gentle = Flatness(factor=2.1)  # 0.021 an epoch; below 0.9 from epoch 8 on, whose mean is 0.88
        assert convergence_epoch(LINE, 100, gentle) == 8
        assert convergence_epoch(LINE, 1000, gentle) == 44  # by a budget ten times as long it is steep

    def test_a_curve_that_has_not_begun_to_fall_is_not_flat(self) -> None:
        late = np.concatenate([np.ones(30), LINE])
        assert convergence_epoch(late, 130) == 73
        assert convergence_epoch(late, 130, Flatness(guard=1.1)) == 4
        assert convergence_epoch(np.ones(50), 50) is None

    def test_patience_asks_for_epochs_in_a_row(self) -> None:
        stairs = np.repeat(np.linspace(0.8, 0.1, 8), 8)  # three changes of m in a row are nothing
        curve = np.concatenate([[1.0], stairs])
        assert convergence_epoch(curve, 100, Flatness(patience=3)) == 5
        assert convergence_epoch(curve, 100, Flatness(patience=4)) is None

    def test_a_slope_may_be_measured_by_the_loss_itself(self) -> None:
        halving = 0.5 ** np.arange(60.0)  # it halves for ever: what it falls by is half of what it is
        assert convergence_epoch(halving, 100, Flatness(factor=60, relative=True)) is not None
        assert convergence_epoch(halving, 100, Flatness(factor=40, relative=True)) is None
        assert convergence_epoch(halving, 100, Flatness(factor=0.4)) is not None

    def test_never(self) -> None:
        assert convergence_epoch(np.linspace(1, 0, 51), 50) is None
        assert convergence_epoch([1.0, 0.5], 2) is None
        assert convergence_epoch([], 2) is None

    def test_what_makes_no_sense_is_refused(self) -> None:
        with pytest.raises(RunError, match="what counts as flat: expected factor and guard above 0"):
            Flatness(window=0)


class TestTurns:
    def test_a_line(self) -> None:
        turns = [(k, 20 * k, 20 * k + 20) for k in range(5)]
        assert turn_epochs(LINE, turns, 100) == {0: None, 1: None, 2: 43, 3: 60, 4: 80}

    def test_a_ring_counts_the_first_flat_turn(self) -> None:
        turns = [(k % 5, 10 * k, 10 * k + 10) for k in range(10)]
        assert turn_epochs(LINE, turns, 100) == {0: 50, 1: 60, 2: 70, 3: 80, 4: 43}

    def test_a_turn_that_is_not_flat_has_none(self) -> None:
        jump = np.concatenate([LINE, np.linspace(0.6, 0.2, 21)[1:], np.full(30, 0.2)])  # another's data
        turns = [(0, 0, 100), (1, 100, 118), (2, 118, 150)]
        assert turn_epochs(jump, turns, 100) == {0: 43, 1: None, 2: 123}


def table(rows: list[tuple[int, int, int, float]], method: str = "m", seed: int = 0) -> pl.DataFrame:
    """Measures of (round, node, epoch, loss)."""
    filled = [(method, seed, number, node, None, epoch, "epoch_loss", loss) for number, node, epoch, loss in rows]
    return pl.DataFrame(filled, schema=records.MEASURES, orient="row")


def walking(jump: float = 0.0) -> list[tuple[int, int, int, float]]:
    """Five nodes with turns of twenty epochs each, which begin worse than the one before ended."""
    return [(1, k, 20 * k + e, float(LINE[20 * k + e]) + jump * (e == 0 < k)) for k in range(5) for e in range(21)]


class TestRuns:
    @pytest.mark.parametrize("jump", [0.0, 0.5])
    def test_where_a_model_walks(self, jump: float) -> None:
        """What a turn begins with, an average, is not on the curve of trained models."""
        found = convergence(table(walking(jump)))
        assert found["by"].unique().to_list() == ["client"]
        assert dict(found.select("which", "epoch").rows()) == {0: None, 1: None, 2: 43, 3: 60, 4: 80}

    def test_where_all_train_at_once(self) -> None:
        rows = [
            (number, node, 20 * number - 20 + e, float(LINE[20 * number - 20 + e]) + 0.01 * node)
            for number in range(1, 6)
            for node in range(3)
            for e in range(21)
        ]
        assert convergence(table(rows)).select("by", "which", "epoch").rows() == [
            ("round", 1, None),
            ("round", 2, None),
            ("round", 3, 43),
            ("round", 4, 60),
            ("round", 5, 80),
        ]
        assert convergence(table(rows), by="client")["epoch"].to_list() == [43, 43, 43]

    def test_the_sheet_has_medians_over_seeds_and_says_what_never_converged(self) -> None:
        steep = [(1, k, e, 1 - e / 100) for _, k, e, _ in walking()]
        both = pl.concat([table(walking(), seed=0), table(steep, seed=1), table(walking(), seed=2)])
        (sheet,) = convergence_sheets(convergence(both))
        assert sheet.headings == ["method", "0", "1", "2", "3", "4"]
        assert sheet.rows == [["m", "NC", "NC", "43", "60", "80"]]
        assert sheet.notes == ["NC: not converged."]
        assert "median of 3 seeds" in sheet.title

    def test_curves_with_gaps_and_none_at_all_are_refused(self) -> None:
        with pytest.raises(RunError, match=r"gaps: expected a loss after every epoch, got 82 up to 100\. Evaluate all"):
            convergence(table([row for row in walking() if not 30 <= row[2] < 50 or row[2] == 40]))
        with pytest.raises(RunError, match="--measures epochs"):
            convergence(pl.DataFrame(schema=records.MEASURES))


def test_with_equal_data_a_walk_is_one_node_that_stays(tmp_path: Path, figures: dict[str, Figure]) -> None:
    """Continuous line and ring equal training at one place, epoch by epoch; star and mesh equal each other."""
    methods = {name: {"initialiser": "zeros"} for name in ("continuous-linear", "continuous-ring", "star", "mesh")}
    Experiment(**PAPER, budget=50, methods=methods).run(tmp_path / "x")
    alone = {**PAPER, "nodes": 1, "topology": "complete", "initialiser": "zeros", "epochs": 50, "batches": None}
    Experiment(**alone, rounds=1, methods="isolation").run(tmp_path / "alone")
    measures, wanted = records.measures(tmp_path / "x"), records.measures(tmp_path / "alone")
    assert wanted["value"][0] == 1.0  # the hinge of a score of zero
    for method in ("continuous-linear", "continuous-ring"):
        mine = measures.filter(pl.col("method") == method).sort("round", "epoch").unique("epoch", maintain_order=True)
        np.testing.assert_allclose(mine["value"], wanted["value"], rtol=1e-5)
    turns = [(k, 10 * k, 10 * k + 10) for k in range(5)]
    expected = turn_epochs(wanted["value"], turns, 50)
    assert expected[4] == 40
    found = {name: mine["epoch"].to_list() for (name,), mine in convergence(measures).group_by("method")}
    assert found["continuous-linear"] == [*expected.values()]
    assert found["star"] == found["mesh"]
    draw_epochs(measures, tmp_path / "epochs.png")
    lines = {pictures.title(axes): axes.lines for axes in figures["epochs.png"].axes}
    turns_of = {"continuous-linear": 5, "continuous-ring": 10, "mesh": 25, "star": 25}
    assert {name: len(drawn) for name, drawn in lines.items()} == turns_of


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Experiment(**PAPER, budget=50, methods={"continuous-linear": {"initialiser": "zeros"}}).run(tmp_path / "x")
    assert main(["convergence", str(tmp_path / "x")]) == 0
    said = capsys.readouterr().out
    assert "by client, median of 1 seed" in " ".join(said.split())
    assert "continuous-linear" in said
    assert main(["convergence", str(tmp_path / "x"), "--factor", "1e-9"]) == 0
    assert "NC  NC  NC  NC  NC" in capsys.readouterr().out
    Experiment(nodes=2, rounds=1, batches=1, topology="ring", total=60, partition="iid").run(tmp_path / "y")
    assert main(["convergence", str(tmp_path / "y")]) == 2
    assert "has no measures" in capsys.readouterr().err

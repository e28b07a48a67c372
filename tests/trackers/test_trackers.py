"""What a run tells arrives at the trackers of others: the means of a small run, by job and round."""

from pathlib import Path
from typing import Any

import pytest

from coterie.errors import CoterieError
from coterie.records import Event
from coterie.trackers import means, needed
from coterie.trackers.tensorboard import TensorBoard

TOLD = [
    Event("begin", {"jobs": [["decavg", 0]], "left": [["decavg", 0]], "rounds": 2}),
    Event("begin", {"method": "decavg", "seed": 0, "round": 0, "rounds": 2, "nodes": 2}),
    *(
        Event(
            "evaluation",
            {"method": method, "seed": 0, "round": r, "node": [0, 1, 2], "test_accuracy": [0.1 * r, 0.3 * r, None]},
        )
        for method in ("decavg", "dechw")
        for r in (0, 2)
    ),
    Event("end", {"method": "dechw", "seed": 0, "how": "done", "round": 2}),
    Event("end", {"how": "done"}),
]


def told(observer: Any) -> None:
    for event in TOLD:
        observer.event(event)
    observer.close()


def test_means_leave_out_nodes_without_a_value() -> None:
    assert dict(means(TOLD[3])) == {"test_accuracy": pytest.approx(0.4)}


def test_a_missing_package_is_one_line_with_its_cure() -> None:
    with pytest.raises(CoterieError, match=r"coterie\[wandb\]"):
        needed("no_such_package", "wandb")


def test_tensorboard_has_every_job_and_round(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told(TensorBoard(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"decavg-0", "dechw-0"}
    read = EventAccumulator(str(tmp_path / "dechw-0"))
    read.Reload()
    assert [(e.step, e.value) for e in read.Scalars("test_accuracy")] == [(0, 0), (2, pytest.approx(0.4))]
    assert read.Tags()["histograms"] == ["test_accuracy of nodes"]


def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    from coterie.trackers.wandb import WandB

    monkeypatch.setenv("WANDB_SILENT", "true")
    told(WandB("coterie", mode="offline", dir=str(tmp_path)))
    kept = list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len(kept) == 2
    assert all(path.stat().st_size > 0 for path in kept)


def test_mlflow_has_every_job_and_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    from mlflow.tracking import MlflowClient

    from coterie.trackers.mlflow import MLflow

    told(MLflow("tried", tmp_path.as_uri()))
    client = MlflowClient(tmp_path.as_uri())
    experiment = client.get_experiment_by_name("tried")
    assert experiment
    found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert {name: run.info.status for name, run in found.items()} == {"decavg-0": "KILLED", "dechw-0": "FINISHED"}
    history = client.get_metric_history(found["decavg-0"].info.run_id, "test_accuracy")
    assert [(each.step, each.value) for each in history] == [(0, 0), (2, pytest.approx(0.4))]

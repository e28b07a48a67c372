"""Records: what each column says, recomputed by hand, and the files they are kept in."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import torch.nn.functional as F
from polars.testing import assert_frame_equal
from sklearn.metrics import f1_score
from torch import Tensor

from coterie import records
from coterie.config.build import build, load_samples
from coterie.engines.local import Local
from coterie.errors import RunError
from coterie.job import Job
from coterie.metrics.accuracy import Accuracy
from coterie.runs import runner
from small import SMALL, assert_same, small, timeless

WIDTH = 64 * 8 + 8 + 8 * 10 + 10
"""Parameters of the small model."""


def played(rounds: int, **settings: Any) -> tuple[Job, pl.DataFrame, pl.DataFrame, Tensor, Tensor]:
    """A few rounds: the world, the records of the start and the end, the matrices of the start and the end."""
    (experiment,) = small(rounds=rounds, test_share=1.0, **settings).resolved.values()
    job = build(experiment, load_samples(experiment), seed=1)
    session = Local(workers=1, mode="loop").open()
    session.begin(job)
    session.evaluate()
    start, at_start = records.rows("m", 1, 0, session.ledger), session.snapshot()["0/matrix"].clone()
    for number in range(1, rounds + 1):
        session.round(number, evaluate=number == rounds)
    end = records.rows("m", 1, rounds, session.ledger)
    return job, start, end, at_start, session.snapshot()["0/matrix"].clone()


def logits(row: Tensor, x: Tensor) -> Tensor:
    """The small model in plain PyTorch."""
    w1, b1, w2, b2 = row.split([64 * 8, 8, 8 * 10, 10])
    return F.linear(F.relu(F.linear(x.flatten(1), w1.view(8, 64), b1)), w2.view(10, 8), b2)


def assert_measured(job: Job, frame: pl.DataFrame, matrix: Tensor) -> None:
    """The records say what these models do on the test data and on their own validation data."""
    samples = job.samples
    x, y = samples.test_x[torch.as_tensor(job.test)], samples.test_y[torch.as_tensor(job.test)]
    for node, said in enumerate(frame.sort("node").iter_rows(named=True)):
        guess = logits(matrix[node], x)
        assert said["test_accuracy"] == pytest.approx((guess.argmax(1) == y).double().mean().item(), abs=1e-12)
        assert said["merged_accuracy"] == said["test_accuracy"]
        assert said["test_loss"] == pytest.approx(F.cross_entropy(guess, y).item(), rel=1e-4)
        assert said["test_f1"] == pytest.approx(f1_score(y, guess.argmax(1), average="macro"), abs=1e-12)
        own = torch.as_tensor(job.roster.validation[node])
        guess, wanted = logits(matrix[node], samples.train_x[own]), samples.train_y[own]
        assert said["validation_accuracy"] == pytest.approx(
            (guess.argmax(1) == wanted).double().mean().item(), abs=1e-12
        )
        assert said["validation_loss"] == pytest.approx(F.cross_entropy(guess, wanted).item(), rel=1e-4)


def test_columns_and_their_types() -> None:
    frame = small(rounds=2, seeds="0-1", methods=["decavg", "isolation"]).run().records
    assert dict(frame.schema) == records.schema()
    assert list(records.schema())[:4] == ["method", "seed", "round", "node"]
    assert len(frame) == 2 * 2 * 3 * SMALL["nodes"]
    assert not frame.select("method", "seed", "round", "node").is_duplicated().any()
    absent = ["staleness", "peak_accuracy"]  # everyone is in step here, and no lesson keeps a peak
    assert frame.drop(absent).null_count().sum_horizontal().item() == 0
    assert all(frame[column].is_null().all() for column in absent)
    assert set(frame["round"]) == {0, 1, 2}
    assert dict(records.empty().schema) == records.schema()


@pytest.mark.parametrize("partition", ["iid", {"name": "dirichlet", "alpha": 0.3, "min_samples": 5}])
def test_metrics_are_those_of_the_models(partition: Any) -> None:
    job, start, end, at_start, at_end = played(4, rule="isolation", partition=partition, lr=0.2)
    assert_measured(job, start, at_start)
    assert_measured(job, end, at_end)
    assert (at_start != at_end).any(1).all()
    assert end["test_f1"].mean() != start["test_f1"].mean()


@pytest.mark.parametrize("engine", ["memory", {"name": "local", "workers": 1, "mode": "loop"}])
def test_models_are_judged_once_unless_asked(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time, after the merge, costs as much as the first; a method may ask for it alone."""
    judged, value = [0], Accuracy.value

    def counted(self: Accuracy) -> Any:
        judged[0] += 1
        return value(self)

    monkeypatch.setattr(Accuracy, "value", counted)
    settings: dict[str, Any] = {"rounds": 2, "validation": 0.0, "topology": "complete", "engine": engine}
    once = small(**settings, merged=False).run().records
    assert once["merged_accuracy"].is_null().all()
    assert once["test_accuracy"].null_count() == 0
    least, judged[0] = judged[0], 0
    small(**settings, methods={"a": {"merged": True}}).run()
    assert 3 * judged[0] == 5 * least  # in rounds 0, 1 and 2, and again in the last two


def test_merged_accuracy_is_that_of_the_models_after_the_merge() -> None:
    job, _, end, _, matrix = played(3, rule="decavg", lr=0.3, topology={"name": "ba", "m": 2})
    x, y = job.samples.test_x[torch.as_tensor(job.test)], job.samples.test_y[torch.as_tensor(job.test)]
    merged = [(logits(row, x).argmax(1) == y).double().mean().item() for row in matrix]
    assert end["merged_accuracy"].to_list() == pytest.approx(merged, abs=1e-12)
    assert end["merged_accuracy"].to_list() != end["test_accuracy"].to_list()


def test_distances() -> None:
    job, start, end, at_start, at_end = played(3, rule="isolation", topology={"name": "ba", "m": 2})
    for frame, matrix in ((start, at_start.double()), (end, at_end.double())):
        near = [(matrix[i] - matrix[job.graph(1).neighbours(i)].mean(0)).norm().item() for i in range(len(matrix))]
        far = (matrix - matrix.mean(0)).norm(dim=1).tolist()
        assert frame["neighbourhood_distance"].to_list() == pytest.approx(near, rel=1e-4)
        assert frame["consensus_distance"].to_list() == pytest.approx(far, rel=1e-4)


def test_a_common_start_has_no_distance() -> None:
    _, start, end, _, _ = played(1, initialiser="common")
    assert start["consensus_distance"].max() == pytest.approx(0, abs=1e-5)
    assert end["consensus_distance"].min() > 1e-3


@pytest.mark.parametrize(
    ("settings", "words", "exchanges"),
    [
        ({"rule": "decavg"}, WIDTH, 0),
        ({"rule": "dechw"}, 2 * WIDTH, 0),
        ({"rule": "isolation"}, 0, 0),
        ({"rule": "decavg", "merge_first": True}, WIDTH, 1),
    ],
)
def test_bytes_are_degree_times_message_times_rounds(settings: dict[str, Any], words: int, exchanges: int) -> None:
    experiment = small(topology={"name": "ba", "m": 2}, evaluate=2, **settings)
    (resolved,) = experiment.resolved.values()
    degree = pl.DataFrame({"node": np.arange(6), "degree": build(resolved, load_samples(resolved), 0).graph(1).degree})
    assert degree["degree"].n_unique() > 1
    frame = experiment.run().records.join(degree, on="node")
    rounds = pl.col("round") + pl.when(pl.col("round") > 0).then(exchanges).otherwise(0)
    wanted = frame.select((pl.col("degree") * 4 * words * rounds).cast(pl.Int64).alias("x"))["x"]
    assert frame["sent_bytes"].to_list() == wanted.to_list()
    assert frame["received_bytes"].to_list() == wanted.to_list()


def test_what_is_sent_is_received_when_links_and_nodes_fail() -> None:
    frame = small(links=0.5, presence=0.8, topology="complete", rounds=8).run().records
    totals = frame.group_by("round").agg(pl.sum("sent_bytes", "received_bytes"))
    assert totals["sent_bytes"].to_list() == totals["received_bytes"].to_list()
    last = frame.filter(pl.col("round") == 8)
    assert 0 < last["sent_bytes"].sum() < 8 * 6 * 5 * 4 * WIDTH
    assert last["sent_bytes"].n_unique() > 1


def test_batches_are_counted() -> None:
    frame = small(batches=3).run().records
    assert (frame["batches"] == 3 * frame["round"]).all()
    skewed = small(batches=None, epochs=2, partition={"name": "dirichlet", "alpha": 0.3, "min_samples": 5})
    (resolved,) = skewed.resolved.values()
    sizes = [len(t) for t in build(resolved, load_samples(resolved), 0).roster.train]
    last = skewed.run().records.filter(pl.col("round") == SMALL["rounds"]).sort("node")
    assert last["batches"].to_list() == [SMALL["rounds"] * 2 * -(-n // 8) for n in sizes]


def test_totals_never_shrink() -> None:
    frame = small(methods=["dechw"]).run().records.sort("node", "round")
    for name in ("sent_bytes", "received_bytes", "batches", "train_seconds", "merge_seconds", "evaluate_seconds"):
        steps = frame.select(pl.col(name).diff().over("node"))[name].drop_nulls()
        assert len(steps) == SMALL["nodes"] * SMALL["rounds"]
        assert (steps >= 0).all()


def test_without_validation_data_nothing_is_said_of_it() -> None:
    frame = small(rounds=1, validation=0.0).run().records
    assert frame["validation_accuracy"].null_count() == len(frame)
    assert frame["test_accuracy"].null_count() == 0


def test_the_centralised_bound_is_one_node_with_all_the_data() -> None:
    frame = small(rounds=2, batches=None, epochs=1, methods=["centralised"]).run().records
    assert set(frame["node"]) == {0}
    assert frame.filter(pl.col("round") == 2)["batches"].item() == 2 * -(-240 // 8)
    assert frame["sent_bytes"].sum() == 0


def test_the_same_configuration_gives_the_same_records() -> None:
    experiment = small(methods=["decavg", "dechw"], links=0.7, seeds="0-1", momentum=0.5, keep_optimiser=True)
    assert_same(experiment.run().records, experiment.run().records)


def test_seeds_differ() -> None:
    frame = timeless(small(seeds="0-1").run().records)
    first, second = (frame.filter(pl.col("seed") == s).drop("seed") for s in (0, 1))
    for name in ("test_loss", "consensus_distance"):
        assert (first[name] != second[name]).all()


def test_a_job_does_not_depend_on_its_company(tmp_path: Path) -> None:
    together = small(methods=["dechw", "gain-decavg", "decavg"], seeds="0-1").run(tmp_path / "together").records
    alone = small(methods=["gain-decavg"], seeds=1).run().records
    assert_same(together.filter((pl.col("method") == "gain-decavg") & (pl.col("seed") == 1)), alone)


# Files.


def test_a_run_directory(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "x"
    experiment = small(rounds=2, methods=["decavg", "isolation"])
    frame = experiment.run(out).records
    assert sorted(p.name for p in out.iterdir() if p.suffix != ".png") == [
        "config.toml",
        "environment.json",
        "jobs",
        "journal.jsonl",
        "lock",
        "records.parquet",
        "report.html",
        "summary.csv",
    ]
    assert sorted(str(p.relative_to(out)) for p in out.glob("jobs/*/*")) == [
        "jobs/decavg-0/done.parquet",
        "jobs/decavg-0/models.safetensors",
        "jobs/decavg-0/nodes.parquet",
        "jobs/isolation-0/done.parquet",
        "jobs/isolation-0/models.safetensors",
        "jobs/isolation-0/nodes.parquet",
    ]
    assert_frame_equal(pl.read_parquet(out / "records.parquet"), frame)
    assert_frame_equal(records.load(out), frame)
    assert_same(frame, experiment.run().records)
    kept = records.configuration(out)
    assert {k: m.model_dump() for k, m in kept.resolved.items()} == {
        k: m.model_dump() for k, m in experiment.resolved.items()
    }
    environment = records.environment(out)
    assert environment["jobs"]["decavg-0"] == {"workers": 1, "modes": [{"stack": False, "chunk": 1}]}
    assert {"coterie", "python", "torch", "numpy", "polars", "platform", "cores"} <= environment.keys()


def test_methods_with_names_alike_keep_apart(tmp_path: Path) -> None:
    names = ["a/b", "a_b", "a b", "..", "ü.%"]
    experiment = small(rounds=1, methods={name: {"rule": "isolation"} for name in names})
    frame = experiment.run(tmp_path / "x").records
    assert sorted(frame["method"].unique()) == sorted(names)
    assert len(list((tmp_path / "x" / "jobs").iterdir())) == len(names)
    assert_same(frame, experiment.run().records)


def test_a_run_that_failed_keeps_whichever_records_go_further(tmp_path: Path) -> None:
    folder = records.RunFolder(tmp_path)
    folder.create(small())
    whole = small().run().records
    early, late = (whole.filter(pl.col("round") <= r) for r in (2, 4))
    folder.checkpoint("decavg", 0, 2, {"x": torch.zeros(1)}, early, {})
    folder.keep_rows("decavg", 0, late)
    assert_frame_equal(records.load(tmp_path), late)
    folder.checkpoint("decavg", 0, 6, {"x": torch.zeros(1)}, whole, {})
    assert_frame_equal(records.load(tmp_path), whole)
    folder.finish("decavg", 0, whole)
    assert [p.name for p in folder.job("decavg", 0).iterdir()] == ["done.parquet"]


def test_the_two_newest_checkpoints_are_kept_and_what_was_cut_short_is_swept_away(tmp_path: Path) -> None:
    folder = records.RunFolder(tmp_path)
    folder.create(small())
    debris = folder.job("decavg", 0) / "making"
    debris.mkdir(parents=True)
    (debris / "state.safetensors").write_bytes(b"half")
    for number in (1, 2, 10):
        folder.checkpoint("decavg", 0, number, {"x": torch.full((2,), number)}, records.empty(), {"workers": number})
    assert {p.name for p in folder.job("decavg", 0).iterdir()} == {"round-000000002", "round-000000010"}
    found = folder.latest("decavg", 0)
    assert found is not None
    number, state, _, plan = found
    assert (number, state["x"].tolist(), plan) == (10, [10, 10], {"workers": 10})


def test_a_run_begun_by_a_process_that_died_at_once_can_be_resumed(tmp_path: Path) -> None:
    records.RunFolder(tmp_path).create(small(rounds=2))
    (tmp_path / "environment.json").unlink()
    (tmp_path / ".records.parquet.new").write_bytes(b"half")
    assert records.environment(tmp_path) == {}
    assert_same(runner.resume(tmp_path).records, small(rounds=2).run().records)
    assert records.environment(tmp_path)["jobs"].keys() == {"decavg-0"}
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["records.parquet", "environment.json"])
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    small(rounds=1).run(tmp_path / "x")
    file = tmp_path / "x" / name
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(RunError, match=f"{name} is damaged"):
        (records.load if name == "records.parquet" else records.environment)(tmp_path / "x")


def test_what_is_not_a_run_directory(tmp_path: Path) -> None:
    for look in (records.load, records.configuration, records.environment, runner.resume):
        with pytest.raises(RunError, match="not a run directory"):
            look(tmp_path)
    records.RunFolder(tmp_path).create(small())
    with pytest.raises(RunError, match="has no records yet"):
        records.load(tmp_path)
    assert json.loads((tmp_path / "environment.json").read_text())["coterie"]

"""Training in every engine: what a node computes in a round does not depend on where or with whom it is computed."""

import functools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from coterie.engines._job import Job
from coterie.errors import ConfigError, DivergedError
from driving import Outcome, agree, drive, outcome, own, session, world

KEPT = {"keep_optimiser": True}
WAYS: dict[str, dict[str, Any]] = {
    "epochs": {"epochs": 2, "batches": None},
    "adam": {"optimiser": {"name": "adam", "lr": 0.01}, "lr": None},
    "decay": {"optimiser": {"name": "sgd", "momentum": 0.9, "weight_decay": 0.01}},
    "kept": KEPT,
    "kept adam": {**KEPT, "optimiser": {"name": "adam", "lr": 0.01}, "lr": None},
    "virtual teacher": {"objective": {"name": "virtual_teacher", "beta": 0.9}},
    "gain": {"initialiser": "gain", "clamp": 2.0},
    "logistic": {"model": "logistic"},
    "no validation": {"validation": 0.0},
    "convolutions": {"model": {"name": "cnn", "channels": [4], "kernel": 3}},
    "weighted": {"topology": {"name": "er", "p": 0.6, "weights": "uniform", "connect": True}, "presence": 0.7},
    "curvature": {"rule": {"name": "dechw", "batch_size": 16, "theta": 2}, "epochs": 1, "batches": None},
}
LOOPED: dict[str, dict[str, Any]] = {
    "batch norm": {"model": {"name": "cnn", "channels": [4], "kernel": 3, "norm": "batch"}, "links": 0.7},
    "layer norm": {"model": {"name": "cnn", "channels": [4], "kernel": 3, "norm": "layer"}},
    "dropout": {"model": own("dropout")},
    "control flow": {"model": own("moody")},
    "batch statistics": {"model": own("batch_statistics"), "batch_size": 6, "epochs": 1, "batches": None},
    "a buffer without dimension": {"model": own("scaled")},
    "kept over epochs": {**KEPT, "epochs": 1, "batches": None, "optimiser": {"name": "adam", "lr": 0.01}, "lr": None},
}
"""What cannot be stacked."""


@functools.cache
def ran(engine: str, way: str) -> Outcome:
    return drive(engine, **({**WAYS, **LOOPED}[way]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("engine", ["loop", "stack"])
def test_same_numbers(engine: str, way: str) -> None:
    agree(ran(engine, way), ran("memory", way), 5e-4)


@pytest.mark.parametrize("way", ["kept adam", "gain", "curvature"])
def test_same_numbers_with_worker_processes(way: str) -> None:
    agree(ran("workers", way), ran("memory", way), 5e-4)


@pytest.mark.parametrize("way", LOOPED)
def test_what_cannot_be_stacked_is_looped(way: str) -> None:
    found = ran("auto", way)
    assert found.plan["modes"] == [{"stack": False, "chunk": 1}]
    agree(found, ran("memory", way), 5e-4)
    with pytest.raises(ConfigError, match="cannot be stacked"):
        drive("stack", **LOOPED[way])


def test_what_was_found_of_one_model_is_not_believed_of_another() -> None:
    """Models of equal shapes may differ in their settings, and schedules in what they keep in step."""
    assert drive("stack", rounds=1, model={"name": own("dropout"), "p": 0.0}).plan["modes"][0]["stack"]
    assert not drive("auto", rounds=1, model={"name": own("dropout"), "p": 0.5}).plan["modes"][0]["stack"]
    assert drive("stack", rounds=1, **KEPT).plan["modes"][0]["stack"]
    assert not drive("auto", rounds=1, **KEPT, epochs=1, batches=None).plan["modes"][0]["stack"]


def test_a_users_model_that_was_changed_is_looked_at_again(tmp_path: Path) -> None:
    """What was measured is remembered on this machine by the text of the file, not by its name alone."""
    text = """
from torch import nn
def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout(RATE), nn.Linear(64, classes))
"""
    file = tmp_path / "net.py"
    file.write_text(text.replace("RATE", "0.0"))
    assert drive("stack", rounds=1, model=f"{file}:net").plan["modes"][0]["stack"]
    for name in [n for n in sys.modules if n.startswith("coterie_user_net")]:
        del sys.modules[name]  # as in another process, on another day
    file.write_text(text.replace("RATE", "0.5"))
    with pytest.raises(ConfigError, match="cannot be stacked"):
        drive("stack", rounds=1, model=f"{file}:net")


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    """Worker processes must not run the user's script again, whether or not it says `if __name__ == "__main__"`."""
    script = tmp_path / "mine.py"
    script.write_text("""
from coterie.experiment import Experiment
print("begun")
engine = {"name": "local", "workers": 2, "mode": "loop"}
print(Experiment(nodes=4, rounds=1, batches=1, topology="ring", engine=engine).run().height)
""")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["begun", "8"]


def test_batch_norm_statistics_travel_and_counts_stay() -> None:
    found = drive(
        "loop", **{**LOOPED["batch norm"], "links": 1.0, "topology": "complete", "epochs": 1, "batches": None}
    )
    buffers = torch.stack([row[-8:] for row in found.models.values()])
    torch.testing.assert_close(buffers, buffers[:1].expand_as(buffers))
    assert (buffers[:, 4:] != 1).all()  # variances, no more as they began
    steps = [3 * found.world.job.steps(i) for i in range(6)]
    assert [int(found.integers[i]) for i in range(6)] == steps
    assert len(set(steps)) > 1


def test_stacks_of_any_height_are_alike() -> None:
    """Rows that finish early leave the stack, which is padded to one of a few heights."""
    from coterie.engines.local import Local

    made = world(epochs=1, batches=None, nodes=7)
    assert len({made.job.steps(i) for i in range(7)}) > 3
    found = []
    for chunk in (1, 3, 7):
        running = Local(workers=1, mode="stack", chunk=chunk).open()
        running.begin(made)
        running.round(1, True)
        found.append(outcome(running, made))
        running.close()
    agree(found[0], found[1])
    agree(found[0], found[2])


@pytest.mark.parametrize("engine", ["loop", "stack"])
def test_a_node_without_validation_data_leaves_others_theirs(engine: str) -> None:
    made = world()
    some = (made.job.validation[0][:0], *made.job.validation[1:])
    made = replace(made, job=replace(made.job, validation=some))
    found = []
    for running in (session(engine), session("memory")):
        running.begin(made)
        running.round(1, True)
        found.append(outcome(running, made))
    agree(*found)
    assert np.isnan(found[0].ledger["validation_loss"]).tolist() == [True] + [False] * 5


@pytest.mark.parametrize("engine", ["loop", "stack", "memory"])
def test_training_is_what_pytorch_does(engine: str) -> None:
    """One node, no neighbours: a bare loop over the same batches ends in the same parameters."""
    made = world(nodes=1, topology="complete", rule="isolation", epochs=2, batches=None, clamp=None)
    running = session(engine)
    running.begin(made)
    start = outcome(running, made).models[0]
    running.round(1, False)
    running.round(2, False)
    module = made.job.models[0].make()((1, 8, 8), 10)
    torch.nn.utils.vector_to_parameters(start, module.parameters())
    for number in (1, 2):
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
        for batch in made.job.schedule(0, number):
            where = torch.as_tensor(batch)
            optimiser.zero_grad()
            F.cross_entropy(module(made.samples.inputs(where)), made.samples.targets(where)).backward()
            optimiser.step()
    wanted = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(outcome(running, made).models[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["loop", "stack", "memory"])
@pytest.mark.parametrize(
    "settings", [{"rule": "dechw"}, {**KEPT, "optimiser": {"name": "adam", "lr": 0.01}, "lr": None}]
)
def test_a_snapshot_gives_the_same_end(engine: str, settings: dict[str, Any]) -> None:
    made, running = world(**settings), session(engine)
    running.begin(made)
    running.round(1, False)
    middle = {k: v.clone() for k, v in running.snapshot().items()}
    running.round(2, True)
    straight = outcome(running, made)
    running.begin(made, running.plan)
    running.restore(middle)
    running.round(2, True)
    agree(outcome(running, made), straight, 0)


@pytest.mark.parametrize("engine", ["loop", "stack", "workers", "memory"])
def test_divergence_is_said(engine: str) -> None:
    with pytest.raises(DivergedError, match=r"node \d.*round 1"):
        drive(engine, lr=1e30)


class TestSchedule:
    def job(self, **training: Any) -> Job:
        job = world(epochs=1, batches=None).job
        return replace(job, training=replace(job.training, **training))

    @pytest.mark.parametrize("epochs", [1, 3])
    def test_every_sample_once_an_epoch(self, epochs: int) -> None:
        job = self.job(epochs=epochs)
        for node in range(job.nodes):
            batches = list(job.schedule(node, 2))
            assert len(batches) == job.steps(node)
            seen, counts = np.unique(np.concatenate(batches), return_counts=True)
            np.testing.assert_array_equal(seen, np.sort(job.train[node]))
            assert (counts == epochs).all()

    def test_batches_go_on_through_epochs(self) -> None:
        """With a fixed number of batches a round, an epoch goes on in the next round where it was left."""
        by_batches, by_epochs = self.job(epochs=None, batches=3), self.job()
        for node in range(by_batches.nodes):
            per_epoch = by_epochs.steps(node)
            one = [b for r in range(1, 2 * per_epoch + 1) for b in by_batches.schedule(node, r)]
            other = [b for r in range(1, 6 + 1) for b in by_epochs.schedule(node, r)]
            assert len(one) == len(other) == 6 * per_epoch
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)

    def test_order_is_a_function_of_seed_node_and_round(self) -> None:
        job = self.job()

        def order(job: Job, node: int, number: int) -> list[int]:
            return np.concatenate(list(job.schedule(node, number))).tolist()

        assert order(job, 0, 1) == order(job, 0, 1)
        assert order(job, 0, 1) != order(job, 0, 2)
        assert order(job, 0, 1) != order(replace(job, seed=1), 0, 1)
        alike = replace(job, train=(job.train[0],) * job.nodes)
        assert order(alike, 0, 1) != order(alike, 1, 1)

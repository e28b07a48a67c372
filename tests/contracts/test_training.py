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
from torch import Tensor

from coterie.errors import ConfigError, DivergedError
from coterie.job import Job, Ledger, Roster
from coterie.node.node import peers
from coterie.node.training import RowData, StackData, Trainer
from coterie.parts import names
from coterie.protocols import Train
from driving import Outcome, agree, drive, job, outcome, own, session

KEPT = {"keep_optimiser": True}
EARLY = {"early_stopping": True, "epochs": 5, "batches": None, "lr": 0.8}
"""Steps so large that in most rounds some nodes' losses rise."""
WAYS: dict[str, dict[str, Any]] = {
    "epochs": {"epochs": 2, "batches": None},
    "adam": {"optimiser": {"name": "adam", "lr": 0.01}, "lr": None},
    "decay": {"optimiser": {"name": "sgd", "momentum": 0.9, "weight_decay": 0.01}},
    "decay of weights": {"optimiser": {"name": "sgd", "weight_decay": 0.3, "decay_biases": False}},
    "kept": KEPT,
    "kept adam": {**KEPT, "optimiser": {"name": "adam", "lr": 0.01}, "lr": None},
    "virtual teacher": {"objective": {"name": "virtual_teacher", "beta": 0.9}},
    "gain": {"initialiser": "gain", "clamp": 2.0},
    "logistic": {"model": "logistic"},
    "turns": {"protocol": own("Uneven"), "epochs": 2, "batches": None},
    "turns, all kept": {**KEPT, "protocol": own("Uneven")},
    "renewed": {"renew_optimiser": True, "momentum": 0.0},
    "no validation": {"validation": 0.0},
    "convolutions": {"model": {"name": "cnn", "channels": [4], "kernel": 3}},
    "residual": {"model": {"name": "resnet", "channels": [2, 4], "blocks": 1, "norm": "none"}},
    "attention": {"model": {"name": "vit", "width": 8, "head": 4, "depth": 1, "dropout": 0.0}},
    "weighted": {"topology": {"name": "er", "p": 0.6, "weights": "uniform", "connect": True}, "presence": 0.7},
    "random virtual teacher": {"objective": {"name": "random_virtual_teacher", "low": 0.4}},
    "re-weighted softmax": {"objective": "wsm", "partition": {"name": "labels", "k": 2}},
    "classes present": {"objective": "ace", "partition": {"name": "labels", "k": 2}},
    "one class each": {"objective": "wsm", "partition": {"name": "labels", "k": 1}},
    "squares of training": {"rule": "dechw_lite", "epochs": 2, "batches": None, "clamp": 2.0},
    "answers in turn": {"rule": {"name": "cfa_ge", "batch_size": 8, "step": 0.1}, "links": 0.8},
    "curvature": {"rule": {"name": "dechw", "batch_size": 16, "theta": 2}, "epochs": 1, "batches": None},
}
LOOPED: dict[str, dict[str, Any]] = {
    "batch norm": {"model": {"name": "cnn", "channels": [4], "kernel": 3, "norm": "batch"}, "links": 0.7},
    "layer norm": {"model": {"name": "cnn", "channels": [4], "kernel": 3, "norm": "layer"}},
    "residual, batch norm": {"model": {"name": "resnet", "channels": [2, 4], "blocks": 1}},
    "attention, dropout": {"model": {"name": "vit", "width": 8, "head": 4, "depth": 1, "dropout": 0.2}},
    "dropout": {"model": own("dropout")},
    "control flow": {"model": own("moody")},
    "batch statistics": {"model": own("batch_statistics"), "batch_size": 6, "epochs": 1, "batches": None},
    "a buffer without dimension": {"model": own("scaled")},
    "renewed, with memory": {"renew_optimiser": True, "epochs": 2, "batches": None},
    "early stopping": EARLY,
    "early stopping, all kept": {**EARLY, **KEPT, "optimiser": {"name": "adam", "lr": 0.1}, "lr": None, "patience": 2},
    "early stopping, batch norm": {**EARLY, "model": {"name": "cnn", "channels": [4], "kernel": 3, "norm": "batch"}},
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


@pytest.mark.parametrize("way", ["kept adam", "gain", "curvature", "squares of training", "answers in turn"])
def test_same_numbers_with_worker_processes(way: str) -> None:
    agree(ran("workers", way), ran("memory", way), 5e-4)


@pytest.mark.parametrize("way", LOOPED)
def test_what_cannot_be_stacked_is_looped(way: str) -> None:
    found = ran("auto", way)
    assert found.plan["modes"] == [{"stack": False, "chunk": 1}]
    agree(found, ran("memory", way), 5e-4)
    with pytest.raises(ConfigError, match="cannot be stacked"):
        drive("stack", **LOOPED[way])


def test_models_are_judged_by_plain_cross_entropy_whatever_training_minimises() -> None:
    """The loss of the records is never that of the objective, which may be negative."""
    found = drive("loop", rule="isolation", objective="wsm", partition={"name": "labels", "k": 2})
    made = found.job
    module = made.roster.models[0].make()((1, 8, 8), 10)
    for node, row in found.models.items():
        torch.nn.utils.vector_to_parameters(row, module.parameters())
        for name, where, test in (("validation", made.roster.validation[node], False), ("test", made.test, True)):
            at = torch.as_tensor(where)
            wanted = F.cross_entropy(module(made.samples.inputs(at, test)), made.samples.targets(at, test))
            assert found.ledger[f"{name}_loss"][node] == pytest.approx(wanted.item(), rel=1e-4)


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
from coterie.runs.experiment import Experiment
print("begun")
engine = {"name": "local", "workers": 2, "mode": "loop"}
print(Experiment(nodes=4, rounds=1, batches=1, topology="ring", engine=engine).run().records.height)
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
    steps = [3 * found.job.roster.steps(i) for i in range(6)]
    assert [int(found.integers[i]) for i in range(6)] == steps
    assert len(set(steps)) > 1


def test_batch_norm_statistics_do_not_ride_with_answers() -> None:
    """CFA-GE's answers are gradients alone; the statistics are averaged over the models."""
    settings = {**LOOPED["batch norm"], "links": 1.0, "topology": "complete", "epochs": 1, "batches": None}
    settings["rule"] = "cfa_ge"
    agree(drive("loop", **settings), drive("memory", **settings))


def test_stacks_of_any_height_are_alike() -> None:
    """Rows that finish early leave the stack, which is padded to one of a few heights."""
    from coterie.engines.local import Local

    made = job(epochs=1, batches=None, nodes=7)
    assert len({made.roster.steps(i) for i in range(7)}) > 3
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
    made = job()
    some = (made.roster.validation[0][:0], *made.roster.validation[1:])
    made = replace(made, roster=replace(made.roster, validation=some))
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
    made = job(nodes=1, topology="complete", rule="isolation", epochs=2, batches=None, clamp=None)
    running = session(engine)
    running.begin(made)
    start = outcome(running, made).models[0]
    running.round(1, False)
    running.round(2, False)
    module = made.roster.models[0].make()((1, 8, 8), 10)
    torch.nn.utils.vector_to_parameters(start, module.parameters())
    for number in (1, 2):
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
        for batch in made.roster.schedule(0, number):
            where = torch.as_tensor(batch)
            optimiser.zero_grad()
            F.cross_entropy(module(made.samples.inputs(where)), made.samples.targets(where)).backward()
            optimiser.step()
    wanted = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    torch.testing.assert_close(outcome(running, made).models[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["loop", "stack", "memory"])
@pytest.mark.parametrize(
    "settings",
    [
        {"rule": "dechw"},
        {"rule": "dechw_lite", "objective": "random_virtual_teacher"},
        {"rule": {"name": "cfa_ge", "batch_size": 8}},
        {**KEPT, "optimiser": {"name": "adam", "lr": 0.01}, "lr": None},
    ],
    ids=["dechw", "dechw_lite", "cfa_ge", "kept"],
)
def test_a_snapshot_gives_the_same_end(engine: str, settings: dict[str, Any]) -> None:
    made, running = job(**settings), session(engine)
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


class TestEarlyStopping:
    """A node whose validation loss rises has the model it had before the round, and has computed what it computed."""

    def by_hand(self, patience: int, lr: float = 0.8) -> tuple[Job, Tensor, Tensor, int]:
        """One node: where it starts, where a careful PyTorch loop ends, and the mini-batches of that loop."""
        made = job(nodes=1, topology="complete", rule="isolation", epochs=6, batches=None, lr=lr, total=60)
        made = replace(made, roster=replace(made.roster, training=replace(made.roster.training, patience=patience)))
        session("memory").begin(made)
        start = outcome(session("memory"), made).models[0]
        module = made.roster.models[0].make()((1, 8, 8), 10)
        torch.nn.utils.vector_to_parameters(start.clone(), module.parameters())
        optimiser = torch.optim.SGD(module.parameters(), lr=lr, momentum=0.5)
        held = torch.as_tensor(made.roster.validation[0])
        losses: list[float] = []
        for step, batch in enumerate(made.roster.schedule(0, 1), 1):
            where = torch.as_tensor(batch)
            optimiser.zero_grad()
            F.cross_entropy(module(made.samples.inputs(where)), made.samples.targets(where)).backward()
            optimiser.step()
            if step % made.roster.per_epoch(0) == 0:
                with torch.no_grad():
                    loss = F.cross_entropy(module(made.samples.inputs(held)), made.samples.targets(held)).item()
                losses.append(loss)
                if len(losses) > patience and min(losses[-patience:]) > min(losses[:-patience]):
                    return made, start, start, step
        return made, start, torch.nn.utils.parameters_to_vector(module.parameters()).detach(), step

    @pytest.mark.parametrize("engine", ["loop", "memory"])
    @pytest.mark.parametrize(("patience", "lr"), [(1, 0.8), (2, 0.8), (1, 0.02), (2, 0.3)])
    def test_as_by_hand(self, engine: str, patience: int, lr: float) -> None:
        made, _, wanted, steps = self.by_hand(patience, lr=lr)
        running = session(engine)
        running.begin(made)
        running.round(1, True)
        found = outcome(running, made)
        torch.testing.assert_close(found.models[0], wanted, rtol=1e-4, atol=1e-5)
        assert found.ledger["batches"].tolist() == [steps]

    def test_the_cases_are_what_they_should_be(self) -> None:
        """Steps that are too large are taken back, small ones are not; one who is patient computes more."""
        made, start, end, steps = self.by_hand(1)
        assert torch.equal(start, end)
        assert steps < made.roster.steps(0)
        assert self.by_hand(2)[3] > steps
        made, start, end, steps = self.by_hand(1, lr=0.02)
        assert not torch.equal(start, end)
        assert steps == made.roster.steps(0)

    @pytest.mark.parametrize("engine", ["loop", "memory"])
    def test_everything_is_taken_back(self, engine: str) -> None:
        """Parameters, batch-norm statistics and their count, the optimiser's memory and its count."""
        settings = {
            **LOOPED["early stopping, batch norm"],
            **KEPT,
            "optimiser": {"name": "adam", "lr": 3.0},
            "lr": None,
        }
        made, running = job(**settings, rule="isolation"), session(engine)
        running.begin(made)
        kept = ("/matrix", "/integers", "/optimiser/")
        before = {k: v.clone() for k, v in running.snapshot().items() if any(kind in k for kind in kept)}
        running.round(1, True)
        after, computed = running.snapshot(), outcome(running, made).ledger["batches"]
        back = np.flatnonzero(computed < [made.roster.steps(i) for i in range(6)])
        assert len(back)
        for name, tensor in before.items():
            assert torch.equal(after[name][back], tensor[back]), name
            assert not torch.equal(after[name], tensor) or len(back) == 6, name

    @pytest.mark.parametrize("way", [w for w in LOOPED if w.startswith("early")])
    def test_engines_are_compared_where_some_stop_and_some_do_not(self, way: str) -> None:
        found = ran("memory", way)
        most = np.array([3 * found.job.roster.steps(i) for i in range(6)])
        assert (found.ledger["batches"] < most).any()
        assert found.ledger["batches"].sum() > most.sum() / 3

    def test_a_node_without_validation_data_never_stops(self) -> None:
        made = job(**EARLY)
        some = (made.roster.validation[0][:0], *made.roster.validation[1:])
        made, running = replace(made, roster=replace(made.roster, validation=some)), session("loop")
        running.begin(made)
        running.round(1, False)
        assert outcome(running, made).ledger["batches"][0] == made.roster.steps(0)

    def test_a_loss_that_is_no_number_has_risen(self) -> None:
        """What would have diverged is as it was before the round."""
        found = drive("loop", **{**EARLY, "lr": 1e30, "rule": "isolation"}, rounds=1)
        assert all(row.isfinite().all() for row in found.models.values())


class TestData:
    """What rules see of a node's data."""

    def trainer(self, **settings: Any) -> Trainer:
        made = job(**settings)
        ledger = Ledger(made.roster.nodes)
        return peers(made, np.arange(made.roster.nodes), ledger)[0].trainer

    @pytest.mark.parametrize("objective", names("objectives"))
    @pytest.mark.parametrize("first", [0, 1, 5])
    def test_gradients_are_of_plain_cross_entropy(self, objective: str, first: int) -> None:
        """Whatever training minimises and however it is clamped; alone and in a stack; each batch once, in turn."""
        trainer = self.trainer(objective=objective, clamp=0.1)
        module, rows = trainer.roster.models[0].make()((1, 8, 8), 10), np.arange(3)
        stacked = list(StackData(trainer, rows).grads(trainer.params[:3], 16, first=first))
        for row in rows.tolist():
            own = trainer.roster.train[row]
            batches = [own[i : i + 16] for i in range(0, len(own), 16)]
            found = list(RowData(trainer, row).grads(trainer.params[row], 16, first=first))
            assert len(found) == len(batches)
            torch.nn.utils.vector_to_parameters(trainer.params[row], module.parameters())
            for k, gradient in enumerate(found):
                where = torch.as_tensor(batches[(first + k) % len(batches)])
                loss = F.cross_entropy(module(trainer.samples.inputs(where)), trainer.samples.targets(where))
                wanted = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(module.parameters()))])
                torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)
                torch.testing.assert_close(stacked[k][row], wanted, rtol=1e-4, atol=1e-6)
            assert all(not rest[row].any() for rest in stacked[len(found) :])

    @pytest.mark.parametrize("engine", ["loop", "stack", "memory"])
    def test_squares_are_those_of_training(self, engine: str) -> None:
        """Of the objective with its clamp, at parameters that change: what a PyTorch loop sees on its way."""
        settings = {"objective": {"name": "virtual_teacher", "beta": 0.9}, "clamp": 1.8, "lr": 0.3}
        made = job(nodes=1, topology="complete", rule="dechw_lite", epochs=2, batches=None, **settings)
        running = session(engine)
        running.begin(made)
        start = outcome(running, made).models[0]
        running.round(1, False)
        module, losses = made.roster.models[0].make()((1, 8, 8), 10), []
        torch.nn.utils.vector_to_parameters(start.clone(), module.parameters())
        optimiser, objective = torch.optim.SGD(module.parameters(), lr=0.3, momentum=0.5), made.roster.objective.make()
        wanted = torch.zeros_like(start)
        for batch in made.roster.schedule(0, 1):
            where = torch.as_tensor(batch)
            optimiser.zero_grad()
            loss = objective(module(made.samples.inputs(where)), made.samples.targets(where), None).mean()
            losses.append(loss.item())
            loss.clamp(max=1.8).backward()
            wanted += torch.cat([p.grad.reshape(-1) for p in module.parameters()]).square()  # type: ignore[union-attr]
            optimiser.step()
        assert max(losses) > 1.8 > min(losses)  # some of them clamped
        torch.testing.assert_close(outcome(running, made).state["h"][0], wanted / wanted.norm(), rtol=1e-3, atol=1e-5)

    @pytest.mark.parametrize("engine", ["loop", "stack", "memory"])
    def test_squares_are_of_one_round(self, engine: str) -> None:
        """A round's sum does not go on from the last one's: without steps that move, every round has the same."""
        settings = {"rule": {"name": "dechw_lite", "accumulate": "none"}, "epochs": 1, "batches": None, "lr": 1e-12}
        settings |= {"batch_size": 1000, "topology": "complete", "initialiser": "common"}
        one, three = (drive(engine, rounds=r, **settings).state["h"] for r in (1, 3))
        for node in one:
            torch.testing.assert_close(one[node], three[node], rtol=1e-4, atol=1e-6)

    def test_nothing_is_summed_for_rules_that_do_not_ask(self) -> None:
        assert self.trainer(rule="dechw").squares is None
        assert self.trainer(rule="dechw_lite").squares is not None


class TestNoise:
    def test_is_uniform_and_new_for_every_node_round_step_and_sample(self) -> None:
        roster = job().roster
        drawn = torch.cat([roster.noise(np.arange(6), r, s, 50).reshape(-1) for r in (1, 2, 3) for s in (1, 2, 3)])
        assert len(drawn.unique()) == len(drawn)
        ordered = drawn.sort().values
        gap = (ordered - torch.linspace(0, 1, len(drawn))).abs().max()
        assert gap < 1.63 / len(drawn) ** 0.5  # Kolmogorov and Smirnov, at one in a hundred
        assert not torch.equal(roster.noise(0, 1, 1, 9), replace(roster, seed=1).noise(0, 1, 1, 9))
        assert torch.equal(roster.noise(np.array([4, 2]), 3, 2, 9)[1], roster.noise(2, 3, 2, 5 + 4))

    @pytest.mark.parametrize("engine", ["loop", "stack", "memory"])
    def test_reaches_the_objective(self, engine: str) -> None:
        """A teacher drawn between two others teaches neither's lesson; without spread it is the plain one."""

        def trained(**objective: Any) -> Tensor:
            return drive(engine, rounds=1, rule="isolation", objective=objective).models[0]

        drawn = trained(name="random_virtual_teacher", low=0.3, high=0.9)
        for beta in (0.3, 0.6, 0.9):
            plain = trained(name="virtual_teacher", beta=beta)
            assert not torch.allclose(drawn, plain, atol=1e-4)
            torch.testing.assert_close(trained(name="random_virtual_teacher", low=beta, high=beta), plain)


class TestSchedule:
    def roster(self, **training: Any) -> Roster:
        roster = job(epochs=1, batches=None).roster
        return replace(roster, training=replace(roster.training, **training))

    @pytest.mark.parametrize("epochs", [1, 3])
    def test_every_sample_once_an_epoch(self, epochs: int) -> None:
        roster = self.roster(epochs=epochs)
        for node in range(roster.nodes):
            batches = list(roster.schedule(node, 2))
            assert len(batches) == roster.steps(node)
            seen, counts = np.unique(np.concatenate(batches), return_counts=True)
            np.testing.assert_array_equal(seen, np.sort(roster.train[node]))
            assert (counts == epochs).all()

    def test_batches_go_on_through_epochs(self) -> None:
        """With a fixed number of batches a round, an epoch goes on in the next round where it was left."""
        by_batches, by_epochs = self.roster(epochs=None, batches=3), self.roster()
        for node in range(by_batches.nodes):
            per_epoch = by_epochs.steps(node)
            one = [b for r in range(1, 2 * per_epoch + 1) for b in by_batches.schedule(node, r)]
            other = [b for r in range(1, 6 + 1) for b in by_epochs.schedule(node, r)]
            assert len(one) == len(other) == 6 * per_epoch
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)

    def test_order_is_a_function_of_seed_node_and_round(self) -> None:
        roster = self.roster()

        def order(roster: Roster, node: int, number: int) -> list[int]:
            return np.concatenate(list(roster.schedule(node, number))).tolist()

        assert order(roster, 0, 1) == order(roster, 0, 1)
        assert order(roster, 0, 1) != order(roster, 0, 2)
        assert order(roster, 0, 1) != order(replace(roster, seed=1), 0, 1)
        alike = replace(roster, train=(roster.train[0],) * roster.nodes)
        assert order(alike, 0, 1) != order(alike, 1, 1)

    def test_a_model_with_a_past_goes_on_in_one_stream_of_orders(self) -> None:
        """Five epochs of one node are two of one and three of another that holds the same samples."""
        roster = self.roster(epochs=5)
        alike = replace(roster, train=(roster.train[0],) * roster.nodes)
        whole = list(alike.schedule(0, 1))
        parts = [*alike.schedule(3, 7, Train(0, 2)), *alike.schedule(1, 2, Train(2, 3))]
        assert len(whole) == len(parts) == alike.steps(3, Train(0, 2)) + alike.steps(1, Train(2, 3))
        for one, other in zip(whole, parts, strict=True):
            np.testing.assert_array_equal(one, other)
        assert alike.behind(1, 2, Train(2, 3)) == 2 * alike.per_epoch(1)
        assert alike.seen(1, 2, 3 * alike.per_epoch(1), Train(2, 3)) == 3 * len(alike.train[1])

    def test_a_past_of_epochs_is_whole_for_all(self) -> None:
        """Nodes of unlike size begin an epoch where the model they got had ended one."""
        roster = self.roster()
        for node in range(roster.nodes):
            seen = np.concatenate(list(roster.schedule(node, 4, Train(7, 1))))
            np.testing.assert_array_equal(np.sort(seen), np.sort(roster.train[node]))


@pytest.mark.parametrize("settings", [{}, {"optimiser": {"name": "adam", "lr": 0.01}, "lr": None}])
def test_an_optimiser_that_is_renewed_forgets_at_every_epoch(settings: dict[str, Any]) -> None:
    """Two epochs in a round with an optimiser for each are two rounds of an epoch, with a fresh one for each."""
    both = {"rule": "isolation", "batches": None, "momentum": None, **settings}
    renewed = drive("loop", rounds=1, epochs=2, renew_optimiser=True, **both)
    anew, kept = (drive("loop", rounds=r, epochs=e, **both) for r, e in ((2, 1), (1, 2)))
    for node, row in renewed.models.items():
        assert torch.equal(row, anew.models[node])
        assert not torch.equal(row, kept.models[node])

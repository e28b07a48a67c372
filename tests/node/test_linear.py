"""Linear models trained by hand: held to autograd, row by row and all at once."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from coterie.errors import DivergedError
from coterie.job import PLAIN, Job
from coterie.node.node import trainers
from coterie.node.training import Trainer
from coterie.protocols import Train
from driving import OWN, agree, drive, job

PAPER: dict[str, Any] = {
    "dataset": "breast_cancer",
    "model": {"name": "svm", "one": True},
    "objective": "hinge",
    "partition": {"name": "skew", "level": 2},
    "optimiser": {"name": "sgd", "lr": 0.02, "momentum": 0.0},
    "lr": None,
    "batch_size": 1,
    "epochs": 2,
    "batches": None,
    "nodes": 5,
    "total": 200,
}
LOGISTIC = {"model": {"name": "logistic", "one": True}, "objective": "cross_entropy"}
SQUARED = {"objective": {"name": "hinge", "squared": True, "margin": 0.7}}
MOVING = {"optimiser": {"name": "sgd", "lr": 0.02, "momentum": 0.6, "weight_decay": 0.1}}
WAYS: dict[str, dict[str, Any]] = {
    "hinge": {},
    "squared hinge": SQUARED,
    "logistic": LOGISTIC,
    "weights decay": {**SQUARED, "optimiser": {"name": "sgd", "lr": 0.02, "weight_decay": 0.2, "decay_biases": False}},
    "all decay": {**LOGISTIC, "optimiser": {"name": "sgd", "lr": 0.02, "momentum": 0.0, "weight_decay": 0.2}},
    "momentum": {**LOGISTIC, **MOVING},
    "momentum anew in every epoch": {**LOGISTIC, **MOVING, "renew_optimiser": True},
    "mini-batches": {**LOGISTIC, **MOVING, "batch_size": 16},
    "parts of an epoch": {**LOGISTIC, "batch_size": 16, "epochs": None, "batches": 7},
    "disjoint": {**LOGISTIC, "partition": {"name": "dirichlet", "min_samples": 3}, "batch_size": 4},
    "by autograd, too": {
        "model": "svm",
        "batch_size": 16,
        "optimiser": {"name": "sgd", "lr": 0.02, "momentum": 0.5, "weight_decay": 0.2, "decay_biases": False},
    },
    "images": {**LOGISTIC, "dataset": f"{OWN.parent}/own_data.py:photos", "partition": "iid", "batch_size": 3},
}


def by_autograd(made: Job, node: int, round: int, turn: Train, start: Tensor) -> Tensor:
    """What autograd makes of a node's mini-batches, in double precision."""
    roster, training = made.roster, made.roster.training
    optimiser, objective = roster.optimiser.settings, roster.objective.make()
    made_model = roster.models[0].make()(made.samples.shape, 2).double()
    torch.nn.utils.vector_to_parameters(start.double(), made_model.parameters())
    me: Any = None
    decay, spared = optimiser["weight_decay"], not optimiser["decay_biases"]
    groups = [{"params": [p], "weight_decay": 0.0 if spared and p.ndim < 2 else decay} for p in made_model.parameters()]
    per_epoch, behind = roster.per_epoch(node), roster.behind(node, round, turn)
    descent = None
    for step, batch in enumerate(roster.schedule(node, round, turn)):
        if descent is None or (training.renew_optimiser and (behind + step) % per_epoch == 0):
            descent = torch.optim.SGD(groups, lr=optimiser["lr"], momentum=optimiser["momentum"])
        where = torch.as_tensor(batch)
        scores = made_model(made.samples.inputs(where).double())  # type: ignore[union-attr]
        descent.zero_grad()
        objective(scores, made.samples.targets(where), me).mean().backward()
        descent.step()
    return torch.nn.utils.parameters_to_vector(made_model.parameters()).detach()


def started(made: Job) -> Trainer:
    (trainer,) = trainers(made, np.arange(made.roster.nodes))
    return trainer


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stacked", [False, True])
def test_as_autograd_does(way: str, stacked: bool) -> None:
    made = job(**{**PAPER, **WAYS[way]})
    trainer, rows = started(made), np.arange(5)
    for round in (1, 2):
        wanted = [by_autograd(made, n, round, PLAIN, trainer.params[n].clone()) for n in rows]
        if stacked:
            batches = trainer.train_stack(rows, round)
        else:
            batches = np.array([trainer.train_row(row, round) for row in rows])
        assert batches.tolist() == [made.roster.steps(n) for n in rows]
        torch.testing.assert_close(trainer.params.double(), torch.stack(wanted), rtol=1e-5, atol=2e-6)


def test_a_turn_of_its_own_epochs() -> None:
    made, turns = job(**PAPER), {1: Train(3, 2), 4: Train(0, 1)}
    trainer = started(made)
    wanted = [by_autograd(made, n, 1, turns.get(n, PLAIN), trainer.params[n].clone()) for n in range(5)]
    trainer.train_stack(np.arange(5), 1, turns)
    torch.testing.assert_close(trainer.params.double(), torch.stack(wanted), rtol=1e-5, atol=2e-6)


@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")  # of what others have left
@pytest.mark.parametrize("way", [SQUARED, LOGISTIC], ids=str)
def test_what_diverges_is_told_and_not_warned_of(way: dict[str, Any]) -> None:
    steep = {"optimiser": {"name": "sgd", "lr": 1e6, "momentum": 0.0, "weight_decay": 0.1}}
    with pytest.raises(DivergedError, match="not finite any more"):
        drive("loop", rounds=3, **{**PAPER, **way, **steep, "topology": "ring"})


@pytest.mark.parametrize("engine", ["loop", "stack", "workers"])
@pytest.mark.parametrize("kept", [False, True])
def test_same_numbers_in_every_engine(engine: str, kept: bool) -> None:
    for_some = {"keep_optimiser": True, "epochs": None, "batches": 20} if kept else {}
    settings = {**PAPER, **LOGISTIC, "topology": "ring", **for_some}
    agree(drive(engine, **settings), drive("memory", **settings), 1e-5)


@pytest.mark.parametrize(
    "other",
    [
        {"clamp": 0.5},
        {"optimiser": {"name": "sgd", "prox": 0.3}},
        {"optimiser": {"name": "sgd", "momentum": 0.5}, "keep_optimiser": True},
        {"optimiser": "adam"},
        {"early_stopping": True, "epochs": 3, "partition": "iid"},
        {"rule": "dechw_lite"},
        {"objective": "virtual_teacher"},
        {"model": {"name": "svm"}},
    ],
    ids=str,
)
def test_what_cannot_be_done_by_hand_is_done_as_ever(other: dict[str, Any]) -> None:
    settings = {**PAPER, "batch_size": 8, "topology": "ring", **other}
    agree(drive("auto", rounds=1, **settings), drive("memory", rounds=1, **settings), 5e-4)

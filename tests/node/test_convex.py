"""Convex problems: solved by hand, by scikit-learn, and what the bounds make of them."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from coterie.errors import ConfigError
from coterie.node.convex import Problem, averaging_bound, constants, problems, together, walking_bound
from coterie.node.node import trainers
from coterie.objectives import shape_of
from coterie.parts import find
from driving import job

SQUARED = shape_of(find("objectives", "hinge").make(squared=True))
SMALL: dict[str, Any] = {
    "dataset": "breast_cancer",
    "model": {"name": "logistic", "one": True},
    "partition": {"name": "skew", "level": 3},
    "optimiser": {"name": "sgd", "lr": 0.01, "weight_decay": 0.1, "decay_biases": False},
    "lr": None,
    "nodes": 5,
    "total": None,
}


def alone(z: float) -> Problem:
    """(1 − zw)² + w²/4: one sample, one parameter, a weight decay of one half."""
    assert SQUARED is not None
    return Problem(np.array([[z]]), np.ones(1), SQUARED, np.array([0.5]))


class TestByHand:
    """Two nodes with the samples 1 and ½: w* = 1.5/1.75, w_1* = 0.8 and w_2* = 1, while no margin reaches 1."""

    found = constants([alone(1.0), alone(0.5)], np.zeros(1))

    def test_optima(self) -> None:
        assert self.found.optimum == pytest.approx(6 / 7)
        assert self.found.best == pytest.approx(((1 / 7) ** 2 + (4 / 7) ** 2) / 2 + (6 / 7) ** 2 / 4)
        assert self.found.distance == pytest.approx((6 / 7) ** 2)

    def test_constants(self) -> None:
        assert self.found.unlike == pytest.approx(self.found.best - (0.2 + 0.5) / 2)
        assert self.found.mu == 0.5
        assert self.found.smooth == pytest.approx(2 * 1 + 0.5)
        assert self.found.square == pytest.approx(4)  # −2 at the start, of the first
        assert self.found.variances == pytest.approx([0, 0])  # a node with one sample has none
        assert self.found.shares.tolist() == [0.5, 0.5]

    def test_bounds(self) -> None:
        d, z = self.found.distance, self.found.unlike
        assert walking_bound(self.found, 0.1) == pytest.approx(1.25 * ((1 - 0.05 + 0.0625) * d + 0.2 * z))
        assert walking_bound(self.found, 0.1, printed=True) == pytest.approx(1.25 * ((1.05 + 0.0625) * d + 0.2 * z))
        b = 6 * 2.5 * z + 8 * 9 * 4
        assert averaging_bound(self.found, 4, 20) == pytest.approx(10 / (40 + 20) * (b / 0.5 + 5 * d))

    def test_nodes_alike_are_not_unlike(self) -> None:
        assert constants([alone(1.0)] * 3, np.zeros(1)).unlike == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("objective", ["cross_entropy", {"name": "hinge", "squared": True, "margin": 0.5}])
def test_values_and_gradients_are_those_of_training(objective: Any) -> None:
    made = job(**SMALL | {"objective": objective})
    (trainer,) = trainers(made, np.arange(5))
    for node, problem in enumerate(problems(made)):
        w = trainer.params[node].double().requires_grad_()
        where = torch.as_tensor(made.roster.train[node])
        x, y = made.samples.inputs(where), made.samples.targets(where)
        assert isinstance(x, torch.Tensor)
        me: Any = None
        scores = torch.nn.functional.pad((x.double() @ w[:-1] + w[-1])[:, None], (1, 0))
        loss = made.roster.objective.make()(scores, y, me).mean() + 0.05 * w[:-1].square().sum()
        (gradient,) = torch.autograd.grad(loss, w)
        at = w.detach().numpy()
        assert problem.value(at) == pytest.approx(loss.item(), rel=1e-6)
        np.testing.assert_allclose(problem.gradient(at), gradient, rtol=1e-5, atol=1e-6)
        step = 1e-5 * np.eye(len(at))[3]
        slope = (problem.gradient(at + step) - problem.gradient(at - step)) / 2e-5
        np.testing.assert_allclose(problem.hessian(at)[3], slope, rtol=1e-3, atol=1e-3)
        assert problem.smoothness() >= np.linalg.eigvalsh(problem.hessian(at))[-1]
        assert problem.variance(at) > 0


def test_the_optimum_of_a_logistic_regression_is_that_of_scikit_learn() -> None:
    made = job(**SMALL)
    parts = problems(made)
    whole, p = together(parts)
    assert p.sum() == pytest.approx(1)
    assert whole.value(np.ones(31)) == pytest.approx(p @ [part.value(np.ones(31)) for part in parts])
    where = np.concatenate(made.roster.train)
    x, y = np.asarray(made.samples.train_x)[where], np.asarray(made.samples.train_y)[where]
    theirs = LogisticRegression(C=1 / (0.1 * len(y)), tol=1e-10, max_iter=10_000).fit(x.astype(np.float64), y)
    ours = whole.solved(np.zeros(31))
    np.testing.assert_allclose(ours, [*theirs.coef_[0], *theirs.intercept_], atol=1e-5)
    assert np.abs(whole.gradient(ours)).max() < 1e-7


def test_without_decay_of_the_bias_mu_is_the_least_curvature_met() -> None:
    found = constants(problems(job(**SMALL)), np.zeros(31))
    assert 0 < found.mu <= 0.1
    everything = constants(problems(job(**SMALL | {"optimiser": {"name": "sgd", "weight_decay": 0.1}})), np.zeros(31))
    assert everything.mu == 0.1
    equal = constants(problems(job(**SMALL | {"partition": "everything"})), np.zeros(31))
    assert equal.unlike == pytest.approx(0, abs=1e-9)
    assert found.unlike > 0.01


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"model": "logistic"}, "a model with one linear score.*--model.one true"),
        ({"objective": "hinge"}, "a loss with a curvature.*squared true"),
        ({"objective": "virtual_teacher"}, "a loss with a curvature"),
        ({"optimiser": "adam"}, "optimiser sgd, got adam"),
    ],
)
def test_what_no_bound_is_for_is_refused(other: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        problems(job(**SMALL | other))


def test_without_weight_decay_there_may_be_no_optimum() -> None:
    with pytest.raises(ConfigError, match=r"--optimiser\.weight-decay"):
        constants(problems(job(**SMALL | {"optimiser": {"name": "sgd", "momentum": 0.0}})), np.zeros(31))

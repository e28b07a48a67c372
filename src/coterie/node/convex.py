"""The convex problems of nodes with linear models: their optima, and what bounds on the way there are made of."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.errors import ConfigError
from coterie.job import Job
from coterie.objectives import MarginShape, shape_of
from coterie.optimisers.sgd import SGD

Vector = NDArray[np.float64]

POINTS = 11
"""At how many points between the start and the optimum constants are estimated."""


@dataclass(frozen=True)
class Problem:
    """What one node, or all together, minimise: w with the bias as its last, z = y·(x, 1), y = ±1.

    F(w) = Σ_i share_i φ(z_i·w) + ½ Σ_j decay_j w_j²
    """

    z: Vector
    """Signed samples `[n, P]`."""
    shares: Vector
    """What each of them counts for, `[n]`; they sum to 1."""
    shape: MarginShape
    """φ, φ' and φ''."""
    decay: Vector
    """The weight decay of each parameter, `[P]`."""

    def value(self, w: Vector) -> float:
        """F(w)."""
        return float(self.shares @ self.shape.value(self.z @ w) + self.decay @ w**2 / 2)

    def gradient(self, w: Vector) -> Vector:
        """∇F(w)."""
        found: Vector = self.z.T @ (self.shares * self.shape.slope(self.z @ w)) + self.decay * w
        return found

    def hessian(self, w: Vector) -> Vector:
        """∇²F(w)."""
        bends = self.shares * self.shape.bend(self.z @ w)
        found: Vector = (self.z * bends[:, None]).T @ self.z + np.diag(self.decay)
        return found

    def smoothness(self) -> float:
        """L: no curvature of F is larger, anywhere."""
        largest = np.linalg.eigvalsh((self.z * self.shares[:, None]).T @ self.z)[-1]
        return float(self.shape.bend(np.linspace(-1, 1, 201)).max() * largest + self.decay.max())

    def variance(self, w: Vector) -> float:
        """E‖∇F(w; ξ) − ∇F(w)‖²: how far the gradient of one sample is from that of all."""
        return self.square(w) - float(np.sum(self.gradient(w) ** 2))

    def square(self, w: Vector) -> float:
        """E‖∇F(w; ξ)‖², the squared norm of the gradient of one sample."""
        each = self.z * self.shape.slope(self.z @ w)[:, None] + self.decay * w
        return float(self.shares @ np.sum(each**2, axis=1))

    def solved(self, start: Vector) -> Vector:
        """Where F is least, to the precision of the numbers."""
        if self.z.shape[1] and self.decay.max() == 0:
            cure = "Add some: --optimiser.weight-decay 0.01."
            raise ConfigError("a problem without weight decay may have no optimum", expected="weight decay", cure=cure)
        found = scipy.optimize.minimize(
            self.value, start, jac=self.gradient, hess=self.hessian, method="trust-exact", options={"gtol": 1e-9}
        )
        best: Vector = found.x
        return best


def problems(job: Job) -> list[Problem]:
    """What each node of a job minimises, if its models have one linear score and its loss is smooth."""
    roster, samples = job.roster, job.samples
    optimiser, shape = roster.optimiser.make(), shape_of(roster.objective.make())
    (model,) = roster.models if len(roster.models) == 1 else (None,)
    if model is None or not getattr(model.make()(samples.shape, samples.classes), "one", False):
        cure = "Use --model svm or logistic with --model.one true, and two classes."
        raise ConfigError("theory is of convex problems", expected="a model with one linear score", cure=cure)
    if shape is None or not np.isfinite(shape.bend(np.zeros(1))).all():
        cure = "Use --objective cross_entropy, or hinge with --objective.squared true."
        raise ConfigError("theory is of smooth problems", expected="a loss with a curvature", cure=cure)
    if not isinstance(optimiser, SGD):
        raise ConfigError("theory is of SGD", expected="optimiser sgd", got=roster.optimiser.name)
    decay = np.full(int(np.prod(samples.shape)) + 1, optimiser.weight_decay)
    decay[-1] *= optimiser.decay_biases
    found = []
    for own in map(torch.as_tensor, roster.train):
        inputs = samples.inputs(own)
        assert isinstance(inputs, Tensor)
        x, y = np.asarray(inputs.flatten(1), np.float64), np.asarray(samples.targets(own), np.float64)
        z = np.c_[x, np.ones(len(x))] * (2 * y - 1)[:, None]
        found.append(Problem(z, np.full(len(z), 1 / len(z)), shape, decay))
    return found


def together(parts: Sequence[Problem]) -> tuple[Problem, Vector]:
    """F = Σ_k p_k F_k, p_k the share of all samples that are at node k; and these shares."""
    sizes = np.array([len(part.z) for part in parts], np.float64)
    p = sizes / sizes.sum()
    shares = np.concatenate([share * part.shares for share, part in zip(p, parts, strict=True)])
    return Problem(np.concatenate([part.z for part in parts]), shares, parts[0].shape, parts[0].decay), p


@dataclass(frozen=True)
class Constants:
    """What the bounds ask for, measured on a problem."""

    best: float
    """F*, the least loss of all together."""
    optimum: Vector
    distance: float
    """‖w⁰ − w*‖²."""
    mu: float
    """No curvature of any F_k is smaller: the weight decay, if all decays, or the least met from w⁰ to w*."""
    smooth: float
    """L: no curvature of any F_k is larger."""
    variances: Vector
    """σ_k² of each node, the largest met from w⁰ to w*."""
    square: float
    """G², the largest squared gradient of one sample met there, on average over samples."""
    shares: Vector
    """p_k."""
    unlike: float
    """Z = F* − Σ_k p_k F_k*: how far nodes' own optima are from that of all."""

    def facts(self) -> dict[str, float]:
        """The constants by their names in the literature, of σ² the largest."""
        named = {"μ": self.mu, "L": self.smooth, "σ²": float(self.variances.max()), "G²": self.square}
        return named | {"Z": self.unlike, "F*": self.best, "‖w⁰ − w*‖²": self.distance}


def constants(parts: Sequence[Problem], start: Vector) -> Constants:
    """Solve the problem of each node and of all together, and estimate what the bounds ask for.

    Reference: Li et al., On the Convergence of FedAvg on Non-IID Data, 2020, for Z, which is Γ there
    """
    whole, p = together(parts)
    optimum = whole.solved(start)
    best = whole.value(optimum)
    own = np.array([part.value(part.solved(optimum)) for part in parts])
    met = [start + t * (optimum - start) for t in np.linspace(0, 1, POINTS)]
    mu = float(whole.decay.min()) or min(float(np.linalg.eigvalsh(k.hessian(w))[0]) for k in parts for w in met)
    return Constants(
        best=best,
        optimum=optimum,
        distance=float(np.sum((start - optimum) ** 2)),
        mu=mu,
        smooth=max(part.smoothness() for part in parts),
        variances=np.array([max(part.variance(w) for w in met) for part in parts]),
        square=max(part.square(w) for part in parts for w in met),
        shares=p,
        unlike=best - float(p @ own),
    )


def walking_bound(c: Constants, lr: float, printed: bool = False) -> float:
    """What the gap of a model that walks from node to node is said to stay below.

        F(w) − F* ≤ L/2 · [(1 − μη + η²L²)‖w⁰ − w*‖² + 2ηZ + η²σ²],   σ² the largest of the nodes

    The paper prints 1 + μη; strong convexity gives 1 − μη.

    Reference: Jiang et al., Performance Analysis of Decentralized Federated Learning Deployments, 2025, Eq. 16
    """
    pull = c.mu * lr * (1 if printed else -1)
    inside = (1 + pull + (lr * c.smooth) ** 2) * c.distance + 2 * lr * c.unlike + lr**2 * c.variances.max()
    return float(c.smooth / 2 * inside)


def averaging_bound(c: Constants, local: int, steps: int) -> float:
    """What the gap of models that are averaged every `local` steps is said to stay below after so many `steps`.

        F(w) − F* ≤ 2κ/(γ + T) · (B/μ + 2L‖w⁰ − w*‖²),   κ = L/μ, γ = max(8κ, E)
        B = Σ_k p_k² σ_k² + 6LZ + 8(E − 1)² G²

    It is meant for steps that become smaller, η_t = 2/(μ(γ + t)).

    Reference: Li et al., On the Convergence of FedAvg on Non-IID Data, 2020, Theorem 1
    """
    kappa = c.smooth / c.mu
    spread = float(c.shares**2 @ c.variances) + 6 * c.smooth * c.unlike + 8 * (local - 1) ** 2 * c.square
    return 2 * kappa / (max(8 * kappa, local) + steps) * (spread / c.mu + 2 * c.smooth * c.distance)

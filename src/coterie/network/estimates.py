"""Estimates of the gain without knowing the network: from its size and family, from sampled degrees, by gossip."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from coterie.errors import GraphError
from coterie.network.faults import Floats, Ints
from coterie.network.graph import Graph
from coterie.randomness import generator, uniforms

Family = Callable[[int, np.random.Generator], Graph]
"""How a topology draws a network."""


def from_nodes(nodes: float, exponent: float = 0.5, *, mistaken: float = 1.0) -> float:
    """The gain of a family whose exponent is known, (mistaken · n)^exponent.

    A half belongs to networks of homogeneous degrees. `mistaken` is the factor by which n is misjudged.
    """
    if not (nodes * mistaken >= 1 and math.isfinite(exponent)):
        raise GraphError("no gain of such a size", expected="at least 1 node", got=f"{nodes:g} × {mistaken:g}")
    return float((nodes * mistaken) ** exponent)


def from_family(family: Family, nodes: int, *, draws: int = 4, seed: int = 0) -> float:
    """The gain of a network like this one: 1 over the mean ‖v_steady‖ of a few draws of the family."""
    norms = [1.0 / family(nodes, generator(seed, "estimate", draw)).gain() for draw in range(draws)]
    return float(1.0 / np.mean(norms))


def from_degrees(degrees: ArrayLike, nodes: float, *, walked: bool = False) -> float:
    """The gain from the degrees of a sample of nodes, √n ⟨k+1⟩ / √⟨(k+1)²⟩.

    `walked` says that the sample came by a random walk, which finds a node in proportion to its degree.
    """
    sample = np.asarray(degrees, np.float64)
    if sample.ndim != 1 or not sample.size or not (sample >= (1 if walked else 0)).all():
        raise GraphError("a sample of degrees", expected="numbers, none below 0, at least one", got=sample.shape)
    share = 1.0 / sample if walked else np.ones(len(sample))
    first, second = np.average(sample + 1, weights=share), np.average((sample + 1) ** 2, weights=share)
    return float(math.sqrt(nodes) * first / math.sqrt(second))


def count_nodes(visited: ArrayLike, degrees: ArrayLike) -> float:
    """The number of nodes from a random walk's sample, by how often it met the same node again.

        n ≈ Σ k · Σ 1/k / (2 · pairs of equal nodes)

    Infinite when no node was met twice. Visits should lie further apart than the walk remembers.

    Reference: Katzir, Liberty and Somekh, Estimating Sizes of Social Networks via Biased Sampling, 2011
    """
    degree, (_, counts) = np.asarray(degrees, np.float64), np.unique(np.asarray(visited), return_counts=True)
    pairs = int((counts * (counts - 1) // 2).sum())
    return float(degree.sum() * (1 / degree).sum() / (2 * pairs)) if pairs else math.inf


def walk(graph: Graph, samples: int, *, stride: int = 10, start: int = 0, seed: int = 0) -> Ints:
    """A random walk along the links: the nodes it is at every `stride` steps."""
    (found,) = walks(graph, np.array([start]), samples, stride=stride, seed=seed)
    return np.asarray(found, np.int64)


def walks(graph: Graph, starts: Ints, samples: int, *, stride: int = 10, seed: int = 0) -> Ints:
    """A random walk from each of these nodes: `[starts, samples]`."""
    if graph.nodes > 1 and not graph.degree.min():
        raise GraphError("a walk cannot leave a node without neighbours", expected="a connected network")
    first, here, found = np.cumsum(graph.degree) - graph.degree, starts, np.empty((len(starts), samples), np.int64)
    for step in range(samples * stride if graph.nodes > 1 else 0):
        luck = uniforms(seed, "walk", starts, step)
        here = graph.sources[first[here] + (luck * graph.degree[here]).astype(np.int64)]
        if step % stride == stride - 1:
            found[:, step // stride] = here
    return found if graph.nodes > 1 else np.repeat(starts[:, None], samples, axis=1)


def under_outages(
    graph: Graph,
    links: float = 1.0,
    presence: float = 1.0,
    sizes: ArrayLike | None = None,
    own: ArrayLike = 1.0,
    *,
    outage: float | None = None,
    absence: float | None = None,
    rounds: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """The gain where links and nodes fail, fluctuations included: 1 / √E‖v‖², and its standard error.

    The weights v of a consensus are what x ← x M_t tends to in law, M_t the merge matrix of a random round. The mean
    over rounds, the first fifth left out, is that over networks; the error comes from ten batches of rounds, which
    should be longer than outages are (`outage` and `absence`, if rounds are not independent).
    """
    mean = graph.steady_state(sizes, links, presence, own)
    if links * presence == 1:
        return float(1 / np.linalg.norm(mean)), 0.0
    chain = graph.failing(seed, sizes, links, presence, own, outage, absence)
    here, squares = mean, np.empty(rounds)
    for round in range(rounds):
        here = np.asarray(here @ chain.matrix(round), np.float64)
        squares[round] = here @ here
    batches = np.array([part.mean() for part in np.array_split(squares[rounds // 5 :], 10)])
    gain = float(batches.mean() ** -0.5)
    return gain, float(gain / 2 * batches.std(ddof=1) / math.sqrt(len(batches)) / batches.mean())


@dataclass(frozen=True)
class Scaling:
    """The power law of ‖v_steady‖ in the number of nodes: c · n^−exponent, fitted on logarithms."""

    nodes: Ints
    norms: Floats
    """‖v_steady‖, [sizes, draws]."""
    exponent: float
    error: float
    """Standard error of the exponent."""
    factor: float

    def at(self, nodes: ArrayLike) -> Floats:
        """The fitted norm at these sizes."""
        return np.asarray(self.factor * np.asarray(nodes, np.float64) ** -self.exponent, np.float64)


def scaling(family: Family, sizes: Sequence[int], *, draws: int = 4, seed: int = 0) -> Scaling:
    """The exponent of ‖v_steady‖ over networks of several sizes, by regression of logarithms."""
    if len(set(sizes)) < 2:
        raise GraphError("an exponent needs several sizes", expected="at least 2", got=list(sizes))
    drawn = [[family(n, generator(seed, "estimate", n, draw)) for draw in range(draws)] for n in sizes]
    norms = np.array([[1.0 / graph.gain() for graph in graphs] for graphs in drawn])
    from scipy.stats import linregress  # most who come here need none of it, and it takes long

    fit: Any = linregress(np.repeat(np.log(sizes), draws), np.log(norms).ravel())
    return Scaling(np.array(sizes), norms, -float(fit.slope), float(fit.stderr), math.exp(fit.intercept))


@dataclass(frozen=True)
class GossipEstimates:
    """Every node's estimate of the gain after every round of gossip, and the exact gain."""

    estimates: Floats
    """[rounds + 1, nodes]; infinite as long as a node cannot tell."""
    truth: float

    @property
    def errors(self) -> Floats:
        """Relative errors |estimate / truth − 1|, [rounds + 1, nodes]."""
        return np.abs(self.estimates / self.truth - 1.0)

    def rounds_until(self, error: float) -> int | None:
        """The first round after which every node is this close, and stays so; None if that did not happen."""
        far = np.flatnonzero((self.errors > error).any(axis=1))
        last = int(far[-1]) + 1 if far.size else 0
        return last if last < len(self.estimates) else None


def gossip_push_sum(graph: Graph, rounds: int, *, loss: float = 0.0, seed: int = 0) -> GossipEstimates:
    """Averaging by push-sum: a node hands equal shares of its sums to itself and to all who hear it.

        gain = √n ⟨k+1⟩ / √⟨(k+1)²⟩

    Each mean is a sum over a weight that travels alike; node 0 alone starts with 1 in the sum that tells n. What a
    lost message carried is gone.

    Reference: Kempe, Dobra and Gehrke, Gossip-Based Computation of Aggregate Information, 2003
    """
    _check_loss(loss)
    plus, share = graph.degree + 1.0, 1.0 / (1.0 + np.bincount(graph.sources, minlength=graph.nodes))
    sums = np.stack([np.ones(graph.nodes), plus, plus**2, np.arange(graph.nodes) == 0], axis=1)
    estimates = np.empty((rounds + 1, graph.nodes))
    for round in range(rounds + 1):
        if round:
            sent, up = share[:, None] * sums, _arrived(graph, loss, seed, round)
            sums = sent.copy()
            np.add.at(sums, graph.targets[up], sent[graph.sources[up]])
        weight, first, second, mark = sums.T
        count = np.divide(weight, mark, out=np.full(graph.nodes, np.inf), where=mark > 0)
        estimates[round] = np.sqrt(count) * (first / weight) / np.sqrt(second / weight)
    return GossipEstimates(estimates, graph.gain())


def _arrived(graph: Graph, loss: float, seed: int, round: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return uniforms(seed, "gossip", graph.sources, graph.targets, round) >= loss


def _check_loss(loss: float) -> None:
    if not 0 <= loss < 1:
        raise GraphError("loss is a probability", expected="a number from 0 to below 1", got=loss)

"""Merging when links and nodes fail at random: the matrix of one round, and the mean over all rounds."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from coterie.network.faults import Arcs, Faults, Floats

_STEP = 0.38  # of the quadrature, whose error falls exponentially with 1/step
_FADED = 1e-11  # what is left of an integrand when its integral, at least 1, is done
_ARCS = 2**14  # whose integrals are taken together


class Rounds:
    """The merge matrix of every round of a graph whose links and nodes fail.

    `own` is the weight a node gives its own model, `data` the nodes' numbers of samples. The pattern of the matrix is
    the same in all rounds; what is not heard has weight 0.
    """

    def __init__(self, graph: Arcs, data: Floats, own: Floats, faults: Faults) -> None:
        self.graph, self.faults = graph, faults
        nodes = np.arange(graph.nodes)
        rows, columns = np.concatenate([graph.targets, nodes]), np.concatenate([graph.sources, nodes])
        self._order = np.lexsort((columns, rows))
        self._raw = np.concatenate([graph.weights * data[graph.sources], own * data])[self._order]
        self._indices = columns[self._order].astype(np.int32)
        self._starts = np.concatenate([[0], np.cumsum(graph.degree + 1)]).astype(np.int32)
        self._diagonal = np.flatnonzero(self._order >= len(graph.sources))

    def matrix(self, round: int) -> csr_array[np.float64]:
        """The merge matrix of this round: row = who merges, column = whose model."""
        weights = self._raw
        if self.faults.fails:
            up = self.faults.active(self.graph, round)
            weights = weights * np.concatenate([up, np.ones(self.graph.nodes, np.bool_)])[self._order]
        total = np.add.reduceat(weights, self._starts[:-1])
        weights = weights / np.repeat(np.where(total > 0, total, 1.0), np.diff(self._starts))
        weights[self._diagonal[total == 0]] = 1.0
        return csr_array((weights, self._indices, self._starts), shape=(self.graph.nodes,) * 2)


def kept(degree: NDArray[np.int64], heard: float) -> Floats:
    """The share of itself that a node keeps when all weights are equal: E[1 / (1 + B)], B ~ Binomial(degree, heard)."""
    return np.asarray(-np.expm1((degree + 1) * np.log1p(-heard)) / ((degree + 1) * heard), np.float64)


def expected_arcs(graph: Arcs, data: Floats, own: Floats, links: float, presence: float) -> Floats:
    """The expected weight E[M_ij] of every arc j → i: what i takes from j in a round, on average.

    A node that is there hears each neighbour with probability s = links × presence, independently. With a_j = ω_ij d_j
    and Y the sum of the other weights,

        E[M_ij] = presence · s · a_j E[1 / (a_j + Y)],   E[1 / (a + Y)] = ∫₀^∞ e^{−at} E[e^{−tY}] dt,

    where E[e^{−tY}] is a product over the neighbours. The integral is taken by the double-exponential rule, the same
    points for all arcs; its relative error is below 1e-9.
    """
    heard, nodes, at = links * presence, graph.nodes, graph.targets
    if heard == 1:
        weights, mine = graph.weights * data[graph.sources], own * data
        total = mine + np.bincount(at, weights, nodes)
        return np.divide(weights, total[at], out=np.zeros_like(weights), where=total[at] > 0)
    if _alike(graph.weights) and _alike(np.concatenate([own, graph.weights[:1]])) and _alike(data):
        return presence * ((1 - kept(graph.degree, heard)) / np.maximum(graph.degree, 1))[at]
    weights, mine = graph.weights * data[graph.sources], own * data
    total = mine + np.bincount(at, weights, nodes)
    scale = np.where(total > 0, total, 1.0)
    weights, mine = weights / scale[at], mine / scale  # every row in units of its whole weight
    starts = np.concatenate([[0], np.cumsum(graph.degree)])
    cuts = [(a, b, slice(starts[a], starts[b])) for a, b in _blocks(starts)]
    parts = [_integrals(weights[arcs], mine[a:b], graph.degree[a:b], heard) for a, b, arcs in cuts]
    return np.asarray(presence * heard * weights * np.concatenate([*parts, weights[:0]]), np.float64)


def _blocks(starts: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Ranges of rows whose arcs stay in a fast cache."""
    nodes = len(starts) - 1
    ends = np.unique(np.searchsorted(starts, np.arange(_ARCS, starts[-1] + _ARCS, _ARCS)).clip(1, nodes))
    return list(itertools.pairwise([0, *ends.tolist()]))


def _integrals(weights: Floats, mine: Floats, degree: NDArray[np.int64], heard: float) -> Floats:
    """∫₀^∞ e^{−(own + a_j) t} Π_{k ≠ j} (1 − s + s e^{−a_k t}) dt of every arc of these rows, each at least 1."""
    at, some = np.repeat(np.arange(len(degree)), degree), degree > 0
    first = (np.cumsum(degree) - degree)[some]
    integral, whole = np.zeros(len(weights)), np.zeros(len(degree))
    slowest = (weights + mine[at])[weights > 0].min(initial=1.0)
    for y in np.arange(-3.6, math.log(40 / slowest) + _STEP, _STEP):
        t = math.exp(y - math.exp(-y))
        faded = np.exp(-t * weights)
        factor = 1 - heard + heard * faded
        whole[some] = np.multiply.reduceat(factor, first)
        row = whole * np.exp(-t * mine)
        integral += (t * (1 + math.exp(-y)) * _STEP * row)[at] * (faded / factor)
        if y > 0 and t * row.max() < _FADED:
            break
    return integral


def _alike(values: Floats) -> bool:
    return bool((values == values[:1]).all())

"""The early-stage model of decentralised training: random parameters, averaging over neighbours, and noise."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.special import ndtri
from torch import Tensor

from coterie.errors import ConfigError
from coterie.network.estimates import under_outages
from coterie.network.faults import Floats
from coterie.network.graph import Graph
from coterie.randomness import generator

Singles = NDArray[np.float32]

_BLOCK_BYTES = 2 * 2**20  # of parameters that stay in a fast cache from the product to the last sum over them
_CHUNK_BYTES = 64 * 2**20  # of parameters that go through all rounds together
_NEAR = 1.1  # times the level it ends at: σ_an has stabilised
_FLAT = 0.02  # by how much the last two quarters may differ if σ_an is to have a level at all


@dataclass(frozen=True)
class Dynamics:
    """The spread of parameters over rounds, over a node's parameters and over nodes; entry 0 is the start."""

    across_parameters: Floats
    """σ_ap: the standard deviation over a node's parameters, mean over nodes."""
    across_nodes: Floats
    """σ_an: the standard deviation of a parameter over nodes, mean over parameters."""
    dimensions: int
    noise: float
    theory: float
    """σ_init · ‖v_steady‖, where σ_ap should come to rest."""
    mixing_time: float
    """Rounds in which disagreement falls by a factor e, by the spectral gap of the network without failures."""

    @property
    def rounds(self) -> int:
        """The number of rounds after the start."""
        return len(self.across_nodes) - 1

    @property
    def level(self) -> float | None:
        """The level at which σ_an ends: its median over the last quarter of rounds.

        None if the mean of that quarter and the one before differ by more than 2 %: it still falls.
        """
        quarter = self.rounds // 4
        if not quarter:
            return None
        before, last = self.across_nodes[-2 * quarter : -quarter], self.across_nodes[-quarter:]
        still = abs(before.mean() - last.mean()) <= _FLAT * last.mean()
        return float(np.median(last)) if still else None

    @property
    def stabilisation(self) -> int | None:
        """The first round in which σ_an is at most 1.1 times its level; None if it has none yet, as without noise."""
        if self.level is None or not self.noise:
            return None
        return int(np.argmax(self.across_nodes <= _NEAR * self.level))

    @property
    def plateau(self) -> float:
        """The plateau of σ_ap, less what noise adds.

        A node's parameters are what all nodes share plus what sets it apart, and noise makes the shared part walk: its
        variance, σ_ap² − σ_an², grows along a straight line. Fitted from stabilisation on (or over the last quarter of
        rounds), the line's value at round 0 is the plateau's square. Without noise, the mean over the last quarter.
        """
        settled = self.stabilisation
        first = 3 * self.rounds // 4 if settled is None else min(settled, 3 * self.rounds // 4)
        shared = self.across_parameters**2 - self.across_nodes**2
        rounds = np.arange(first, self.rounds + 1)
        if not self.noise or len(rounds) < 3:
            return math.sqrt(max(float(shared[first:].mean()), 0.0))
        return math.sqrt(max(float(np.polynomial.Polynomial.fit(rounds, shared[first:], 1)(0.0)), 0.0))

    @property
    def error(self) -> float:
        """The relative standard error of the plateau: in the end all nodes share one sample of so many parameters."""
        return 1.0 / math.sqrt(2 * self.dimensions)

    def facts(self) -> dict[str, object]:
        """Plateau, level, stabilisation and mixing time beside the theory; without what did not come to rest."""
        settled, level = self.stabilisation, self.level
        return {
            "σ_ap plateau": self.plateau,
            "theory σ_init·‖v_steady‖": self.theory,
            "ratio": self.plateau / self.theory,
            "standard error of the ratio": self.error,
            **({} if level is None else {"σ_an level": level}),
            **({} if settled is None else {"σ_an stabilises (rounds)": settled}),
            "mixing time (rounds)": self.mixing_time,
            **({"stabilisation / mixing time": settled / self.mixing_time} if settled and self.mixing_time else {}),
        }


def simulate(
    graph: Graph,
    dimensions: int = 1000,
    rounds: int = 100,
    *,
    noise: float = 0.001,
    init: float = 1.0,
    links: float = 1.0,
    presence: float = 1.0,
    outage: float | None = None,
    absence: float | None = None,
    sizes: ArrayLike | None = None,
    own: ArrayLike = 1.0,
    seed: int = 0,
) -> Dynamics:
    """Simulate the early stage: n × d Gaussian parameters, averaged over neighbours, with noise in place of training.

        W ← M W + N,   W_0 ~ N(0, init²),   N ~ N(0, noise²)

    Links and nodes work with the given probabilities in each round, their outages of the given mean lengths. Single
    precision; memory does not grow with d.

    Reference: Badie-Modiri et al., Initialisation and Network Effects in Decentralised Federated Learning, §4.2
    """
    _check(dimensions, rounds, noise, init)
    fails = links * presence < 1
    gain, _ = under_outages(graph, links, presence, sizes, own, outage=outage, absence=absence, rounds=300)
    merging = graph.failing(seed, sizes, links, presence, own, outage, absence)
    steady = SparseProduct(merging.matrix(0))
    first, second = torch.zeros(rounds + 1, graph.nodes), torch.zeros(rounds + 1, graph.nodes)
    apart = np.zeros(rounds + 1)
    table = _quantiles(noise)
    for chunk in column_chunks(graph.nodes, dimensions, several=fails):
        luck = [generator(seed, "early stage", block.start) for block in chunk]
        models = [
            torch.from_numpy(_start(graph.nodes, b, g) * np.float32(init)) for b, g in zip(chunk, luck, strict=True)
        ]
        for round in range(rounds + 1):
            product = SparseProduct(merging.matrix(round)) if fails and round else steady
            for i, model in enumerate(models):
                if round:
                    model = models[i] = product(model)
                    if noise:
                        model += _noise(model.shape, table, luck[i])
                squares = model * model
                first[round] += model.sum(1)
                second[round] += squares.sum(1)
                apart[round] += _spread(model, squares)
    variance = second.double() / dimensions - (first.double() / dimensions) ** 2
    within = variance.clamp(min=0).sqrt().mean(1).numpy()
    return Dynamics(within, apart / dimensions, dimensions, noise, init / gain, graph.mixing_time(own))


class SparseProduct:
    """A sparse matrix times dense ones, as weighted bags of rows: PyTorch's fastest kernel for it."""

    def __init__(self, matrix: csr_array[np.float64]) -> None:
        arrays = matrix.indices, matrix.indptr, matrix.data.astype(np.float32)
        self._indices, self._starts, self._weights = (torch.from_numpy(a) for a in arrays)

    def __call__(self, x: Tensor) -> Tensor:
        indices, starts, weights = self._indices, self._starts, self._weights
        return F.embedding_bag(indices, x, starts, mode="sum", per_sample_weights=weights, include_last_offset=True)


def column_chunks(nodes: int, dimensions: int, several: bool) -> Iterator[list[slice]]:
    """Blocks of columns, in groups that are taken through all rounds together.

    A block alone stays in the cache; several share the cost of a matrix that changes from round to round.
    """
    width = min(max(_BLOCK_BYTES // (4 * nodes) // 16 * 16, 16), 512)
    blocks = [slice(start, min(start + width, dimensions)) for start in range(0, dimensions, width)]
    group = max(1, _CHUNK_BYTES // (4 * nodes * width)) if several else 1
    for start in range(0, len(blocks), group):
        yield blocks[start : start + group]


def _start(nodes: int, block: slice, rng: np.random.Generator) -> Singles:
    return rng.standard_normal((nodes, block.stop - block.start), dtype=np.float32)


def _quantiles(scale: float) -> Singles:
    """The normal law as 65,536 equally likely values, of exactly this standard deviation."""
    values = ndtri((np.arange(2**16) + 0.5) / 2**16)
    return np.asarray(values * (scale / values.std()), np.float32)


def _noise(shape: torch.Size, table: Singles, rng: np.random.Generator) -> Tensor:
    """Normal noise looked up in a table by 16 random bits, four times as fast as drawing it: noise is most draws."""
    count = math.prod(shape)
    bits = rng.integers(0, 2**64, -(-count // 4), np.uint64).view(np.uint16)[:count]
    return torch.from_numpy(table.take(bits, mode="wrap")).view(shape)


def _spread(model: Tensor, squares: Tensor) -> float:
    """The sum over parameters of the standard deviation over nodes; `squares` is overwritten."""
    mean = model.mean(0)
    torch.sub(model, mean, out=squares)  # not the mean square less the squared mean: in consensus these are equal
    return float(squares.square_().mean(0).sqrt().double().sum())


def _check(dimensions: int, rounds: int, noise: float, init: float) -> None:
    for name, value in (("dimensions", dimensions), ("rounds", rounds)):
        if value < 1:
            raise ConfigError(name, expected="at least 1", got=value)
    if not (math.isfinite(noise) and noise >= 0):
        raise ConfigError("noise", expected="a number ≥ 0", got=noise)
    if not (math.isfinite(init) and init > 0):
        raise ConfigError("init", expected="a number above 0", got=init)

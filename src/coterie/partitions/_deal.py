"""What the partitions share: checks, the samples of each class, and dealing them out by a table of counts."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from coterie.errors import ConfigError, DataError

Indices = NDArray[np.int64]
"""Positions of samples in the data set, or their labels."""


_Function = TypeVar("_Function", bound=Callable[..., object])


def overlapping(partition: _Function) -> _Function:
    """Mark a partition whose nodes may hold the same samples."""
    vars(partition)["overlaps"] = True
    return partition


def capping(function: _Function) -> _Function:
    """Mark a partition that takes, after the generator, how many samples each node is to have; None: all there are."""
    vars(function)["caps"] = True
    return function


def short(wanted: int, there: int) -> DataError:
    """The error for more samples than a node can have."""
    return DataError(
        "items is more than a node can have",
        expected=f"at most {there}",
        got=wanted,
        cure=f"Set items to {there} or less, use fewer nodes or more data.",
    )


def check(labels: Indices, nodes: int, per_node: int = 1, setting: str = "") -> None:
    """Refuse fewer than one node, and more than can have `per_node` samples each (a number that `setting` sets)."""
    if nodes < 1:
        raise DataError("too few nodes", expected="at least 1", got=nodes, cure="Set nodes to 1 or more.")
    if nodes * per_node > len(labels):
        raise DataError(
            f"too few samples for {nodes} nodes",
            expected=f"at least {nodes * per_node}",
            got=len(labels),
            cure=f"Lower {setting}, use fewer nodes or more data." if setting else "Use fewer nodes or more data.",
        )


def positive(name: str, value: float) -> None:
    """Refuse a setting that must be a positive, finite number and is not."""
    if not (np.isfinite(value) and value > 0):
        raise ConfigError(f"{name} out of range", expected="a positive number", got=value, cure=f"Set {name} above 0.")


def by_class(labels: Indices, rng: np.random.Generator) -> list[Indices]:
    """The samples of each class that is present, in ascending order of class, each in random order."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            "this partition goes by classes",
            expected="class labels",
            got=f"{labels.dtype} targets {list(labels.shape[1:])}",
            cure="Deal samples out at random: --partition iid.",
        )
    return [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]


def enough(labels: Indices, pools: list[Indices], least: int, why: str) -> None:
    """Refuse a class with fewer than `least` samples."""
    smallest = min(range(len(pools)), key=lambda c: len(pools[c]))
    if len(pools[smallest]) < least:
        raise DataError(
            f"class {np.unique(labels)[smallest]} has too few samples",
            expected=f"at least {least} ({why})",
            got=len(pools[smallest]),
            cure="Use fewer nodes, more data or another partition.",
        )


def deal(pools: list[Indices], counts: Indices) -> list[Indices]:
    """Give node i the next `counts[i, c]` samples of pool c, for every i and c."""
    assert all(counts[:, c].sum() <= len(pool) for c, pool in enumerate(pools))
    # One piece more than there are nodes: the last is what nobody is given.
    pieces = [np.split(pool, np.cumsum(counts[:, c])) for c, pool in enumerate(pools)]
    return [np.sort(np.concatenate([piece[i] for piece in pieces])) for i in range(len(counts))]


def fill(
    wishes: NDArray[np.float64], size: int, supply: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Counts [nodes, classes] with `size` samples a node, drawn from each node's class shares while the classes last.

    All nodes draw at once, so that nobody's place in the queue matters. Of a class asked for more often than it has
    samples, lots decide who gets them; those who got none draw again from their shares over the remaining classes.
    """
    counts = np.zeros(wishes.shape, np.int64)
    left = supply.copy()
    wanted = np.full(len(wishes), size)
    assert wanted.sum() <= left.sum()
    while wanted.any():  # every turn serves everyone or empties a class
        shares = wishes * (left > 0)
        shares[shares.sum(axis=1) == 0] = left > 0
        asked = rng.multinomial(wanted, shares / shares.sum(axis=1, keepdims=True))
        for c in np.flatnonzero(asked.sum(axis=0) > left):
            asked[:, c] = rng.multivariate_hypergeometric(asked[:, c], left[c])
        counts += asked
        left -= asked.sum(axis=0)
        wanted -= asked.sum(axis=1)
    return counts

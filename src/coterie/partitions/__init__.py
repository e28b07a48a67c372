"""Partitions: labels to one index list per node. One file each; found by looking.

Where a data set has no classes, a partition is handed its targets instead, `[N, …]` of any type; those that go by
classes refuse them.
"""

from collections.abc import Callable

import numpy as np

from coterie.errors import ConfigError, DataError
from coterie.partitions._deal import Indices
from coterie.randomness import generator

Partition = Callable[[Indices, int, np.random.Generator], list[Indices]]
"""A partition with its settings bound: (labels, nodes, rng) -> the samples of each node."""


def split(
    partition: Partition,
    labels: Indices,
    nodes: int,
    seed: int,
    *,
    items: int | None = None,
    total: int | None = None,
    validation: float = 0.2,
    min_samples: int = 1,
) -> list[tuple[Indices, Indices]]:
    """The (training, validation) samples of each node.

    `total` first cuts the data to a random subset of that size, and `items` each node's part likewise; fewer than that
    stay as they are. Then the share `validation` of each node's own data is set aside, never its last training sample.
    A node with fewer than `min_samples` training samples is refused.
    """
    if not 0 <= validation < 1:
        raise ConfigError(
            "share of validation data", expected="at least 0, below 1", got=validation, cure="0.2 is usual."
        )
    kept = _some(np.arange(len(labels)), total, generator(seed, "total"))
    parts = partition(labels[kept], nodes, generator(seed, "partition"))
    if len(parts) != nodes:
        raise DataError("partition of another size", expected=f"{nodes} parts, one per node", got=len(parts))
    pairs = []
    for node, part in enumerate(parts):
        own = _some(kept[part], items, generator(seed, "items", node))
        aside = max(0, min(round(validation * len(own)), len(own) - 1))
        mixed = generator(seed, "validation", node).permutation(own)
        pairs.append((np.sort(mixed[aside:]), np.sort(mixed[:aside])))
        if len(own) - aside < max(1, min_samples):
            raise DataError(
                f"node {node} has too little training data",
                expected=f"at least {max(1, min_samples)} samples",
                got=len(own) - aside,
                cure="Use fewer nodes, more data, less validation or a milder partition.",
            )
    return pairs


def _some(indices: Indices, most: int | None, rng: np.random.Generator) -> Indices:
    """At most that many of these, at random, in ascending order."""
    if most is None or most >= len(indices):
        return indices
    return np.sort(rng.choice(indices, max(most, 0), replace=False))

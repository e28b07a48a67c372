"""Partitions: labels to one index list per node. One file each; found by looking.

Where a data set has no classes, a partition is handed its targets instead, `[N, …]` of any type; those that go by
classes refuse them.

A partition of parts of equal size takes a fourth argument, how many samples each node is to have, and is marked
`caps = True`; of the others a node's part is cut at random if it is larger.

Parts are disjoint. A partition whose nodes may hold the same samples says so: it carries `overlaps = True`.
"""

from collections.abc import Callable

import numpy as np

from coterie.errors import ConfigError, DataError
from coterie.partitions._deal import Indices, short
from coterie.randomness import generator

Partition = Callable[[Indices, int, np.random.Generator], list[Indices]]
"""A partition with its settings bound: (labels, nodes, rng) -> the samples of each node."""


def overlaps(partition: Partition) -> bool:
    """Whether a partition says that its parts may share samples."""
    return bool(getattr(getattr(partition, "func", partition), "overlaps", False))


def caps(partition: Partition) -> bool:
    """Whether a partition deals out only as many samples as each node is to have."""
    return bool(getattr(getattr(partition, "func", partition), "caps", False))


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

    `total` first cuts the data to a random subset of that size. Of `items` every node has so many if all are to have
    equally many, else at most so many, at random; more than any can have are refused. Then the share `validation` of
    each node's own data is set aside, never its last training sample. Where parts overlap it is that share of all data,
    set aside before the rest is dealt out: all nodes validate on the same samples, and nobody trains on them. A node
    with fewer than `min_samples` training samples is refused.
    """
    if not 0 <= validation < 1:
        raise ConfigError(
            "share of validation data", expected="at least 0, below 1", got=validation, cure="0.2 is usual."
        )
    kept = _some(np.arange(len(labels)), total, generator(seed, "total"))
    common = kept[:0] if overlaps(partition) else None
    if common is not None:
        kept, common = _aside(kept, validation, generator(seed, "validation"))
    capped: tuple[int, ...] = (items,) if items is not None and caps(partition) else ()
    parts = partition(labels[kept], nodes, generator(seed, "partition"), *capped)
    if len(parts) != nodes:
        raise DataError("partition of another size", expected=f"{nodes} parts, one per node", got=len(parts))
    if common is None:
        _refuse_overlap(parts)
    if items is not None and items > (largest := max(map(len, parts))):
        raise short(items, largest)
    pairs = []
    for node, part in enumerate(parts):
        own = _some(kept[part], items, generator(seed, "items", node))
        pair = _aside(own, validation, generator(seed, "validation", node)) if common is None else (own, common)
        if len(pair[0]) < max(1, min_samples):
            raise DataError(
                f"node {node} has too little training data",
                expected=f"at least {max(1, min_samples)} samples",
                got=len(pair[0]),
                cure="Use fewer nodes, more data, less validation or a milder partition.",
            )
        pairs.append(pair)
    return pairs


def _aside(indices: Indices, share: float, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """These samples without a share of them, and that share, both in ascending order; never the last sample."""
    count = max(0, min(round(share * len(indices)), len(indices) - 1))
    mixed = rng.permutation(indices)
    return np.sort(mixed[count:]), np.sort(mixed[:count])


def _refuse_overlap(parts: list[Indices]) -> None:
    """Refuse parts that share samples though the partition does not say that they may."""
    together = np.concatenate(parts)
    if again := len(together) - len(np.unique(together)):
        raise DataError(
            "partition that gives samples twice",
            expected="each sample at one node at most",
            got=f"{again} more than there are",
            cure="Deal each out once, or let the function say that nodes share samples: `name.overlaps = True`.",
        )


def _some(indices: Indices, most: int | None, rng: np.random.Generator) -> Indices:
    """At most that many of these, at random, in ascending order."""
    if most is None or most >= len(indices):
        return indices
    return np.sort(rng.choice(indices, max(most, 0), replace=False))

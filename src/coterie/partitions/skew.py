from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from coterie.errors import DataError
from coterie.partitions._deal import Indices, by_class, check, overlapping

SHARES = {1: (0.5, 0.6, 0.7, 0.8, 0.9), 2: (0.1, 0.3, 0.5, 0.7, 0.9), 3: (1.0, 0.0, 0.7, 1.0, 0.0)}
"""Of two classes, by level: the share a_k of all positives at node k; it holds 1 − a_k of all negatives."""
HELD = {3: 0.9, 4: 0.7, 5: 0.5}
"""Of more classes, by level: the share of the labels that a node holds."""


@overlapping
def skew(
    labels: Indices, nodes: int, rng: np.random.Generator, *, level: Annotated[int, Ge(1), Le(5)] = 2
) -> list[Indices]:
    """Skew labels by one of five levels; each node draws its own samples from all data, so nodes overlap.

        count(k, c) = round(a_k · size(c)) if c is positive, else round((1 − a_k) · size(c))

    Two classes have levels 1 to 3, by the shares a = (.5, .6, .7, .8, .9), (.1, .3, .5, .7, .9) and (1, 0, .7, 1, 0);
    the sixth node begins with the first share again. Of more classes, levels 1 and 2 are the same shares, the first
    half of the classes taking a_k (our reading), and at levels 3, 4 and 5 each node holds all samples of 90, 70 and
    50 % of the labels, drawn at random.

    Reference: Jiang, Fan, Halabi, Haque, Performance Analysis of Decentralized Federated Learning Deployments, 2025
    """
    check(labels, nodes)
    pools = by_class(labels, rng)
    if len(pools) < 2:
        cure = "Use more data or another partition."
        raise DataError("skew of labels", expected="samples of at least 2 classes", got=len(pools), cure=cure)
    if len(pools) == 2 and level not in SHARES:
        raise DataError("level of skew of two classes", expected="1, 2 or 3", got=level, cure="Lower the level.")
    held = _shares(level, nodes, len(pools)) if len(pools) == 2 or level < 3 else _labels(level, nodes, len(pools), rng)
    parts = []
    for own in held:
        taken = [rng.permutation(p)[: round(a * len(p))] for p, a in zip(pools, own, strict=True)]
        parts.append(np.sort(np.concatenate(taken)))
    return parts


def _shares(level: int, nodes: int, classes: int) -> np.ndarray:
    """The share of each class at each node: that of positives is a_k, and class 1 of two is the positive one."""
    a = np.resize(SHARES[level], nodes)[:, None]
    first = np.arange(classes) < (classes + 1) // 2
    return np.where(first == (classes > 2), a, 1 - a)


def _labels(level: int, nodes: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    """1 for each label that a node holds, else 0."""
    count = max(1, round(HELD[level] * classes))
    return np.array([np.isin(np.arange(classes), rng.permutation(classes)[:count]) for _ in range(nodes)], float)

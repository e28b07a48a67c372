"""Skew of a partition: measures of a table of counts, one row per node, one column per class."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Counts = NDArray[np.int64]


def counts(labels: Counts, parts: Sequence[Counts], classes: int) -> Counts:
    """The number of samples of each class at each node: [nodes, classes]."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def gini(counts: ArrayLike) -> float:
    """The Gini index over nodes within a class, averaged over the classes that have samples.

        G(c) = Σ_i Σ_j |x_ic − x_jc| / (2 n Σ_i x_ic)

    0 when every node holds the same number, (n − 1)/n when one node holds all.
    """
    table = np.sort(np.asarray(counts, np.float64), axis=0)
    table = table[:, table.sum(axis=0) > 0]
    n = len(table)
    rank = 2 * np.arange(1, n + 1) - n - 1  # the double sum over sorted values
    return float(np.mean(rank @ table / (n * table.sum(axis=0)))) if table.size else 0.0


def label_kl(counts: ArrayLike) -> NDArray[np.float64]:
    """The divergence of each node's label distribution from that of all nodes together, in nats.

        KL(i) = Σ_c p_i(c) ln(p_i(c) / p(c))

    NaN for a node without samples.
    """
    table = np.asarray(counts, np.float64)
    whole = table.sum(axis=0) / table.sum()
    with np.errstate(invalid="ignore"):
        own = table / table.sum(axis=1, keepdims=True)
    return _divergence(own, whole)


def shares_kl(shares: ArrayLike) -> float:
    """The divergence of the nodes' shares of one label, normalised to sum 1, from equal shares, in nats.

    Reference: Jiang, Fan, Halabi, Haque, Performance Analysis of Decentralized Federated Learning Deployments, 2025
    """
    given = np.asarray(shares, np.float64)
    return float(_divergence(given / given.sum(), np.full(len(given), 1 / len(given))))


def describe(counts: ArrayLike) -> dict[str, float]:
    """The measures of a partition by name, for a record or a table.

    A sample that several nodes hold counts at each of them. Of two classes, `share_kl` is that of the second.
    """
    table = np.asarray(counts, np.int64)
    sizes = table.sum(axis=1)
    divergence = label_kl(table)
    found = {
        "nodes": len(table),
        "classes": table.shape[1],
        "samples": int(sizes.sum()),
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
        "labels_per_node": float((table > 0).sum(axis=1).mean()),
        "gini": gini(table),
        "gini_sizes": gini(sizes[:, None]),
        "label_kl": float(np.nanmean(divergence)),
        "label_kl_max": float(np.nanmax(divergence)),
    }
    if table.shape[1] == 2 and table[:, 1].any():
        found["share_kl"] = shares_kl(table[:, 1])
    return found


def _divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ p ln(p / q) over the last dimension, with 0 ln 0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p == 0, 0.0, p * np.log(p / q))
    return np.asarray(terms.sum(axis=-1), np.float64)

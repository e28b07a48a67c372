from typing import Literal

import numpy as np

from coterie.errors import ConfigError, DataError
from coterie.network.skew import gini as gini_index
from coterie.partitions._deal import Indices, by_class, check, deal, enough, positive
from coterie.partitions._truncated import truncated_zipf

ATTEMPTS = 1000


def zipf(
    labels: Indices,
    nodes: int,
    rng: np.random.Generator,
    *,
    alpha: float = 1.26,
    draw: Literal["rotate", "fresh"] = "rotate",
    gini: tuple[float, float] | None = None,
) -> list[Indices]:
    """Divide each class among the nodes by truncated Zipf variates, at least one sample of each class for everyone.

        x_1, …, x_n ~ Zipf(α) given Σx ≤ size of the smallest class,  count(i, c) = ⌊size(c) · x_{i−c} / Σx⌋

    The last node takes the rest of each class, so every sample is given to someone. `rotate` moves one draw on by one
    node from class to class (indices modulo n); `fresh` draws anew for each class. With `gini` all is drawn again until
    the Gini index over nodes within a class, averaged over classes, lies in this range (the paper's has .70 to .85).

    Reference: Valerio, Boldrini, Passarella, Kertész, Karsai, Iñiguez, Coordination-free Decentralised Federated
    Learning on Complex Networks: Overcoming Heterogeneity, 2023
    """
    positive("alpha", alpha)
    check(labels, nodes)
    pools = by_class(labels, rng)
    enough(labels, pools, nodes, "one for each node")
    if gini is None:
        return deal(pools, _counts(pools, nodes, alpha, draw, rng))
    low, high = gini
    if not 0 <= low <= high <= 1:
        raise ConfigError("partition.gini", expected="two numbers from 0 to 1, the smaller first", got=list(gini))
    for _ in range(ATTEMPTS):
        counts = _counts(pools, nodes, alpha, draw, rng)
        if low <= (found := gini_index(counts)) <= high:
            return deal(pools, counts)
    raise DataError(
        f"no Zipf draw in {ATTEMPTS} had such a Gini index",
        expected=f"{low:g} to {high:g}",
        got=f"{found:.3f} in the last draw",
        cure="Widen partition.gini, or change alpha or the number of nodes.",
    )


def _counts(pools: list[Indices], nodes: int, alpha: float, draw: str, rng: np.random.Generator) -> Indices:
    """How many samples of each class each node is given, [nodes, classes]."""
    most = min(len(pool) for pool in pools)
    x = truncated_zipf(nodes, most, alpha, rng)
    counts = np.empty((nodes, len(pools)), np.int64)
    for c, pool in enumerate(pools):
        if draw == "fresh" and c > 0:
            x = truncated_zipf(nodes, most, alpha, rng)
        # In integers: x · size / Σx is at least 1, and a rounded quotient could fall below.
        counts[:, c] = np.roll(x, c if draw == "rotate" else 0) * len(pool) // x.sum()
        counts[-1, c] += len(pool) - counts[:, c].sum()
    return counts

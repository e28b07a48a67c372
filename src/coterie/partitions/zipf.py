from typing import Literal

import numpy as np

from coterie.partitions._deal import Indices, by_class, check, deal, enough, positive
from coterie.partitions._truncated import truncated_zipf


def zipf(
    labels: Indices,
    nodes: int,
    rng: np.random.Generator,
    *,
    alpha: float = 1.26,
    draw: Literal["rotate", "fresh"] = "rotate",
) -> list[Indices]:
    """Divide each class among the nodes by truncated Zipf variates, at least one sample of each class for everyone.

        x_1, …, x_n ~ Zipf(α) given Σx ≤ size of the smallest class,  count(i, c) = ⌊size(c) · x_{i−c} / Σx⌋

    The last node takes the rest of each class, so every sample is given to someone. `rotate` moves one draw on by one
    node from class to class (indices modulo n); `fresh` draws anew for each class.

    Reference: Valerio, Boldrini, Passarella, Kertész, Karsai, Iñiguez, Coordination-free Decentralised Federated
    Learning on Complex Networks: Overcoming Heterogeneity, 2023
    """
    positive("alpha", alpha)
    check(labels, nodes)
    pools = by_class(labels, rng)
    enough(labels, pools, nodes, "one for each node")
    most = min(len(pool) for pool in pools)
    x = truncated_zipf(nodes, most, alpha, rng)
    counts = np.empty((nodes, len(pools)), np.int64)
    for c, pool in enumerate(pools):
        if draw == "fresh" and c > 0:
            x = truncated_zipf(nodes, most, alpha, rng)
        # In integers: x · size / Σx is at least 1, and a rounded quotient could fall below.
        counts[:, c] = np.roll(x, c if draw == "rotate" else 0) * len(pool) // x.sum()
        counts[-1, c] += len(pool) - counts[:, c].sum()
    return deal(pools, counts)

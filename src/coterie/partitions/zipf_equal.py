from typing import Literal

import numpy as np

from coterie.partitions._deal import Indices, by_class, capping, check, deal, fill, positive, short


@capping
def zipf_equal(
    labels: Indices,
    nodes: int,
    rng: np.random.Generator,
    items: int | None = None,
    *,
    alpha: float = 1.8,
    order: Literal["rotate", "random"] = "rotate",
) -> list[Indices]:
    """Skew each node's labels by Zipf's law over its own ranking of the classes, with equal totals for all nodes.

        share(i, c) ∝ rank_i(c)^−α,  total(i) = `items`, else ⌊samples / nodes⌋

    `rotate` starts the ranking, one random order of the classes for all, one class later on each node, so that classes
    are asked for about equally often; `random` draws a ranking for each node. When a class has run out, a node's shares
    are renormalised over the remaining ones: the fewer `items`, the nearer to the law. Samples left over are not used.

    Reference: Badie-Modiri, Boldrini, Valerio, Kertész, Karsai, Initialisation and Network Effects in Decentralised
    Federated Learning, 2024
    """
    positive("alpha", alpha)
    check(labels, nodes)
    pools = by_class(labels, rng)
    classes = len(pools)
    if order == "rotate":
        ranks = (rng.permutation(classes) - np.arange(nodes)[:, None]) % classes
    else:
        ranks = rng.permuted(np.tile(np.arange(classes), (nodes, 1)), axis=1)
    wishes = np.power(1.0 + ranks, -alpha, dtype=np.float64)
    most = len(labels) // nodes
    if items is not None and items > most:
        raise short(items, most)
    return deal(pools, fill(wishes, items or most, np.array([len(pool) for pool in pools]), rng))

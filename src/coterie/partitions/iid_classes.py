import numpy as np

from coterie.partitions._deal import Indices, by_class, capping, check, deal, enough, short


@capping
def iid_classes(labels: Indices, nodes: int, rng: np.random.Generator, items: int | None = None) -> list[Indices]:
    """Give every node exactly as many samples of a class as every other node.

        count(i, c) = ⌊size(c) / nodes⌋

    The fewer than `nodes` samples of a class left over are not used. Classes of different sizes stay different. With so
    many `items` a node, each has them in these proportions, rounded so that they sum to it.

    Reference: Badie-Modiri, Boldrini, Valerio, Kertész, Karsai, Initialisation and Network Effects in Decentralised
    Federated Learning, 2024
    """
    check(labels, nodes)
    pools = by_class(labels, rng)
    enough(labels, pools, nodes, "one for each node")
    counts = np.array([len(pool) // nodes for pool in pools])
    if items is not None:
        if items > counts.sum():
            raise short(items, int(counts.sum()))
        wanted = items * counts / counts.sum()
        most = np.argsort(np.floor(wanted) - wanted, kind="stable")[: items - int(np.floor(wanted).sum())]
        counts = np.floor(wanted).astype(np.int64)
        counts[most] += 1
    return deal(pools, np.tile(counts, (nodes, 1)))

import numpy as np

from coterie.partitions._deal import Indices, by_class, check, deal, enough


def iid_classes(labels: Indices, nodes: int, rng: np.random.Generator) -> list[Indices]:
    """Give every node exactly as many samples of a class as every other node.

        count(i, c) = ⌊size(c) / nodes⌋

    The fewer than `nodes` samples of a class left over are not used. Classes of different sizes stay different.

    Reference: Badie-Modiri, Boldrini, Valerio, Kertész, Karsai, Initialisation and Network Effects in Decentralised
    Federated Learning, 2024
    """
    check(labels, nodes)
    pools = by_class(labels, rng)
    enough(labels, pools, nodes, "one for each node")
    return deal(pools, np.array([[len(pool) // nodes for pool in pools]] * nodes))

import numpy as np

from coterie.errors import DataError
from coterie.partitions._deal import Indices, by_class, check, deal, enough


def labels(labels: Indices, nodes: int, rng: np.random.Generator, *, k: int = 2) -> list[Indices]:
    """Let every node hold exactly k labels, and divide each class equally among its holders.

    A node takes the k labels that the fewest nodes before it hold, ties broken at random: the number of holders differs
    by at most one from class to class. With nodes · k at least the number of classes, every class is held and every
    sample given to someone; otherwise the classes without a holder are not used.

    Reference: Li, Diao, Chen, He, Federated Learning on Non-IID Data Silos: An Experimental Study, 2022
    """
    check(labels, nodes)
    pools = by_class(labels, rng)
    if not 1 <= k <= len(pools):
        raise DataError("labels per node", expected=f"1 to {len(pools)} (classes)", got=k, cure="Change k.")
    held = np.zeros((nodes, len(pools)), np.int64)
    for node in range(nodes):
        holders = held.sum(axis=0)
        held[node, np.lexsort((rng.random(len(pools)), holders))[:k]] = 1
    holders = held.sum(axis=0)
    enough(labels, pools, int(holders.max()), "one for each holder")
    # The first size mod holders among a class's holders get one sample more.
    sizes = np.array([len(pool) for pool in pools])
    each, extra = np.divmod(sizes, np.maximum(holders, 1))
    return deal(pools, held * (each + (np.cumsum(held, axis=0) <= extra)))

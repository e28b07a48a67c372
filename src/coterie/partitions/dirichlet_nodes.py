import numpy as np

from coterie.partitions._deal import Indices, by_class, check, deal, fill, positive


def dirichlet_nodes(labels: Indices, nodes: int, rng: np.random.Generator, *, alpha: float = 0.5) -> list[Indices]:
    """Draw each node's own mixture of classes from a symmetric Dirichlet law, all nodes holding equally many samples.

        share(i, ·) ~ Dir(α, …, α) over classes,  total(i) = ⌊samples / nodes⌋

    Samples are drawn without replacement: when a class has run out, a node's shares are renormalised over the remaining
    ones. The fewer than `nodes` samples left over are not used.

    Reference: Hsu, Qi, Brown, Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification, 2019
    """
    positive("alpha", alpha)
    check(labels, nodes)
    pools = by_class(labels, rng)
    wishes = rng.dirichlet(np.full(len(pools), alpha), size=nodes)
    return deal(pools, fill(wishes, len(labels) // nodes, np.array([len(pool) for pool in pools]), rng))

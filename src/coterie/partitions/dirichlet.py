import numpy as np

from coterie.errors import DataError
from coterie.partitions._deal import Indices, by_class, check, deal, positive

ATTEMPTS = 1000


def dirichlet(
    labels: Indices,
    nodes: int,
    rng: np.random.Generator,
    *,
    alpha: float = 0.5,
    min_samples: int = 10,
    balance: bool = False,
) -> list[Indices]:
    """Divide each class among the nodes by shares from a symmetric Dirichlet law.

        share(·, c) ~ Dir(α, …, α) over nodes,  count(·, c) ~ Multinomial(size(c), share(·, c))

    Every sample is given to someone. The smaller α, the more uneven. All is drawn again until every node has at least
    `min_samples`. With `balance`, a node that already holds its fair total (samples / nodes) gets nothing of the
    classes that follow.

    Reference: Wang, Yurochkin, Sun, Papailiopoulos, Khazaeni, Federated Learning with Matched Averaging, 2020
    """
    positive("alpha", alpha)
    check(labels, nodes, max(1, min_samples), "min_samples")
    pools = by_class(labels, rng)
    sizes = np.array([len(pool) for pool in pools])
    for _ in range(ATTEMPTS):
        shares = rng.dirichlet(np.full(nodes, alpha), size=len(pools))
        counts = _balanced(shares, sizes, rng) if balance else rng.multinomial(sizes, shares).T
        if counts.sum(axis=1).min() >= min_samples:
            return deal(pools, counts)
    raise DataError(
        f"no Dirichlet draw in {ATTEMPTS} gave every node enough samples",
        expected=f"at least {min_samples} on each of {nodes} nodes",
        got=f"{counts.sum(axis=1).min()} on the poorest in the last draw",
        cure="Raise alpha, lower min_samples or use fewer nodes.",
    )


def _balanced(shares: np.ndarray, sizes: Indices, rng: np.random.Generator) -> Indices:
    """Counts [nodes, classes], class after class, over the nodes that are still below their fair total."""
    counts = np.zeros(shares.T.shape, np.int64)
    fair = sizes.sum() / shares.shape[1]
    for c, size in enumerate(sizes):
        below = counts.sum(axis=1) < fair
        kept = shares[c] * below if (shares[c] * below).any() else below.astype(float)
        counts[:, c] = rng.multinomial(size, kept / kept.sum())
    return counts

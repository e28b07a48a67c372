import numpy as np

from coterie.partitions._deal import Indices, check


def iid(labels: Indices, nodes: int, rng: np.random.Generator) -> list[Indices]:
    """Split all samples at random into parts of equal size.

    Every sample is given to someone; sizes differ by at most one.
    """
    check(labels, nodes)
    return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), nodes)]

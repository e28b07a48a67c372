import numpy as np

from coterie.partitions._deal import Indices, capping, check, short


@capping
def iid(labels: Indices, nodes: int, rng: np.random.Generator, items: int | None = None) -> list[Indices]:
    """Split all samples at random into parts of equal size.

    Every sample is given to someone and sizes differ by at most one; or each node has so many `items`.
    """
    check(labels, nodes)
    if items is not None and items > len(labels) // nodes:
        raise short(items, len(labels) // nodes)
    return [np.sort(part[:items]) for part in np.array_split(rng.permutation(len(labels)), nodes)]

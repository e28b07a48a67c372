import numpy as np
from numpy.typing import NDArray

from coterie.errors import DataError
from coterie.partitions._deal import Indices, by_class, check, deal


def shares(
    labels: Indices, nodes: int, rng: np.random.Generator, *, shares: tuple[tuple[float, ...], ...]
) -> list[Indices]:
    """Give each node the fraction of each class that a table says: one row per node, one column per class.

        count(1, c) + … + count(i, c) = round(size(c) · (shares[1][c] + … + shares[i][c]))

    Samples are given out once: a column may sum to less than 1, and then some are not used, but not to more.

    Reference: Jiang, Fan, Halabi, Haque, Performance Analysis of Decentralized Federated Learning Deployments, 2025
    """
    check(labels, nodes)
    pools = by_class(labels, rng)
    table = _table(shares, nodes, int(labels.max()) + 1)
    sizes = np.array([len(pool) for pool in pools])
    # Rounding the running sums rather than each share leaves no sample behind when a column sums to 1.
    cuts = np.round(np.minimum(np.cumsum(table, axis=0), 1)[:, np.unique(labels)] * sizes).astype(np.int64)
    return deal(pools, np.diff(cuts, axis=0, prepend=0))


def _table(shares: tuple[tuple[float, ...], ...], nodes: int, classes: int) -> NDArray[np.float64]:
    """The shares as a matrix, if they can be."""
    lengths = sorted({len(row) for row in shares})
    if len(shares) != nodes or lengths != [classes]:
        raise DataError(
            "table of shares of the wrong shape",
            expected=f"{nodes} rows (nodes) of {classes} numbers (classes)",
            got=f"{len(shares)} rows of {' or '.join(map(str, lengths)) or 'no'} numbers",
            cure="Give every node one share of each class.",
        )
    table = np.asarray(shares, np.float64)
    worst = int(table.sum(axis=0).argmax())
    if not (table >= 0).all():
        raise DataError("a share below zero", expected="0 to 1", got=table.min(), cure="Use 0 for a class not held.")
    if table[:, worst].sum() > 1 + 1e-9:
        raise DataError(
            f"shares of class {worst} sum to more than the class",
            expected="at most 1",
            got=f"{table[:, worst].sum():g}",
            cure="Divide the column by its sum: no sample is given out twice.",
        )
    return table

"""How many rows cross between workers when nodes merge, by three plans; the fewest win.

halo: each message goes once to every worker that needs it. sums: a cut link is served by the sender's message, or by
the average of all that a worker's nodes tell one receiver, whichever is fewer (a minimum vertex cover of each pair's
bipartite cut graph). transpose: everyone merges a block of columns of all rows between two exchanges among all.

Reference: König, Graphen und Matrizen, 1931 (covers); Hopcroft and Karp, An n^5/2 Algorithm for Maximum Matchings, 1973
"""

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, maximum_bipartite_matching

Indices = NDArray[np.int64]
Pair = tuple[int, int]
"""A worker that sends, and one that receives."""
Cover = tuple[Indices, Indices]
"""Messages that are sent, and receivers (by their row) who get an average instead."""


@dataclass(frozen=True)
class Crossing:
    """How messages travel: the plan that was taken, and the rows on the wire of each."""

    plan: str
    rows: dict[str, float]
    covers: dict[Pair, Cover] = field(default_factory=dict)


def crossing(
    arcs: sp.csr_array, targets: Indices, sources: Indices, workers: int, sums: bool = True, turns: bool = True
) -> Crossing:
    """All plans for what rows (of these owners) hear of messages (of these owners), and the one with fewest rows."""
    coo = sp.coo_array(arcs)
    to, come = targets[coo.row], sources[coo.col]
    cut = to != come
    halo = np.unique(coo.col[cut].astype(np.int64) * workers + to[cut])
    found: dict[str, float] = {"halo": float(len(halo))}
    covers: dict[Pair, Cover] = {}
    if sums:
        pairs = come[cut] * workers + to[cut]
        order = np.argsort(pairs, kind="stable")
        names, starts = np.unique(pairs[order], return_index=True)
        for name, some in zip(names.tolist(), np.split(order, starts[1:]) if len(order) else [], strict=True):
            covers[divmod(name, workers)] = cover(coo.row[cut][some], coo.col[cut][some])
        found["sums"] = float(sum(len(a) + len(b) for a, b in covers.values()))
    if turns:
        used = len(np.unique(arcs.indices))
        found["transpose"] = (used + arcs.shape[0]) * (workers - 1) / workers
    plan = min(found, key=lambda name: (found[name], list(found).index(name)))
    return Crossing(plan, found, covers if plan == "sums" else {})


def cover(rows: Indices, columns: Indices) -> Cover:
    """The fewest columns and rows that touch all of these links: (columns, rows).

    From a maximum matching: with Z all that alternating paths reach from unmatched rows, rows outside Z and columns in
    it are a cover, and there is none smaller (König).
    """
    left, at = np.unique(rows, return_inverse=True)
    right, which = np.unique(columns, return_inverse=True)
    links = sp.csr_array((np.ones(len(at), np.int8), (at, which)), shape=(len(left), len(right)))
    matched = maximum_bipartite_matching(sp.csr_matrix(links), perm_type="column")
    n, m = len(left), len(right)
    ahead = np.stack([at, n + which])
    partner = np.flatnonzero(matched >= 0)
    back = np.stack([n + matched[partner], partner])
    ahead = ahead[:, matched[at] != which]
    free = np.flatnonzero(matched < 0)
    start = np.stack([np.full(len(free), n + m), free])
    every = np.concatenate([ahead, back, start], axis=1)
    paths = sp.csr_matrix((np.ones(every.shape[1], np.int8), (every[0], every[1])), shape=(n + m + 1, n + m + 1))
    reached = np.zeros(n + m + 1, bool)
    reached[breadth_first_order(paths, n + m, return_predecessors=False)] = True
    return right[reached[n : n + m]], left[~reached[:n]]

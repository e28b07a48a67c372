"""Which rows cross between workers in a merge: three plans, counted for each network, of which the cheapest is taken.

halo: each message goes once to every worker that needs it. sums: a cut link is served by the sender's message, or by
the average of all that a worker's nodes tell one receiver, whichever is fewer (a minimum vertex cover of each pair's
bipartite cut graph). transpose: everyone merges a block of columns of all rows between two exchanges among all.

Reference: König, Graphen und Matrizen, 1931 (covers); Hopcroft and Karp, An n^5/2 Algorithm for Maximum Matchings, 1973
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, maximum_bipartite_matching

from coterie.contract import Rule
from coterie.engines._moves import Delivery, Fold, Run, SpreadBundle
from coterie.job import Indices
from coterie.node.merging import Exchange

Pair = tuple[int, int]
"""A worker that sends, and one that receives."""
Cover = tuple[Indices, Indices]
"""Messages that are sent, and receivers (by their row) who get an average instead."""


@dataclass
class Route:
    """How a merge's messages travel: the plan that was taken, and the rows on the wire of each."""

    plan: str
    rows: dict[str, float]
    covers: dict[Pair, Cover] = field(default_factory=dict)

    def summed(
        self,
        bundle: SpreadBundle,
        arcs: sp.csr_array,
        worker: int,
        mine: Indices,
        delivery: Delivery,
        name: Callable[[], int],
    ) -> tuple[SpreadBundle, sp.csr_array]:
        """What these rows hear if averages stand for some messages; whoever holds those is told to take them."""
        coo = sp.coo_array(arcs)
        rows, columns, weights = coo.row, coo.col, coo.data
        left = np.ones(len(rows), bool)
        more: list[tuple[Indices, Indices, np.ndarray, int]] = []
        for source in np.unique(bundle.owners[columns]).tolist():
            if (source, worker) not in self.covers:
                continue
            sent, folded = self.covers[source, worker]
            there = (bundle.owners[columns] == source) & ~np.isin(columns, sent)
            assert np.isin(mine[rows[there]], folded).all(), "a link that nobody serves"
            left &= ~there
            if not there.any():
                continue
            targets, at = np.unique(rows[there], return_inverse=True)
            used, which = np.unique(columns[there], return_inverse=True)
            weight = weights[there].astype(np.float64) * bundle.sizes[columns[there], 0]
            total = np.bincount(at, weight, len(targets))
            share = weight / np.where(total[at] == 0, 1, total[at])
            table = sp.csr_array((share.astype(np.float32), (at, which)), shape=(len(targets), len(used)))
            key = name()
            delivery.fold(source, Fold(key, Run(int(bundle.keys[used[0]]), bundle.ids[used]), table))
            more.append((targets, np.full(len(targets), key), total, source))
        count = len(bundle.ids)
        grown = SpreadBundle(
            bundle.group,
            bundle.fields,
            np.concatenate([bundle.sizes, *(t[:, None].astype(bundle.sizes.dtype) for _, _, t, _ in more)]),
            bundle.round,
            bundle.refused,
            [],
            np.concatenate([bundle.keys, *(keys for _, keys, _, _ in more)]),
            np.concatenate([bundle.ids, *(np.arange(len(t)) for t, _, _, _ in more)]),
            np.concatenate([bundle.owners, *(np.full(len(t), s) for t, _, _, s in more)]),
        )
        new = np.concatenate([np.empty(0, np.int64), *(t for t, _, _, _ in more)])
        shape = (arcs.shape[0], count + len(new))
        values = np.concatenate([weights[left], np.ones(len(new), np.float32)]).astype(np.float32)
        places = np.concatenate([rows[left], new]), np.concatenate([columns[left], count + np.arange(len(new))])
        return grown, sp.csr_array((values, places), shape=shape)


class Planner:
    """Chooses the plan of each merge; what it found for a network is kept as long as the network stays."""

    def __init__(self, rule: Rule, workers: int) -> None:
        self.rule, self.workers = rule, workers
        kind = type(rule)
        plain = kind.lift is Rule.lift and not rule.raw and not rule.answers
        self.sums = plain
        """Whether an average of messages can stand for them: they must be lifted as models are."""
        self.turns = plain and rule.span == "coordinate" and kind.send is Rule.send and kind.init is Rule.init
        """Whether columns may be merged anywhere: nothing but the models' columns is read."""
        self.route_now = Route("halo", {})
        self.bytes = 0
        """What the plans have put on the wire so far."""
        self._known: dict[bytes, Route] = {}

    def route(self, exchange: Exchange, owners: Indices) -> Route:
        """The cheapest way for an exchange, whose rows these workers own."""
        heard = exchange.heard[0]
        bundle, arcs = heard.bundle, heard.arcs
        assert isinstance(bundle, SpreadBundle)
        alone = len(exchange.heard) == 1 and len(np.unique(bundle.keys)) == 1
        whole = alone and self.turns and self._whole(bundle, exchange)
        about = (arcs.indices, arcs.indptr, owners, bundle.owners, np.array([alone, whole]))
        key = hashlib.blake2b(b"".join(np.ascontiguousarray(a).tobytes() for a in about), digest_size=16).digest()
        if key not in self._known:
            if len(self._known) > 8:
                self._known.clear()
            found = routes(arcs, owners, bundle.owners, self.workers, alone and self.sums, whole)
            self._known[key] = found
        self.route_now = self._known[key]
        return self.route_now

    def _whole(self, bundle: SpreadBundle, exchange: Exchange) -> bool:
        """Whether everyone says its parameters and nothing else, so that messages are what is merged into, too."""
        live = list(bundle.fields) == ["w"] and bundle.fields["w"].live
        return live and bool(np.isin(exchange.rows, exchange.heard[0].arcs.indices).all())

    def count(self, delivery: Delivery, more: int = 0) -> None:
        """Add up what a merge puts on the wire."""
        self.bytes += delivery.bytes + more


def routes(
    arcs: sp.csr_array, targets: Indices, sources: Indices, workers: int, sums: bool = True, turns: bool = True
) -> Route:
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
    return Route(plan, found, covers if plan == "sums" else {})


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

"""Which rows cross between workers in a merge: the cheapest plan is taken (`network/crossing.py`), and told to them."""

import hashlib
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from coterie.contract import Rule
from coterie.engines._moves import Delivery, Fold, Run, SpreadBundle
from coterie.job import Indices, Job
from coterie.network.crossing import Cover, Crossing, Pair, crossing
from coterie.node.merging import Exchange, HeardBundle


def summed(
    covers: dict[Pair, Cover],
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
        if (source, worker) not in covers:
            continue
        sent, folded = covers[source, worker]
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
        self.route_now = Crossing("halo", {})
        self.bytes = 0
        """What the plans have put on the wire so far."""
        self._known: dict[bytes, Crossing] = {}

    def route(self, exchange: Exchange, owners: Indices, rows: int) -> Crossing:
        """The cheapest way for an exchange, whose rows, of so many there are, these workers own."""
        heard = exchange.heard[0]
        bundle, arcs = heard.bundle, heard.arcs
        assert isinstance(bundle, SpreadBundle)
        alone = len(exchange.heard) == 1 and len(np.unique(bundle.keys)) == 1
        whole = alone and self.turns and len(bundle.ids) == rows and self._whole(bundle, exchange)
        about = (arcs.indices, arcs.indptr, owners, bundle.owners, np.array([alone, whole]))
        key = hashlib.blake2b(b"".join(np.ascontiguousarray(a).tobytes() for a in about), digest_size=16).digest()
        if key not in self._known:
            if len(self._known) > 8:
                self._known.clear()
            found = crossing(arcs, owners, bundle.owners, self.workers, alone and self.sums, whole)
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


def foreseen(job: Job, g: int, round: int, rows: Indices, key: int) -> Exchange | None:
    """What will be heard of these rows of an architecture, if all of them tell everyone who hears them.

    None if nobody hears anything. The bundle's numbers are those of the rows that will say something.
    """
    graph, here = job.graph(round), job.members(round)
    nodes = job.roster.groups[g]
    there = here[graph.sources] & here[graph.targets]
    says = rows[np.isin(nodes[rows], graph.sources[there])]
    active = job.faults.active(graph, round) if job.faults.fails else np.ones(len(graph.sources), bool)
    place = np.full(graph.nodes, -1)
    place[nodes[says]] = np.arange(len(says))
    row = np.full(graph.nodes, -1)
    row[nodes] = np.arange(len(nodes))
    arcs = np.flatnonzero(there & active & (place[graph.sources] >= 0) & (row[graph.targets] >= 0))
    hearing = np.unique(row[graph.targets[arcs]])
    if not len(arcs):
        return None
    at = np.searchsorted(hearing, row[graph.targets[arcs]]), place[graph.sources[arcs]]
    weights = graph.weights[arcs].astype(np.float32)
    table = sp.csr_array((weights, at), shape=(len(hearing), len(says)))
    keys, owners = np.full(len(says), key), np.zeros(len(says), np.int64)
    sizes = job.roster.sizes(nodes[says]).numpy()
    bundle = SpreadBundle(g, {}, sizes, round, np.empty(0, np.int64), [], keys, says, owners)
    return Exchange(hearing, (HeardBundle(table, bundle),), round)

"""What is measured of a whole job: asked of every worker, brought together in the ledger."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from coterie.engines._dealing import Dealer
from coterie.engines._matrices import Models
from coterie.engines._workers import Workers
from coterie.job import Indices, Job, Ledger
from coterie.metrics import Occasion
from coterie.node import bests
from coterie.node.measures import Values, layers, tensor_means


class Measuring:
    """Judges models on samples, takes their distances, and has the gauges read what else is asked for."""

    def __init__(self, job: Job, models: Models, workers: Workers, dealer: Dealer, ledger: Ledger) -> None:
        self.job, self.workers, self.dealer, self.ledger = job, workers, dealer, ledger
        self.gauges = Gauges(job, models, workers, dealer, ledger)

    def begin(self, round: int) -> None:
        """A round begins that will be measured."""
        self.gauges.begin(round)

    def judge(self, nodes: Indices) -> None:
        """Judge the models of these nodes as they are now, on the test samples and on their own validation data."""
        self._judge(nodes, "test")
        if self.job.roster.merged:
            self.ledger.expect(nodes)
        if any(len(self.job.roster.validation[n]) for n in nodes):
            self._judge(nodes, "validation")
        if self.job.best:
            served, worth = self.dealer.served(nodes.tolist()), bests.worth(self.job, self.ledger)
            self.workers.each("hold_best", [(self.dealer.parts(some), worth) for some in served])

    def place(self, nodes: Indices, round: int) -> None:
        """Take the measures of these nodes' present models that need no samples: distances, and what gauges read."""
        for g, _, rows in self.dealer.by_group(nodes.tolist()):
            self._place(g, rows, round)
            self.gauges.trained(g, rows)

    def _place(self, g: int, rows: Indices, round: int) -> None:
        """Write down how far these rows are from their neighbours' mean and from that of all."""
        roster, latest = self.job.roster, self.ledger.latest
        nodes = roster.groups[g][rows]
        here = self.job.members(round)[roster.groups[g]]
        averages = self._averages(g, here, round)
        parts = self.workers.all("distances", g, averages, None if here.all() else np.flatnonzero(here))
        for name, squares in zip(
            ("neighbourhood_distance", "consensus_distance"), zip(*parts, strict=True), strict=True
        ):
            latest[name][nodes] = np.sqrt(np.sum(squares, axis=0))[rows]
        latest["neighbourhood_distance"][nodes[np.diff(averages.indptr)[rows] == 0]] = np.nan  # no neighbour to be near

    def merged(self, nodes: Indices) -> None:
        """Judge the models of these nodes once more, at the end of a round in which they have changed since."""
        if self.job.roster.merged:
            self._judge(nodes, "merged")

    def peaks(self, nodes: Indices) -> None:
        """Judge the models that these nodes keep beside their own, if they do."""
        served = [self.dealer.parts(some) for some in self.dealer.served(nodes.tolist())]
        for whose, scores in self.workers.each("score_peaks", [(parts, self.job.test) for parts in served]):
            self.ledger.judge(whose, scores)

    def end(self, round: int) -> None:
        """A round is over."""
        self.gauges.end(round)

    def _judge(self, nodes: Indices, occasion: Occasion) -> None:
        """Write down what the metrics of an occasion say of these nodes' models, dealt out to the workers."""
        dealt = self.dealer.to_score(nodes.tolist())
        found = self.workers.each("score", [(parts, occasion, self.job.test) for parts in dealt])
        for parts, scores in zip(dealt, found, strict=True):
            self.ledger.judge(self.dealer.nodes(parts), scores)

    def _averages(self, g: int, here: np.ndarray, round: int) -> sp.csr_array:
        """Row-stochastic weights of each row's neighbours of its own architecture, of those who are there."""
        nodes = self.job.roster.groups[g]
        near = sp.csr_array(self.job.graph(round).matrix()[nodes][:, nodes]).astype(np.float32)
        if not here.all():
            near = sp.csr_array(near @ sp.diags_array(here.astype(np.float32)))
            near.eliminate_zeros()
        total: np.ndarray = np.asarray(near.sum(1)).ravel()
        return sp.csr_array(sp.diags_array(1 / np.where(total > 0, total, 1)).astype(np.float32) @ near)


class Gauges:
    """What `measures` asks for: read by every worker of its own rows or columns."""

    def __init__(self, job: Job, models: Models, workers: Workers, dealer: Dealer, ledger: Ledger) -> None:
        self.kinds, self.roster, self.job, self.there = job.measures, job.roster, job, job.members(0)
        self.models, self.workers, self.dealer, self.ledger = models, workers, dealer, ledger

    def begin(self, round: int) -> None:
        """A round begins that will be measured."""
        self.there = self.job.members(round)
        if "steps" in self.kinds:
            for g in range(len(self.roster.groups)):
                self._read(g, "begin", self._every(g))

    def trained(self, g: int, rows: Indices) -> None:
        """These rows are as the test samples see them: after their training, before the merge."""
        if "spread" not in self.kinds:
            return
        self._spread(g, rows, "sigma_ap", "sigma_ap_merged")  # nothing may be merged, as in round 0
        if len(self.roster.groups) == 1:  # nodes of different architectures have no parameter in common
            self.workers.all("gauge", g, "apart", np.flatnonzero(self.there[self.roster.groups[g]]))
            layout = self.models.layouts[g]
            for layer, value in zip(layers(layout), tensor_means(self.models.apart(g), layout), strict=True):
                self.ledger.note("sigma_an", layer, None, value)

    def end(self, round: int) -> None:
        """A round is over."""
        for g in range(len(self.roster.groups)):
            if "spread" in self.kinds:
                self._spread(g, self._every(g), "sigma_ap_merged")
            if "steps" in self.kinds:
                for nodes, found in self._read(g, "steps", self._every(g)):
                    for name, values in found.items():
                        self._note(g, name, nodes, values)
            if "rule" in self.kinds:
                for nodes, told in self._read(g, "tell", self._every(g), round):
                    for node, each in zip(nodes, told, strict=True):
                        for name, value in each.items():
                            self.ledger.note(name, None, node, value)

    def _spread(self, g: int, rows: Indices, *names: str) -> None:
        for nodes, values in self._read(g, "spread", rows):
            for name in names if len(values) else ():
                self._note(g, name, nodes, values)

    def _every(self, g: int) -> Indices:
        return np.arange(len(self.roster.groups[g]))

    def _read(self, g: int, what: str, rows: Indices, *about: Any) -> list[tuple[Indices, Any]]:
        """What every worker finds of its part of these rows, and whose they are."""
        dealt = self.dealer.to_measure(g, rows)
        found = self.workers.each("gauge", [(g, what, some, *about) for some in dealt])
        return [(self.roster.groups[g][some], each) for some, each in zip(dealt, found, strict=True)]

    def _note(self, g: int, name: str, nodes: Indices, values: Values) -> None:
        for layer, column in zip(layers(self.models.layouts[g]), values.T, strict=True):
            self.ledger.note(name, layer, nodes, column)

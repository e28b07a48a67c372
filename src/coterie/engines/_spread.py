"""Models whose rows lie at the workers of a cluster: what the scheduler asks for, as requests to each of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from coterie.contract import Rule
from coterie.engines._crew import Crew
from coterie.engines._dealing import GroupRows
from coterie.engines._groups import Mode
from coterie.engines._matrices import Models
from coterie.engines._moves import Addressed, Delivery, FieldKind, Made, SpreadBundle, columns_used
from coterie.engines._plans import Planner, foreseen, summed
from coterie.engines._seat import live
from coterie.engines._worker import AnswerTask, ExerciseTask, LessonTask, PackedFields, PackedMessage
from coterie.engines._workers import Doing, Workers
from coterie.job import Indices, Job
from coterie.network.crossing import Crossing
from coterie.node.architecture import architectures
from coterie.node.bundles import NUMBER, Bundle
from coterie.node.cost import cost
from coterie.node.description import Description
from coterie.node.merging import Exchange
from coterie.node.snapshot import KeptRows

NOBODY: Indices = np.empty(0, np.int64)
PIECE = 1 << 19
"""Bytes of models that are sent together while others are still trained."""


class SpreadModels(Models):
    """The models of a job at the workers of a crew."""

    def __init__(self, job: Job, modes: Sequence[Mode], crew: Crew, owner: Indices) -> None:
        self.job, self.modes, self.crew, self.owner = job, modes, crew, owner
        made = architectures(job.roster, job.samples)
        self.layouts = [architecture.layout for architecture in made]
        self.widths = [architecture.width for architecture in made]
        self.costs = [cost(model, job.samples).flops for model in job.roster.models]
        about = job.samples.shape, job.samples.answers
        pairs = zip(made, job.roster.models, strict=True)
        self.descriptions = [Description.of(architecture, model, *about) for architecture, model in pairs]
        self.owners = [owner[nodes] for nodes in job.roster.groups]
        self.present: dict[tuple[int, int], Indices] = {}
        """Which messages of which bundle have come to which worker."""
        self.planner = Planner(job.rule, crew.count)
        self._fresh, self._round = 0, 0
        self._early: dict[int, tuple[int, Indices]] = {}
        """By architecture, the name of what is sent while nodes train, and of which rows it is."""

    def show(self, workers: Workers) -> None:
        theirs: Any = None  # each makes its own, and is told who needs which rows
        told = replace(self.job, samples=theirs, network=theirs, rule=theirs, protocol=theirs)
        parts = [
            tuple(nodes[o == w] for nodes, o in zip(self.job.roster.groups, self.owners, strict=True))
            for w in range(self.crew.count)
        ]
        self.crew.each("open", [(told, own, list(self.modes)) for own in parts])
        self.crew.routes = {
            "train": self._train,
            "merge": self._merge, "distances": self._distances, "answer": self._answer,
            "exercise": self._exercise, "teach": self._teach,
        }  # fmt: skip

    def begin_round(self, number: int, degree: Indices | None) -> None:
        self._round, self.present, self._early = number, {}, {}
        self.crew.all("begin_round", number, degree)

    def _delivery(self) -> Delivery:
        return Delivery(self.crew.count, self.present)

    # Messages.

    def say(self, g: int, rows: Indices, model: bool) -> SpreadBundle | None:
        early, expected = self._early.pop(g, (0, NOBODY))
        key = early if not model and np.array_equal(rows, expected) else self._name()
        owners, delivery = self.owners[g][rows], self._delivery()
        for worker in np.unique(owners).tolist():
            mine = np.flatnonzero(owners == worker)
            delivery.ask(worker, "say", key, g, rows[mine], model, mine)
        said = [each for each in self.crew.carry_out(delivery) if isinstance(each, Made)]
        if not said:
            return None
        kinds = {n: k._replace(live=any(s.kinds[n].live for s in said)) for n, k in said[0].kinds.items()}
        sizes = self.job.roster.sizes(self.job.roster.groups[g][rows]).numpy()
        refused = np.sort(np.concatenate([s.refused for s in said]))
        count = len(rows)
        keys = np.full(count, key)
        return SpreadBundle(g, kinds, sizes, self._round, refused, [], keys, np.arange(count), owners)

    def bundle(self, g: int, nodes: Indices, fields: dict[str, Tensor] | PackedFields) -> SpreadBundle:
        assert isinstance(fields, Made)
        sizes, count = self.job.roster.sizes(nodes).numpy(), len(nodes)
        at = np.full(count, fields.key), np.arange(count), np.full(count, fields.worker)
        return SpreadBundle(g, fields.kinds, sizes, self._round, fields.refused, [], *at)

    def joined(self, bundles: Sequence[Bundle]) -> SpreadBundle:
        spread = [b for b in bundles if isinstance(b, SpreadBundle)]
        at = (np.concatenate([getattr(b, name) for b in spread]) for name in ("keys", "ids", "owners"))
        sizes = np.concatenate([b.sizes for b in bundles])
        refused = np.empty(0, np.int64)
        return SpreadBundle(bundles[0].group, bundles[0].fields, sizes, self._round, refused, [], *at)

    def pack(self, bundle: Bundle, row: int) -> PackedMessage:
        assert isinstance(bundle, SpreadBundle)
        named: Any = Addressed(bundle, row)
        return named, bundle.sizes[row].item(), bundle.round

    def bytes(self, bundle: Bundle) -> int:
        kinds: dict[str, FieldKind] = bundle.fields
        tensors = sum(kind.width * kind.dtype.itemsize for kind in kinds.values())
        return tensors + NUMBER * max(map(len, bundle.numbers), default=0)

    def protect(self, bundles: Sequence[Bundle]) -> None:
        if not bundles:
            return
        for bundle in bundles:
            bundle.fields = {name: kind._replace(live=False) for name, kind in bundle.fields.items()}
        keys = np.unique(np.concatenate([b.keys for b in bundles if isinstance(b, SpreadBundle)]))
        self.crew.all("protect", keys.tolist())

    def adopt(self, g: int, row: int, bundle: Bundle, message: int) -> None:
        assert isinstance(bundle, SpreadBundle)
        delivery, worker, which = self._delivery(), int(self.owners[g][row]), np.array([message])
        delivery.need(worker, bundle, which)
        delivery.ask(worker, "adopt", g, row, bundle.runs(which)[0])
        self.crew.carry_out(delivery)

    # Operations of the scheduler that need messages.

    def _train(self, arguments: Sequence[tuple[Any, ...]], doing: Doing | None) -> list[Any]:
        """Train, and have models sent on that will be told to others, as soon as they are there."""
        delivery = self._delivery()
        if self.job.protocol.tells_trained and type(self.job.rule).send is Rule.send and not self.job.rule.observes:
            for g in range(len(self.owners)):
                self._foresee(g, [parts for parts, *_ in arguments], delivery)
        for worker, args in enumerate(arguments):
            delivery.ask(worker, "train", *args)
        self.planner.count(delivery)
        return self.crew.carry_out(delivery, doing)

    def _foresee(self, g: int, dealt: list[list[GroupRows]], delivery: Delivery) -> None:
        """Have what will be said of these rows sent in the order of their training, in pieces of some size."""
        order = [np.concatenate([NOBODY, *(rows for h, rows in parts if h == g)]) for parts in dealt]
        exchange = foreseen(self.job, g, self._round, np.sort(np.concatenate(order)), self._name())
        if exchange is None:
            return
        bundle, width = exchange.heard[0].bundle, self.layouts[g].size
        assert isinstance(bundle, SpreadBundle)
        bundle.fields = {"w": FieldKind(width, torch.float32, True)}
        if extra := self.widths[g] - width:
            bundle.fields["buffers"] = FieldKind(extra, torch.float32, True)
        said = bundle.ids.copy()  # of each message, the row
        bundle.ids, bundle.owners = np.arange(len(said)), self.owners[g][said]
        owners = self.owners[g][exchange.rows]
        route = self.planner.route(exchange, owners, len(self.owners[g]))
        if route.plan == "transpose":
            return
        self._early[g] = int(bundle.keys[0]), said
        step = max(1, PIECE // (4 * self.widths[g]))
        for worker in range(self.crew.count):
            used = columns_used(sp.csr_array(exchange.heard[0].arcs[np.flatnonzero(owners == worker)]))
            for source in np.unique(bundle.owners[used]).tolist():
                wanted = used[bundle.owners[used] == source]
                if route.plan == "sums":
                    wanted = np.intersect1d(wanted, route.covers.get((source, worker), (NOBODY, NOBODY))[0])
                when = np.argsort(order[source], kind="stable")
                place = when[np.searchsorted(order[source], said[wanted], sorter=when)] if source != worker else NOBODY
                wanted = wanted[np.argsort(place)] if source != worker else NOBODY
                for at in range(0, len(wanted), step):
                    delivery.send_early(source, worker, bundle, wanted[at : at + step], said)

    def _merge(self, arguments: Sequence[tuple[Any, ...]], doing: Doing | None) -> list[Any]:
        g, exchange = arguments[0]
        owners = self.owners[g][exchange.rows]
        route = self.planner.route(exchange, owners, len(self.owners[g]))
        if route.plan == "transpose":
            return self._turn(g, exchange, route)
        delivery = self._delivery()
        for worker in range(self.crew.count):
            mine = np.flatnonzero(owners == worker)
            if not len(mine):
                continue
            heard = []
            for bundle, arcs in self._served(route, exchange, worker, mine, delivery):
                used = columns_used(arcs)
                delivery.need(worker, bundle, used)
                heard.append((bundle.runs(used), _columns(arcs, used), bundle.sizes[used]))
            own = None if exchange.own is None else exchange.own[mine]
            voices = exchange.counts[mine] if route.plan == "sums" else None
            part = Exchange(exchange.rows[mine], (), exchange.round, own, voices)
            delivery.ask(worker, "merge", g, part, heard)
        self.planner.count(delivery)
        return self.crew.carry_out(delivery, doing)

    def _served(
        self, route: Crossing, exchange: Exchange, worker: int, mine: Indices, delivery: Delivery
    ) -> list[tuple[SpreadBundle, sp.csr_array]]:
        """What these rows hear, and how: a neighbour's row, or the average of several that one worker has."""
        found: list[Any] = [(h.bundle, sp.csr_array(h.arcs[mine])) for h in exchange.heard]
        if route.plan == "sums":
            found[0] = summed(route.covers, found[0][0], found[0][1], worker, mine, delivery, self._name)
        return found

    def _name(self) -> int:
        self._fresh += 1
        return self._fresh

    def _turn(self, g: int, exchange: Exchange, route: Crossing) -> list[Any]:
        """Merge on blocks of columns between two exchanges among all workers."""
        delivery, bundle = self._delivery(), exchange.heard[0].bundle
        assert isinstance(bundle, SpreadBundle)
        used = columns_used(exchange.heard[0].arcs)
        arcs = _columns(sp.csr_array(exchange.heard[0].arcs), used)
        about = bundle.runs(used), bundle.owners[used], bundle.sizes[used]
        for worker in range(self.crew.count):
            delivery.ask(worker, "turn", g, replace(exchange, heard=()), arcs, *about)
        self.planner.count(delivery, int(route.rows["transpose"] * self.layouts[g].size * 4))
        return self.crew.carry_out(delivery)

    def _distances(self, arguments: Sequence[tuple[Any, ...]], doing: Doing | None) -> list[Any]:
        g, averages, present = arguments[0]
        count = len(self.job.roster.groups[g])
        kinds = {"w": FieldKind(self.layouts[g].size, torch.float32, True)}
        at = np.full(count, live(g)), np.arange(count), self.owners[g]
        bundle = SpreadBundle(g, kinds, np.ones((count, 1)), self._round, np.empty(0, np.int64), [], *at)
        self.crew.all("show", g)
        delivery = Delivery(self.crew.count, {})
        for worker in range(self.crew.count):
            arcs = sp.csr_array(averages[np.flatnonzero(self.owners[g] == worker)])
            used = columns_used(arcs)
            delivery.need(worker, bundle, used)
            delivery.ask(worker, "distances", g, bundle.runs(used), _columns(arcs, used), present)
        return self.crew.carry_out(delivery, doing)

    def _answer(self, arguments: Sequence[tuple[Any, ...]], doing: Doing | None) -> list[Any]:
        delivery = self._delivery()
        for worker, (g, task, number) in enumerate(arguments):
            bundle = task.bundle
            delivery.need(worker, bundle, task.messages)
            told = AnswerTask(task.rows, task.messages, Bundle(g, {}, bundle.sizes[:0], bundle.round, bundle.refused))
            runs, sizes = bundle.runs(task.messages), bundle.sizes[task.messages]
            delivery.ask(worker, "answer", g, told, runs, sizes, number)
        return self.crew.carry_out(delivery, doing)

    def _exercise(self, arguments: Sequence[tuple[Any, ...]], doing: Doing | None) -> list[Any]:
        delivery = self._delivery()

        def told(worker: int, task: ExerciseTask) -> ExerciseTask:
            return replace(task, heard={s: delivery.reference(worker, m) for s, m in task.heard.items()})

        for worker, (tasks, *about) in enumerate(arguments):
            delivery.ask(worker, "exercise", [told(worker, task) for task in tasks], *about)
        return self.crew.carry_out(delivery, doing)

    def _teach(self, arguments: Sequence[tuple[Any, ...]], doing: Doing | None) -> list[Any]:
        delivery = self._delivery()

        def told(worker: int, task: LessonTask) -> LessonTask:
            heard = {s: (g, delivery.reference(worker, m)) for s, (g, m) in task.heard.items()}
            return replace(task, heard=heard)

        groups = np.zeros(self.job.roster.nodes, np.int64)
        for g, nodes in enumerate(self.job.roster.groups):
            groups[nodes] = g
        for worker, (tasks, number, _) in enumerate(arguments):
            delivery.ask(worker, "teach", [told(worker, task) for task in tasks], number, 1, groups.tolist())
        return self.crew.carry_out(delivery, doing)

    def settles(self, g: int) -> bool:
        """Whoever merges rows has them alone."""
        return False

    # Measures and snapshots.

    def apart(self, g: int) -> Tensor:
        delivery = self._delivery()
        delivery.ask(0, "apart", g)
        return torch.from_numpy(self.crew.carry_out(delivery)[0])

    def rows(self) -> dict[int, KeptRows]:
        """Copies of all rows, brought together here."""
        return together(self.crew.all("rows"), self.job.roster.groups)

    def restore(self, rows: dict[int, KeptRows]) -> None:
        parts = []
        for worker in range(self.crew.count):
            mine = {g: np.flatnonzero(self.owner[kept.nodes] == worker) for g, kept in rows.items()}
            parts.append(({g: _some(kept, mine[g]) for g, kept in rows.items()},))
        self.crew.each("restore", parts)


def together(found: Sequence[dict[int, KeptRows]], groups: Sequence[Indices]) -> dict[int, KeptRows]:
    """The rows of several workers, in the order of all nodes."""
    return {g: _together([rows[g] for rows in found], nodes) for g, nodes in enumerate(groups)}


def _together(parts: list[KeptRows], nodes: Indices) -> KeptRows:
    order = torch.as_tensor(np.argsort(np.concatenate([p.nodes for p in parts]), kind="stable"))

    def joined(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(tensors))[order]

    state = {name: joined([p.state[name] for p in parts]) for name in parts[0].state}
    optimiser = {name: joined([p.optimiser[name] for p in parts]) for name in parts[0].optimiser}
    matrix, integers = joined([p.matrix for p in parts]), joined([p.integers for p in parts])
    return KeptRows(nodes, matrix, integers, state, optimiser)


def _some(kept: KeptRows, rows: Indices) -> KeptRows:
    at = torch.as_tensor(rows)
    state, optimiser = ({n: t[at] for n, t in each.items()} for each in (kept.state, kept.optimiser))
    return KeptRows(kept.nodes[rows], kept.matrix[at], kept.integers[at], state, optimiser)


def _columns(arcs: sp.csr_array, used: Indices) -> sp.csr_array:
    """The same weights over the columns that are used."""
    indices = np.searchsorted(used, arcs.indices).astype(arcs.indices.dtype)
    return sp.csr_array((arcs.data, indices, arcs.indptr), shape=(arcs.shape[0], len(used)))

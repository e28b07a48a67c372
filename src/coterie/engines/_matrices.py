"""Where the numbers of all nodes are: one matrix for each architecture, in memory that all workers see."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.contract import Layout
from coterie.engines._groups import Group, Mode
from coterie.engines._worker import PackedFields, PackedMessage, packed
from coterie.engines._workers import Workers
from coterie.errors import during
from coterie.job import Indices, Job
from coterie.node.architecture import Architecture, architectures
from coterie.node.bundles import NUMBER, Bundle
from coterie.node.cost import cost
from coterie.node.description import Description
from coterie.node.snapshot import KeptRows
from coterie.protocols import Send


class Models(ABC):
    """The models of all nodes of a job: rows by architecture, wherever their numbers are.

    The scheduler names rows and hands bundles about; only here and in the workers does anyone look into them.
    """

    layouts: list[Layout]
    """Of each architecture."""
    descriptions: list[Description]
    costs: list[int]
    """Floating-point operations of a forward pass for one sample, by architecture."""

    @abstractmethod
    def show(self, workers: Workers) -> None:
        """Let workers begin the job on these rows."""

    @abstractmethod
    def begin_round(self, number: int, degree: Indices | None) -> None:
        """A round begins; `degree` is how many each node hears in it, if the network is another one."""

    @abstractmethod
    def say(self, g: int, rows: Indices, model: bool) -> Bundle | None:
        """What these rows say, a message each: the rule's, or the bare `model`; None if there is nothing to say."""

    @abstractmethod
    def bundle(self, g: int, nodes: Indices, fields: dict[str, Tensor] | PackedFields) -> Bundle:
        """What workers made of models of an architecture, a message for each of these nodes, as a bundle."""

    @abstractmethod
    def joined(self, bundles: Sequence[Bundle]) -> Bundle:
        """One bundle of several of the same architecture, with the rows of one after those of the other."""

    @abstractmethod
    def pack(self, bundle: Bundle, row: int) -> PackedMessage:
        """One message of a bundle, for a worker that may keep it."""

    @abstractmethod
    def bytes(self, bundle: Bundle) -> int:
        """How long each message of a bundle is."""

    @abstractmethod
    def protect(self, bundles: Sequence[Bundle]) -> None:
        """Before rows change: make these bundles say from now on what they say now."""

    @abstractmethod
    def adopt(self, g: int, row: int, bundle: Bundle, message: int) -> None:
        """Let a row be the model that a message of a bundle holds."""

    @abstractmethod
    def settles(self, g: int) -> bool:
        """Whether a merge has a second step, when every worker is done with the first."""

    @abstractmethod
    def apart(self, g: int) -> Tensor:
        """How far the rows are apart in each column, as the workers measured it last."""

    @abstractmethod
    def rows(self) -> dict[int, KeptRows]:
        """The present state of all rows, by architecture; it may be live."""

    @abstractmethod
    def restore(self, rows: dict[int, KeptRows]) -> None:
        """Go back to a former state of all rows."""


class Matrices(Models):
    """Models in the memory of this machine, or of its GPU."""

    def __init__(self, job: Job, modes: Sequence[Mode]) -> None:
        self.job, self.device = job, job.roster.device
        made = architectures(job.roster, job.samples)
        self.layouts = [architecture.layout for architecture in made]
        self.costs = [cost(model, job.samples).flops for model in job.roster.models]
        about = job.samples.shape, job.samples.answers
        pairs = zip(made, job.roster.models, strict=True)
        self.descriptions = [Description.of(architecture, model, *about) for architecture, model in pairs]
        self.groups = [self._group(g, *each) for g, each in enumerate(zip(made, modes, strict=True))]

    def _group(self, g: int, architecture: Architecture, mode: Mode) -> Group:
        """The rows of one architecture, at their starting points."""
        job, roster, rule = self.job, self.job.roster, self.job.rule
        nodes, width = roster.groups[g], architecture.layout.size
        matrix = self._zeros(len(nodes), architecture.width)
        integers = torch.zeros(len(nodes), architecture.integers, dtype=torch.int64).share_memory_()
        initialise = job.initialiser.make()
        for row, node in enumerate(nodes.tolist()):
            initialise(architecture.module, job.start(node))
            architecture.read(matrix[row], integers[row])
        me = roster.me(nodes, 0, architecture.layout)
        state = {k: self._shared(v.clone()) for k, v in rule.init(me, matrix[:, :width]).items()}
        kept: dict[str, Tensor] = {}
        if roster.training.keep_optimiser:
            kept = {slot: self._zeros(len(nodes), width) for slot in roster.optimiser.make().slots}
            kept["count"] = torch.zeros(len(nodes), dtype=torch.int64).share_memory_()
        out = self._zeros(len(nodes), width) if rule.span == "model" else None
        squares = self._zeros(len(nodes), width) if rule.squares else None
        return Group(matrix, integers, out, state, kept, squares, mode, **self._beside(len(nodes), width))

    def _beside(self, rows: int, width: int) -> dict[str, Tensor]:
        """What measures need beside the matrix; nothing unless asked for."""
        found: dict[str, Tensor] = {}
        if "steps" in self.job.measures:
            found |= {name: self._zeros(rows, width) for name in ("start", "trained")}
        if "spread" in self.job.measures:
            found["apart"] = self._shared(torch.zeros(width, dtype=torch.float64))
        return found

    def _zeros(self, rows: int, width: int) -> Tensor:
        return self._shared(torch.zeros(rows, width))

    def _shared(self, tensor: Tensor) -> Tensor:
        return tensor.share_memory_() if self.device == "cpu" else tensor.to(self.device)

    def show(self, workers: Workers) -> None:
        workers.all("open", self.job.roster, self.groups)

    def begin_round(self, number: int, degree: Indices | None) -> None:
        roster = self.job.roster
        self._round, self._roster = number, roster if degree is None else replace(roster, degree=degree)
        for group in self.groups:
            if group.squares is not None:
                group.squares.zero_()

    # Messages.

    def say(self, g: int, rows: Indices, model: bool) -> Bundle | None:
        """The live tensors if everyone speaks (nothing is copied), copies otherwise."""
        group, everyone = self.groups[g], len(rows) == len(self.groups[g].matrix)
        width, nodes = self.layouts[g].size, self.job.roster.groups[g][rows]
        params = group.matrix[:, :width]
        own = params if everyone else params[torch.as_tensor(rows)]
        state = group.state if everyone else {k: s[torch.as_tensor(rows)] for k, s in group.state.items()}
        me = self._roster.me(nodes, self._round, self.layouts[g])
        with during(Send.doing, nodes.tolist(), self._round):
            fields: dict[str, Any] = {"w": own} if model else dict(self.job.rule.send(me, own, state))
        if not fields:
            return None
        if model and self.job.protocol.informed:
            fields["labels"] = me.labels
        refused = _not_finite([f for f in fields.values() if f is not params])
        live = {id(own): "params"} if everyone else {}
        if self.job.rule.span == "coordinate":
            live |= {id(s): f"state:{k}" for k, s in state.items()} if everyone else {}
        else:  # row by row, some change their memory while others still read it
            fields = {name: f.clone() if any(f is s for s in state.values()) else f for name, f in fields.items()}
        fields = {name: live.get(id(f), f) for name, f in fields.items()}
        if group.matrix.shape[1] > width:
            fields["buffers"] = "buffers" if everyone else group.matrix[torch.as_tensor(rows), width:]
        return Bundle(g, fields, me.size.cpu().numpy(), self._round, refused)

    def bundle(self, g: int, nodes: Indices, fields: dict[str, Tensor] | PackedFields) -> Bundle:
        tensors = {name: torch.atleast_2d(torch.as_tensor(f)).to(self.device) for name, f in fields.items()}
        sizes = self.job.roster.sizes(nodes).numpy()
        return Bundle(g, tensors, sizes, self._round, _not_finite(list(tensors.values())))

    def joined(self, bundles: Sequence[Bundle]) -> Bundle:
        fields = {name: torch.cat([self.field(b, name) for b in bundles]) for name in bundles[0].fields}
        sizes = np.concatenate([b.sizes for b in bundles])
        return Bundle(bundles[0].group, fields, sizes, self._round, np.empty(0, np.int64))

    def pack(self, bundle: Bundle, row: int) -> PackedMessage:
        fields = {name: self.field(bundle, name)[row] for name in bundle.fields}
        if bundle.aliases:
            fields = {name: field.clone() for name, field in fields.items()}
        return packed(fields), bundle.sizes[row].item(), bundle.round

    def bytes(self, bundle: Bundle) -> int:
        tensors = (self.field(bundle, name) for name in bundle.fields)
        return sum(t.shape[1] * t.element_size() for t in tensors) + NUMBER * max(map(len, bundle.numbers), default=0)

    def protect(self, bundles: Sequence[Bundle]) -> None:
        for bundle in bundles:
            bundle.fields = {name: self.field(bundle, name).clone() for name in bundle.fields}

    def field(self, bundle: Bundle, name: str) -> Tensor:
        """A field of a bundle, whether it is at hand or named."""
        field, group, width = bundle.fields[name], self.groups[bundle.group], self.layouts[bundle.group].size
        if isinstance(field, Tensor):
            return field
        if field == "params":
            return group.matrix[:, :width]
        return group.matrix[:, width:] if field == "buffers" else group.state[field.removeprefix("state:")]

    # Rows.

    def adopt(self, g: int, row: int, bundle: Bundle, message: int) -> None:
        matrix, width = self.groups[g].matrix, self.layouts[g].size
        matrix[row, :width] = self.field(bundle, "w")[message]
        if "buffers" in bundle.fields:
            matrix[row, width:] = self.field(bundle, "buffers")[message]

    def settles(self, g: int) -> bool:
        """Whole rows, scalars and buffers must not change while other columns are still merged."""
        group, width = self.groups[g], self.layouts[g].size
        scalars = any(s.shape[1] != width for s in group.state.values())
        return self.job.rule.span == "model" or scalars or group.matrix.shape[1] > width

    def apart(self, g: int) -> Tensor:
        apart = self.groups[g].apart
        assert apart is not None
        return apart

    def rows(self) -> dict[int, KeptRows]:
        return {
            g: KeptRows(nodes, group.matrix, group.integers, group.state, group.optimiser_state)
            for g, (nodes, group) in enumerate(zip(self.job.roster.groups, self.groups, strict=True))
        }

    def restore(self, rows: dict[int, KeptRows]) -> None:
        for g, group in enumerate(self.groups):
            group.matrix.copy_(rows[g].matrix)
            group.integers.copy_(rows[g].integers)
            for mine, theirs in ((group.state, rows[g].state), (group.optimiser_state, rows[g].optimiser)):
                for name, tensor in mine.items():
                    tensor.copy_(theirs[name])


def _not_finite(fields: list[Tensor]) -> Indices:
    """Rows in which some number is not finite."""
    bad = [torch.nonzero(~f.sum(1).isfinite()).flatten().cpu().numpy() for f in fields]
    return np.unique(np.concatenate([*bad, np.empty(0, np.int64)])).astype(np.int64)

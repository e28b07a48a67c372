"""Which messages a peer takes, by their numbers: what no honest neighbour says is refused before it can do harm."""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from coterie.contract import Range
from coterie.errors import Refused
from coterie.node.harm import FLOOR, measure, spread, spreads
from coterie.node.limits import Limits
from coterie.node.node import Node
from coterie.node.sums import Packet

START, WIDER = 10, 10.0
"""In so many rounds at the start, models may be larger by this factor: they have not been averaged much yet."""
GROWN = 100.0
"""However much one's own model has grown since its start, it is taken for so many times as large at most."""
LIKE = 10.0
"""Made-up samples may be so many times as far from the middle of one's own as these are."""
PLAIN = Range()


class Screen:
    """Judges the messages of a node's neighbours by what rule, protocol and models let honest ones say."""

    def __init__(self, node: Node, limits: Limits, sizes: Mapping[int, float] | None = None) -> None:
        self.node, self.limits, self.rule, self.protocol = node, limits, node.job.rule, node.job.protocol
        self.sizes = sizes
        """What each node counts for, where that is known; None: it is what they say."""
        node.share = limits.share if sizes is None else 1.0
        self.told: Callable[[int, str], None] = lambda sender, text: None
        """Told of what is strange about a neighbour's data size, and yet not refused."""
        self._last: dict[int, float] = {}
        self._cut: dict[int, float] = {}
        """Data sizes: what each neighbour said last, and what counts for less."""
        samples = node.job.samples
        self._exercised = node.job.protocol.says(samples.shape, samples.classes)
        self._said = functools.lru_cache(maxsize=64)(self._fields)
        self._most = GROWN * measure(node.trainer.architecture.layout, node.params)
        self.begin(0)

    def begin(self, round: int) -> None:
        """Take one's own model as the measure of what is heard in this round, unless it has been led too far itself."""
        architecture, row = self.node.trainer.architecture, self.node.row
        self._own = measure(architecture.layout, self.node.params).minimum(self._most)
        self._others = self._own.amax().clamp(min=1.0) if len(self._own) else torch.ones(())
        self._buffers = spreads(architecture.buffers, self.node.trainer.buffers[row])
        self._round = round

    def __call__(self, packet: Packet, tag: str) -> Packet:
        """The packet as it is taken, which says no other size than it may; raises `Refused`."""
        if not packet.message.fields:
            return packet
        self._check_fields(packet, tag)
        self._check_ranges(packet, tag)
        return self._weighed(packet)

    # What is said.

    def _check_fields(self, packet: Packet, tag: str) -> None:
        message = packet.message
        if tag in self._exercised or tag.endswith(" answer"):
            return  # any of them may be absent, or none
        said, allowed = message.fields.keys(), self._said(packet.architecture, message.round)
        if said not in allowed:
            expected = _list(allowed[-1]) if allowed else "none"
            raise Refused("fields", f"{_list(said)} in round {message.round}, expected {expected}")

    def _fields(self, architecture: str, round: int) -> list[set[str]]:
        """The sets of fields that a model's message can have in a round: bare, or as the rule has it."""
        known = self.node.classmates[architecture].architecture
        zeros = torch.zeros(known.layout.size)
        me = replace(self.node.trainer.me(self.node.row, round), layout=known.layout)
        spoken = {*self.rule.send(me, zeros, self.rule.init(me, zeros))}
        found = [spoken] if spoken else []
        if self.protocol.keeps:
            found = [{"w", "labels"}, {"w"}, *found] if self.protocol.informed else [{"w"}, *found]
        return [names | ({"buffers"} if known.buffers.size else set()) for names in found]

    # How large it is.

    def _check_ranges(self, packet: Packet, tag: str) -> None:
        ranges = self.rule.ranges(packet.message.round)
        exercised = tag in self._exercised
        for name, field in packet.message.fields.items():
            if tag in self.protocol.samples and self.limits.factor:
                self._check_sample(name, field)
            elif name in self.protocol.models:
                self._check_size(name, spread(field), self._noted(name))
            elif exercised or name == "labels":
                self._check_size(name, spread(field), self._common)
            elif name == "buffers":
                self._check_buffers(field, packet.architecture)
            else:
                self._check_range(name, field, ranges.get(name, PLAIN), packet.architecture)

    def _check_sample(self, name: str, field: Tensor) -> None:
        """Refuse made-up samples that are far from all of one's own."""
        low, high = self._range
        middle, reach = (low + high) / 2, LIKE * max((high - low) / 2, FLOOR)
        if float((field - middle).abs().max()) > reach:
            near, far = float(field.amin()), float(field.amax())
            words = f"samples ({name}) of {near:.3g} to {far:.3g}, one's own are of {low:.3g} to {high:.3g}"
            raise Refused("range", f"{words}: they may be {LIKE:g} times as far apart")

    @functools.cached_property
    def _range(self) -> tuple[float, float]:
        """The smallest and the largest number in one's own samples."""
        found = [t for t in _tensors(self.node.job.samples.train_x) if t.is_floating_point()] or [torch.zeros(1)]
        return min(float(t.amin()) for t in found), max(float(t.amax()) for t in found)

    def _check_range(self, name: str, field: Tensor, known: Range, architecture: str) -> None:
        if known.least > -float("inf") and float(field.amin()) < known.least:
            raise Refused("range", f"{name} has a number of {float(field.amin()):.3g}, the least is {known.least:g}")
        if known.norm < float("inf") and not (norm := float(field.norm())) <= known.norm:
            raise Refused("range", f"{name} has a norm of {norm:.3g}, the greatest is {known.norm:.3g}")
        if known.scale:
            layout = self.node.classmates[architecture].architecture.layout
            alike = architecture == self.node.trainer.architecture.signature
            whole = field.numel() == layout.size
            if whole or field.numel() == len(layout.names):
                found = known.scale * (spreads(layout, field) if whole else field)
                self._check_size(name, found, self._own if alike else self._others)

    def _check_buffers(self, field: Tensor, architecture: str) -> None:
        layout = self.node.classmates[architecture].architecture.buffers
        for name, (a, b) in zip(layout.names, layout.spans, strict=True):
            if name.endswith("running_var") and float(field[a:b].amin()) < 0:
                raise Refused("range", f"{name} has a variance below zero")
        alike = architecture == self.node.trainer.architecture.signature
        own = self._buffers.clamp(min=1.0) if alike else self._common
        squares = own * max(self.limits.factor, 1.0)  # which variances are
        self._check_size("buffers", spreads(layout, field), squares)

    def _noted(self, name: str) -> Tensor:
        """How large one's own model of this name is, unless it has been led too far; if there is none yet, any."""
        known = self.node.notes.get(name)
        own = self._others if known is None else torch.tensor(max(spread(known), FLOOR))
        return own.minimum(self._most.amax())

    @functools.cached_property
    def _common(self) -> Tensor:
        """What all else is compared with: the largest of one's samples and tensors, a hundredfold."""
        return torch.tensor(
            [100.0 * max(1.0, *map(abs, self._range), float(self._own.max()) if len(self._own) else 0.0)]
        )

    def _check_size(self, name: str, found: Tensor | float, own: Tensor) -> None:
        factor = self.limits.factor * (WIDER if self._round <= START else 1.0)
        most = own * factor
        found = torch.as_tensor(found)
        if factor and not bool((found <= most).all()):
            times = float((found / own).max())
            words = f"{name} is {times:.3g} times as large as one's own, at most {factor:g} are taken: engine.limit"
            raise Refused("too-large", words)

    # What it counts for.

    def _weighed(self, packet: Packet) -> Packet:
        """The packet with the data size that it counts with."""
        sender, said = packet.sender, float(packet.message.size)
        if self.sizes is not None:
            known = {self.sizes[sender]} if not self.protocol.keeps else {*self.sizes.values()}  # or passed on
            if said not in known:
                raise Refused("size", f"a data size of {said:g}, expected {min(known):g}")
            return packet
        most, last = self._most_samples, self._last.get(sender, said)
        if said != last and not self.protocol.keeps:  # else it may be another's, passed on
            self.told(sender, f"had {last:g} samples, and now says {said:g}")
        if said > most and self._cut.get(sender) != said:
            self.told(sender, f"says that it has {said:g} samples, and counts for {most:g}: engine.share")
            self._cut[sender] = said
        self._last[sender] = said
        size = packet.message.size.clamp(max=most)
        return replace(packet, message=replace(packet.message, size=size)) if said > most else packet

    @functools.cached_property
    def _most_samples(self) -> float:
        """As many as give a neighbour its share if all others have as much data as this node."""
        own, heard = float(self.node.trainer.me(self.node.row, 0).size), self.node.job.graph(1).links(self.node.node)
        return own * len(heard) * self.limits.share / (1 - self.limits.share) if self.limits.share < 1 else float("inf")


def _tensors(x: object) -> list[Tensor]:
    if isinstance(x, Tensor):
        return [x]
    inside = x.values() if isinstance(x, dict) else x if isinstance(x, tuple | list) else ()
    return [t for each in inside for t in _tensors(each)]


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))

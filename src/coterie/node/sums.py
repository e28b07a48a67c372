"""What a node heard, added up as it comes or kept: one inbox for one node alone with its own model."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.contract import Me, Message, Rule, Term, finite
from coterie.errors import Refused
from coterie.node.buffers import BufferPool
from coterie.node.bundles import NUMBER
from coterie.protocols import Heard

BLOCK = 1 << 16
"""Numbers that are added up at a time."""
EDGE = 2**63
"""Whole numbers that can be sent are below this, and not below its negative."""


@dataclass(frozen=True)
class Packet:
    """A message on its way: tensors of one node."""

    sender: int
    architecture: str
    message: Message

    def bytes(self, half: bool = False) -> int:
        """What it takes on its way; tensors `half` of that if they travel in 16 bits, whole numbers never."""
        tensors = sum(f.numel() * f.element_size() for f in self.message.fields.values())
        return tensors // (2 if half else 1) + NUMBER * len(self.message.numbers)

    @property
    def sound(self) -> bool:
        """Whether it says something that can be sent: finite numbers, and whole ones of 64 bits."""
        said = self.message
        return not said.void and all(map(finite, said.fields.values())) and all(-EDGE <= n < EDGE for n in said.numbers)


class Kept(Heard):
    """What a peer heard and keeps, in the order of the senders."""

    def __init__(self, packets: dict[int, Packet]) -> None:
        self.packets = dict(sorted(packets.items()))

    def __len__(self) -> int:
        return len(self.packets)

    def __iter__(self) -> Iterator[int]:
        return iter(self.packets)

    def __getitem__(self, sender: int) -> Packet:
        return self.packets[sender]

    def numbers(self, sender: int) -> tuple[int, ...]:
        return self.packets[sender].message.numbers


class Sums:
    """Σ ω·weight·value and Σ ω·weight of each term, in double precision: the order of arrival does not show.

    What came first stays as it came until there is something to add: half the memory, and one pass less.
    """

    def __init__(self, pool: BufferPool) -> None:
        self.weights: dict[str, Tensor] = {}
        self._totals: dict[str, Tensor] = {}
        self._first: dict[str, tuple[Tensor, Tensor]] = {}
        self._pool = pool

    def __contains__(self, term: str) -> bool:
        return term in self.weights

    def add(self, terms: dict[str, Term], link: float) -> None:
        """Add one message's terms, which came over a link of this weight."""
        for name, term in terms.items():
            weight = torch.as_tensor(term.weight, dtype=torch.float64) * link
            if name not in self.weights:
                self._first[name], self.weights[name] = (term.value, weight), weight
                continue
            first = self._first.pop(name, None)
            if first is not None:
                self._totals[name] = self._pool.numbers(first[0], torch.float64)
            total = self._totals[name]
            for part in _blocks(total):
                block = total[..., part]
                if first is not None:
                    block.copy_(first[0][..., part]).mul_(_cut(first[1], part))
                block.addcmul_(term.value[..., part].double(), _cut(weight, part))
            self.weights[name] = self.weights[name] + weight

    def merged(self, name: str, own: Term | None, normalised: bool, link: float = 1.0) -> Tensor:
        """The sum of a term, or its mean, with one's own (ω_ii = `link`) if there is one, in single precision."""
        first, weight = self._first.get(name), self.weights[name]
        mine = torch.as_tensor(own.weight, dtype=torch.float64) * link if own is not None else None
        whole = first[0] if first is not None else self._totals[name]
        found = torch.empty(whole.shape)
        for part in _blocks(whole):
            block, divisor = whole[..., part].double(), _cut(weight, part)
            if first is not None:
                block = block * divisor
            if own is not None and mine is not None:
                block = block + _cut(mine, part) * own.value[..., part].double()
                divisor = divisor + _cut(mine, part)
            found[..., part] = block / divisor if normalised else block
        return found


def _blocks(x: Tensor) -> Iterator[slice]:
    """The last dimension in parts that stay in a fast cache, where conversion to double costs next to nothing."""
    return (slice(start, start + BLOCK) for start in range(0, x.shape[-1], BLOCK))


def _cut(x: Tensor, part: slice) -> Tensor:
    """This part of something that may be one number for all."""
    return x if x.numel() == 1 else x[..., part]


class Summed(Heard):
    """What a peer heard and did not keep: senders, and sums over their messages. Other architectures are left out."""

    def __init__(
        self,
        rule: Rule,
        architecture: str,
        links: dict[int, float],
        pool: BufferPool | None = None,
        shares: bool = False,
        own: float = 1.0,
    ) -> None:
        self.rule, self.architecture, self.links = rule, architecture, links
        self.own = own
        """ω_ii; if the links' weights are `shares`, what those heard leave of it."""
        self._shares = shares
        self.senders: list[int] = []
        pool = pool or BufferPool()
        self.sums, self.buffers = Sums(pool), Sums(BufferPool())
        self.messages: list[Message] = []
        """The messages themselves, for rules that ask for them."""
        self.weights: list[float] = []
        """The weights of their links."""
        self._said: list[float] = []
        """What each of those heard counts for."""

    def add(self, packet: Packet, discount: float = 1.0, answer: bool = False) -> None:
        """Add a message, or a neighbour's answer to one's own; one whose terms are not finite is refused."""
        if packet.architecture != self.architecture:
            return
        link = self.links[packet.sender] * discount
        terms = self.rule.lift(packet.message)
        _check(terms, packet.message)
        self.sums.add(terms, link)
        if "buffers" in packet.message:
            self.buffers.add({"buffers": Term(packet.message["buffers"], packet.message.size)}, link)
        if answer:
            return
        self.senders.append(packet.sender)
        self._said.append(link * float(packet.message.size))
        if self._shares:
            self.own -= link
        if self.rule.raw:
            self.messages.append(packet.message)
            self.weights.append(link)

    def counterweight(self, size: Tensor, share: float) -> Tensor:
        """One's own data size, or as much as leaves nobody who was heard more than this share of an average."""
        return counterweight(size, self._said, share, self.own)

    def averaged(self, buffers: Tensor, size: Tensor, me: Me) -> Tensor:
        """One's own float buffers, averaged with those heard by data size, or as the rule does it if that is robust."""
        if not buffers.numel() or "buffers" not in self.buffers:
            return buffers
        if self.rule.robust:
            heard = copy.copy(self)
            heard.messages = [Message({"w": m["buffers"]}, m.size) for m in self.messages if "buffers" in m]
            return self.rule.merge(me, buffers, {}, StreamInbox(self.rule, Message({"w": buffers}, size), heard))[0]
        own = None if self.rule.replaces else Term(buffers, size)
        return self.buffers.merged("buffers", own, True, self.own)

    def __len__(self) -> int:
        return len(self.senders)

    def __iter__(self) -> Iterator[int]:
        return iter(self.senders)

    def __getitem__(self, sender: int) -> Packet:
        raise TypeError("what is added up on arrival is not kept: the protocol must say that it keeps packets")


def counterweight(size: Tensor, said: list[float], share: float, own: float = 1.0) -> Tensor:
    """One's own data size, or as much as leaves none of these more than this share of an average with oneself."""
    return size if share == 1 or not said else size.clamp(min=(max(said) / share - sum(said)) / own)


def _check(terms: dict[str, Term], message: Message) -> None:
    """Refuse what is not finite any more when it is lifted; the fields themselves have been looked at on arrival."""
    fields = {id(field) for field in message.fields.values()}
    for name, term in terms.items():
        weight = torch.as_tensor(term.weight)
        if not (id(term.value) in fields or finite(term.value)) or not finite(weight):
            raise Refused("too-large", f"its term {name} is not finite")


class StreamInbox:
    """The inbox of one peer: sums of what came, and one's own message."""

    def __init__(self, rule: Rule, own: Message, heard: Summed) -> None:
        self.own, self.heard, self._mine = own, heard, rule.lift(own)

    @property
    def count(self) -> Tensor:
        return torch.tensor([float(len(self.heard))])

    def __contains__(self, term: str) -> bool:
        return term in self.heard.sums

    def sum(self, term: str, own: bool = False) -> Tensor:
        return self.heard.sums.merged(term, self._mine.get(term) if own else None, False, self.heard.own)

    def mean(self, term: str, own: bool = False) -> Tensor:
        return self.heard.sums.merged(term, self._mine.get(term) if own else None, True, self.heard.own)

    def rows(self, field: str, own: bool = False) -> Tensor:
        heard = [m[field] for m in self.heard.messages if field in m]
        rows = [*heard, self.own[field]] if own else heard
        return torch.stack(rows) if rows else self.own[field].new_empty(0, *self.own[field].shape)

    def shares(self, own: bool = False) -> tuple[Tensor, Tensor]:
        sizes = torch.stack([m.size for m in [*self.heard.messages, *([self.own] if own else [])]])
        return sizes.new_tensor(self.heard.weights + [self.heard.own] * own).unsqueeze(-1), sizes

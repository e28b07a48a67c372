"""Merging models whose hidden units stand in different orders."""

import re
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from coterie.contract import Data, Fields, Inbox, Layout, Me, Message, Range, Rule, State, Term
from coterie.errors import ConfigError
from coterie.rules.decavg import DecAvg

Span = tuple[int, int]


@dataclass(frozen=True)
class Aligned(Rule):
    """A base rule's merge, after each neighbour's hidden units were put into the order of one's own that they resemble.

        π_l = argmax_π Σ_u ⟨W_l[u], W'_l[π(u), π_{l−1}]⟩   layer by layer; W with the biases
        w_i ← base(w_i, {π_j w_j : j heard})

    A network does the same whatever the order of its hidden units; averages of networks do not. What travels with the
    parameters, such as the curvature of `dechw`, is put in order with them. Layers must follow one another in an
    `nn.Sequential`: the order of units is not free where layers join or share. Batch-norm statistics are buffers, which
    no rule sees: they are averaged as they stand, so prefer other norms.

    Reference: Ainsworth et al., Git Re-Basin: Merging Models modulo Permutation Symmetries, 2023
    """

    span = "model"
    raw = True
    base: Rule = DecAvg()

    def __post_init__(self) -> None:
        if isinstance(self.base, Aligned):
            raise ValueError("base must be a rule that merges, not aligned itself")
        if self.base.answers:
            name = type(self.base).__name__
            raise ValueError(f"base {name} answers in its neighbours' order of units, which cannot be aligned")
        object.__setattr__(self, "observes", self.base.observes)
        object.__setattr__(self, "squares", self.base.squares)

    def own_weight(self, size: Tensor, near: Tensor, count: Tensor) -> Tensor | float | None:
        return self.base.own_weight(size, near, count)

    def init(self, me: Me, params: Tensor) -> State:
        _layers(me.layout)  # refused now rather than after a round of training
        return self.base.init(me, params)

    def observe(self, me: Me, params: Tensor, state: State, data: Data) -> State:
        return self.base.observe(me, params, state, data)

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        return self.base.send(me, params, state)

    def tell(self, me: Me, params: Tensor, state: State) -> dict[str, Tensor]:
        return self.base.tell(me, params, state)

    def ranges(self, round: int) -> dict[str, Range]:
        return self.base.ranges(round)

    def lift(self, message: Message) -> dict[str, Term]:
        return {}  # nothing can be added up before it is in order

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        own = self.base.send(me, params, state)
        layers = _layers(me.layout)
        orders = _match(layers, params.unsqueeze(-2), inbox.rows("w"))
        rows = {name: inbox.rows(name) for name in own}
        heard = {name: f for name, f in rows.items() if f.shape[-2] == rows["w"].shape[-2]}  # what all of them say
        wide = {name for name, field in own.items() if field.shape[-1] == me.layout.size}
        fields = {name: _reorder(layers, orders, f) if name in wide else f for name, f in heard.items()}
        links, sizes = inbox.shares(own=True)
        messages = Message(fields, sizes[..., :-1, :], me.round), Message(own, me.size, me.round)
        aligned = _Kept(self.base, *messages, links)
        return self.base.merge(me, params, state, aligned)


@dataclass(frozen=True)
class _Layer:
    """A weight tensor's columns, its output units, and the vectors that have numbers for each of them."""

    weight: Span
    units: int
    vectors: tuple[Span, ...]


class _Kept:
    """An inbox over messages that were kept, `[..., count, F]`."""

    def __init__(self, rule: Rule, heard: Message, own: Message, links: Tensor) -> None:
        self._heard, self._own, self._all = heard, own, links
        self._links, self._mine_link = links[..., :-1, :], links[..., -1, :]
        self._terms, self._mine = rule.lift(heard), rule.lift(own)

    @property
    def count(self) -> Tensor:
        return torch.full_like(self._own.size, self._links.shape[-2])

    def __contains__(self, term: str) -> bool:
        return term in self._terms

    def sum(self, term: str, own: bool = False) -> Tensor:
        return self._totals(term, own)[0]

    def mean(self, term: str, own: bool = False) -> Tensor:
        value, weight = self._totals(term, own)
        return value / weight

    def rows(self, field: str, own: bool = False) -> Tensor:
        heard = self._heard[field]
        return torch.cat([heard, self._own[field].unsqueeze(-2)], dim=-2) if own else heard

    def shares(self, own: bool = False) -> tuple[Tensor, Tensor]:
        if not own:
            return self._links, self._heard.size
        return self._all, torch.cat([self._heard.size, self._own.size.unsqueeze(-2)], -2)

    def _totals(self, term: str, own: bool) -> tuple[Tensor, Tensor]:
        weight = self._links * self._terms[term].weight
        value, total = (weight * self._terms[term].value).sum(-2), weight.sum(-2)
        if not own or term not in self._mine:
            return value, total
        mine = self._mine[term]
        weight = self._mine_link * mine.weight
        return value + weight * mine.value, total + weight


def _layers(layout: Layout) -> list[_Layer]:
    """The chain of layers that a model is, or the error that it is none."""
    tensors = list(zip(layout.names, layout.shapes, layout.spans, strict=True))
    first = [i for i, (_, shape, _) in enumerate(tensors) if len(shape) >= 2]
    chain: list[_Layer] = []
    for start, end in zip(first, [*first[1:], len(tensors)], strict=True):
        name, shape, span = tensors[start]
        if len(first) > 1 and not re.fullmatch(r"(\d+\.)+\w+", name):
            raise _no_chain(f"tensor {name!r} is not in one")
        if chain and shape[1] % chain[-1].units:
            raise _no_chain(f"tensor {name!r} of shape {list(shape)} after {chain[-1].units} units")
        vectors = [(n, b - a, (a, b)) for n, _, (a, b) in tensors[start + 1 : end] if b - a > 1]
        for vector, length, _ in vectors if end < len(tensors) else []:
            if length % shape[0]:
                raise _no_chain(f"tensor {vector!r} with {length} numbers for {shape[0]} units")
        chain.append(_Layer(span, shape[0], tuple(s for _, _, s in vectors)))
    return chain


def _no_chain(got: str) -> ConfigError:
    cure = "Use such a model, as mlp and the cnns are, or another rule."
    return ConfigError("rule aligned", expected="layers one after the other in an nn.Sequential", got=got, cure=cure)


def _match(layers: list[_Layer], mine: Tensor, theirs: Tensor) -> list[Tensor]:
    """For each hidden layer, which of their units stands where mine do, `[..., count, units]`."""
    orders: list[Tensor] = []
    for layer in layers[:-1]:
        a, b = layer.weight
        weights = theirs[..., a:b].unflatten(-1, (layer.units, -1))
        into_theirs = [_inputs(weights, orders[-1]) if orders else weights]
        into_mine = [mine[..., a:b].unflatten(-1, (layer.units, -1))]
        for a, b in layer.vectors:
            into_theirs.append(theirs[..., a:b].unflatten(-1, (layer.units, -1)))
            into_mine.append(mine[..., a:b].unflatten(-1, (layer.units, -1)))
        likeness = torch.cat(into_mine, -1) @ torch.cat(into_theirs, -1).mT
        orders.append(_assign(likeness))
    return orders


def _assign(likeness: Tensor) -> Tensor:
    """The order of columns that makes the sum over the diagonal greatest, for each matrix."""
    matrices = likeness.detach().cpu().double().numpy()
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    found = np.stack([linear_sum_assignment(m, maximize=True)[1] for m in flat])
    return torch.from_numpy(found).view(likeness.shape[:-1]).to(likeness.device)


def _inputs(weights: Tensor, order: Tensor) -> Tensor:
    """Weights `[..., units, inputs]` with their inputs in this order; each unit below feeds a block of inputs."""
    blocks = weights.unflatten(-1, (order.shape[-1], -1))
    ordered: Tensor = blocks.take_along_dim(order[..., None, :, None], dim=-2)
    return ordered.flatten(-2)


def _reorder(layers: list[_Layer], orders: list[Tensor], x: Tensor) -> Tensor:
    """Rows `[..., count, P]` with all hidden units in the given orders."""
    out = x.clone()
    for at, layer in enumerate(layers):
        a, b = layer.weight
        weights = x[..., a:b].unflatten(-1, (layer.units, -1))
        if at:
            weights = _inputs(weights, orders[at - 1])
        if at < len(orders):
            weights = weights.take_along_dim(orders[at][..., None], dim=-2)
            for c, d in layer.vectors:
                vector = x[..., c:d].unflatten(-1, (layer.units, -1))
                out[..., c:d] = vector.take_along_dim(orders[at][..., None], dim=-2).flatten(-2)
        out[..., a:b] = weights.flatten(-2)
    return out

"""Merging many nodes at once: every sum over neighbours is a sparse product, taken in blocks that fit the cache."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.contract import Fields, Me, Message, Rule, State, Term
from coterie.job import Indices
from coterie.node import ruling
from coterie.node.bundles import Bundle, Scattered

BLOCK_BYTES = 768 * 1024
"""A block of all rows and some columns should stay in a fast cache while it is multiplied."""

Operand = tuple[Tensor, Tensor, Tensor]
"""A sparse matrix: column indices, where each row of them begins, and weights."""


@dataclass(frozen=True)
class HeardBundle:
    """What some rows heard of one bundle: link weights [rows, messages]."""

    arcs: sp.csr_array
    bundle: Bundle


@dataclass(frozen=True)
class Exchange:
    """A merge to be done: whose rows, and what they heard."""

    rows: Indices
    heard: tuple[HeardBundle, ...]
    round: int
    own: np.ndarray | None = None
    """ω_ii of each row, where it is not 1."""
    voices: np.ndarray | None = None
    """How many neighbours each row heard, where messages are averages of several neighbours'."""

    def take(self, positions: Indices) -> "Exchange":
        """The same for some of the rows."""
        cut = tuple(HeardBundle(h.arcs[positions], h.bundle) for h in self.heard)
        own = None if self.own is None else self.own[positions]
        return Exchange(
            self.rows[positions], cut, self.round, own, None if self.voices is None else self.voices[positions]
        )

    @property
    def counts(self) -> np.ndarray:
        """How many neighbours each row heard."""
        return np.diff(self.heard[0].arcs.indptr) if self.voices is None else self.voices


class StackInbox:
    """The inbox of several rows at once, for one block of columns."""

    def __init__(
        self, rule: Rule, exchange: Exchange, messages: list[Message], own: Message, cache: dict[Any, Any]
    ) -> None:
        self._exchange, self._messages, self._own_message, self._cache = exchange, messages, own, cache
        self._rule, self._terms = rule, [rule.lift(m) for m in messages]
        self._one = len(messages) == 1 and _same_memory(own, messages[0])
        """Whether everyone's own message stands among those heard, at its own row: then one product has all."""
        self._own: dict[str, Term] | None = self._terms[0] if self._one else None

    @property
    def count(self) -> Tensor:
        return self._column(self._exchange.counts)

    def __contains__(self, term: str) -> bool:
        return any(term in terms for terms in self._terms)

    def sum(self, term: str, own: bool = False) -> Tensor:
        return self._add(term, own and self._says(term), normalised=False)

    def mean(self, term: str, own: bool = False) -> Tensor:
        own = own and self._says(term)
        if all(_scalar(t) for t in self._summands(term, own)):
            return self._add(term, own, normalised=True)
        weights = {
            i: Term(torch.as_tensor(t.weight).expand_as(t.value)) for i, t in enumerate(self._summands(term, own))
        }
        total = sum(
            product(operand(h.arcs, weights[i].value), weights[i].value) for i, h in enumerate(self._with(term))
        )
        mine = weights[len(weights) - 1].value if own else 0
        if own and self._exchange.own is not None:
            mine = mine * self._column(self._exchange.own)
        return self.sum(term, own) / (total + mine)

    def rows(self, field: str, own: bool = False, part: slice = slice(None)) -> Tensor:
        heard = self._messages[0][field][self._senders(part)]
        return torch.cat([heard, self._own_message[field][part].unsqueeze(1)], dim=1) if own else heard

    def shares(self, own: bool = False, part: slice = slice(None)) -> tuple[Tensor, Tensor]:
        sizes = self._messages[0].size
        links = torch.from_numpy(self._exchange.heard[0].arcs.data).view(len(self._exchange.rows), -1, 1)
        links, heard = links[part].to(sizes), sizes[self._senders(part)]
        if not own:
            return links, heard
        mine = self._own_message.size[part].unsqueeze(1)
        weight = torch.ones_like(mine)
        if self._exchange.own is not None:
            weight = self._column(self._exchange.own)[part].unsqueeze(1)
        return torch.cat([links, weight], dim=1), torch.cat([heard, mine], dim=1)

    def _senders(self, part: slice) -> Tensor:
        """Whom each row heard, for raw rules, whose rows all heard equally many."""
        arcs = self._exchange.heard[0].arcs
        return torch.from_numpy(arcs.indices.astype(np.int64)).view(arcs.shape[0], -1)[part]

    def _column(self, values: np.ndarray) -> Tensor:
        """A number of each row, as rules have it."""
        return torch.from_numpy(values.astype(np.float32))[:, None].to(self._messages[0].size.device)

    def _with(self, term: str) -> list[HeardBundle]:
        return [h for h, terms in zip(self._exchange.heard, self._terms, strict=True) if term in terms]

    def _summands(self, term: str, own: bool) -> list[Term]:
        mine = [self._own[term]] if own and self._own is not None else []
        return [terms[term] for terms in self._terms if term in terms] + mine

    def _says(self, term: str) -> bool:
        """Whether one's own message has the term, too."""
        self._own = self._rule.lift(self._own_message) if self._own is None else self._own
        return term in self._own

    def _add(self, term: str, own: bool, normalised: bool) -> Tensor:
        """Σ ω·weight·value, with the weights (and their sum) folded into the sparse matrix where they are scalars."""
        terms, heard = self._summands(term, own), self._with(term)
        matrices, mine = self._weighted(term, own, normalised)
        total = None
        for matrix, summand, _ in zip(matrices, terms, heard, strict=False):
            value = summand.value if _scalar(summand) else summand.value * summand.weight
            part = product(matrix, value)
            total = part if total is None else total.add_(part)
        assert total is not None, f"nobody's message has the term {term!r}"
        if own and not self._one:
            last = terms[-1]
            total.addcmul_(mine, last.value if _scalar(last) else last.value * last.weight)
        return total

    def _weighted(self, term: str, own: bool, normalised: bool) -> tuple[list[Operand], Tensor]:
        """The matrices with the senders' scalars in them, and the factor of one's own value: alike for all blocks."""
        if (found := self._cache.get((term, own, normalised))) is not None:
            operands, mine_column = found
            return operands, mine_column
        terms, heard = self._summands(term, own), self._with(term)
        scalars = [_vector(t, h.arcs.shape[1]) for t, h in zip(terms, heard, strict=False)]
        matrices = [_scale_columns(h.arcs, s) for h, s in zip(heard, scalars, strict=True)]
        mine = _vector(terms[-1], len(self._exchange.rows)) if own else np.zeros(len(self._exchange.rows), np.float32)
        if self._exchange.own is not None:
            mine = mine * self._exchange.own
        if normalised:
            total = sum(np.asarray(m.sum(1), np.float64).ravel() for m in matrices) + mine
            inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total != 0)
            matrices = [_scale_rows(m, inverse) for m in matrices]
            mine = mine * inverse
        if self._one and own:
            matrices = [sp.csr_array(matrices[0] + sp.diags_array(mine.astype(np.float32)))]
        mine_column = self._column(mine)
        operands = [operand(m, t.value) for m, t in zip(matrices, terms, strict=False)]
        self._cache[term, own, normalised] = (operands, mine_column)
        return operands, mine_column


class RowInbox:
    """An inbox for whole rows: every sum is taken once, by column blocks and for all rows, then read in parts."""

    def __init__(self, block: Callable[[slice], StackInbox], columns: list[slice], width: int, rows: int) -> None:
        self._block, self._columns, self._width, self._rows = block, columns, width, rows
        self._whole = block(slice(0, width))
        self._done: dict[Any, Tensor] = {}
        self.part = slice(0, rows)

    @property
    def count(self) -> Tensor:
        return self._whole.count[self.part]

    def __contains__(self, term: str) -> bool:
        return term in self._whole

    def sum(self, term: str, own: bool = False) -> Tensor:
        return self._get("sum", term, own)

    def mean(self, term: str, own: bool = False) -> Tensor:
        return self._get("mean", term, own)

    def rows(self, field: str, own: bool = False) -> Tensor:
        return self._whole.rows(field, own, self.part)

    def shares(self, own: bool = False) -> tuple[Tensor, Tensor]:
        return self._whole.shares(own, self.part)

    def _get(self, kind: str, term: str, own: bool) -> Tensor:
        if (kind, term, own) not in self._done:
            blocks = ((c, getattr(self._block(c), kind)(term, own)) for c in self._columns)
            first_columns, first = next(blocks)
            if first.shape[-1] != first_columns.stop - first_columns.start:
                self._done[kind, term, own] = first  # a scalar or a field of another width: the same in every block
            else:
                result = first.new_empty(self._rows, self._width)
                result[:, first_columns] = first
                for columns, part in blocks:
                    result[:, columns] = part
                self._done[kind, term, own] = result
        return self._done[kind, term, own][self.part]


class Merger:
    """Carries out exchanges on the rows of one architecture in this process."""

    def __init__(self, rule: Rule, params: Tensor, buffers: Tensor, state: State, me: Callable[[Any, int], Me]) -> None:
        self.rule, self.params, self.buffers, self.state, self.me = rule, params, buffers, state, me
        self._scalars: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}

    def by_columns(self, exchange: Exchange, first: int, last: int) -> None:
        """Merge these columns of all rows, block by block and in place (rules with `span = "coordinate"`)."""
        parts: list[tuple[Exchange, Tensor, Me, dict[Any, Any]]] = [
            (part, torch.as_tensor(part.rows), self.me(part.rows, exchange.round), {}) for part in self._parts(exchange)
        ]
        breadth = int(exchange.counts.max()) + 1 if self.rule.raw else 1
        height = max(h.arcs.shape[1] for h in exchange.heard) * breadth
        self._scalars = {}
        for columns in blocks(first, last, height):
            merged = []
            for part, at, me, cache in parts:
                inbox, params, state = self._block(part, columns, me, cache)
                new, kept = ruling.merged(self.rule, me, params, state, inbox)
                changed = {name: self._apart(value) for name, value in kept.items() if value is not state[name]}
                merged.append((at, self._apart(new), changed))
            for number, (at, new, changed) in enumerate(merged):  # only now: nobody may read what is already merged
                _store(self.params[:, columns], at, new)
                for name, value in changed.items():
                    if self.state[name].shape[1] == self.params.shape[1]:
                        _store(self.state[name][:, columns], at, value)
                    else:
                        self._scalars[name, number] = (at, value)

    def store_scalars(self) -> None:
        """Take over memory that has no columns: every block must have read it as it was, and found the same."""
        for (name, _), (at, value) in self._scalars.items():
            _store(self.state[name], at, value)
        self._scalars = {}

    def _apart(self, value: Tensor) -> Tensor:
        """A value that does not change with what it was made of: a rule may return what it was given."""
        live = (self.params, *self.state.values())
        shared = any(value.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in live)
        return value.clone() if shared else value

    def by_rows(self, exchange: Exchange, out: Tensor, chunk: int) -> None:
        """Merge whole rows into `out`, a few at a time (rules with `span = "model"`); nothing else changes yet."""
        width = self.params.shape[1]
        for part in self._parts(exchange):
            me = self.me(part.rows, exchange.round)
            cache: dict[Any, Any] = {}
            height = max(h.arcs.shape[1] for h in part.heard)

            def block(columns: slice, part: Exchange = part, me: Me = me, cache: dict[Any, Any] = cache) -> StackInbox:
                return self._block(part, columns, me, cache)[0]

            inbox = RowInbox(block, list(blocks(0, width, height)), width, len(part.rows))
            for start in range(0, len(part.rows), chunk):
                inbox.part = slice(start, min(start + chunk, len(part.rows)))
                rows = part.rows[inbox.part]
                at = torch.as_tensor(rows)
                state = {name: s[at] for name, s in self.state.items()}
                known = self.me(rows, exchange.round), self.params[at], state
                merged, kept = ruling.merged(self.rule, *known, inbox)
                out[at] = merged
                for name, value in kept.items():
                    if value is not state[name]:
                        self.state[name][at] = value

    def average_buffers(self, exchange: Exchange) -> None:
        """Float buffers (batch-norm statistics): by data size, or by a rule that is robust; answers have none."""
        exchange = replace(exchange, heard=tuple(h for h in exchange.heard if "buffers" in h.bundle.fields))
        merged = []
        for part in self._parts(exchange) if self.rule.robust else [exchange]:
            at, me = torch.as_tensor(part.rows), self.me(part.rows, part.round)
            bundles = [h.bundle for h in part.heard]
            messages = [Message({"w": self.tensor(b.fields["buffers"])}, self._sizes(b), b.round) for b in bundles]
            own = Message({"w": self.buffers[at]}, me.size, part.round)
            inbox = StackInbox(Rule(), part, messages, own, {})
            robust = self.rule.merge(me, own["w"], {}, inbox)[0] if self.rule.robust else None
            merged.append((at, inbox.mean("w", own=not self.rule.replaces) if robust is None else robust))
        for at, new in merged:
            self.buffers[at] = new

    def _block(
        self, exchange: Exchange, columns: slice, me: Me, cache: dict[Any, Any]
    ) -> tuple[StackInbox, Tensor, State]:
        params = _cut(self.params, exchange.rows, columns, self.params.shape[1])
        state = {name: _cut(s, exchange.rows, columns, self.params.shape[1]) for name, s in self.state.items()}
        bundles = [h.bundle for h in exchange.heard]
        messages = [Message(self._fields(b, columns), self._sizes(b), b.round) for b in bundles]
        own = Message(self._said(exchange, columns, me, params, state, cache), me.size, exchange.round)
        return StackInbox(self.rule, exchange, messages, own, cache), params, state

    def _said(
        self, exchange: Exchange, columns: slice, me: Me, params: Tensor, state: State, cache: dict[Any, Any]
    ) -> Fields:
        """These columns of what the rows themselves say; a rule of whole rows is asked for them once, and then cut."""
        if self.rule.span == "coordinate":
            return self.rule.send(me, params, state)
        width = self.params.shape[1]
        if "said" not in cache:
            whole = {name: _cut(s, exchange.rows, slice(0, width), width) for name, s in self.state.items()}
            cache["said"] = self.rule.send(me, _cut(self.params, exchange.rows, slice(0, width), width), whole)
        return {name: f[:, columns] if f.shape[1] == width else f for name, f in cache["said"].items()}

    def _fields(self, bundle: Bundle, columns: slice) -> Fields:
        tensors = {name: self.tensor(f) for name, f in bundle.fields.items() if name != "buffers"}
        return {name: t[:, columns] if t.shape[1] == self.params.shape[1] else t for name, t in tensors.items()}

    def _sizes(self, bundle: Bundle) -> Tensor:
        return torch.from_numpy(bundle.sizes).to(self.params.device)

    def tensor(self, field: Any) -> Any:
        """The tensor of a message's field: itself, scattered over several, or live rows that are named."""
        if isinstance(field, Tensor | Scattered):
            return field
        if field == "params":
            return self.params
        return self.buffers if field == "buffers" else self.state[field.removeprefix("state:")]

    def _parts(self, exchange: Exchange) -> list[Exchange]:
        """All rows; for raw rules in groups that heard equally many, so that `rows` needs neither padding nor mask."""
        counts = exchange.counts
        return [exchange.take(np.flatnonzero(counts == c)) for c in np.unique(counts)] if self.rule.raw else [exchange]


def blocks(first: int, last: int, height: int) -> Iterator[slice]:
    """Column slices such that `height` rows of one fit the cache."""
    width = max(BLOCK_BYTES // (4 * max(height, 1)) // 16 * 16, 32)
    for start in range(first, last, width):
        yield slice(start, min(start + width, last))


def _cut(tensor: Tensor, rows: Indices, columns: slice, width: int) -> Tensor:
    """A block of rows and columns; a view where all rows are meant. Scalars have no columns to cut."""
    cut = tensor[:, columns] if tensor.shape[1] == width else tensor
    return cut if len(rows) == len(tensor) else cut.index_select(0, torch.as_tensor(rows).to(cut.device))


def _store(target: Tensor, at: Tensor, value: Tensor) -> None:
    if len(at) == len(target):
        target.copy_(value)
    else:
        target[at] = value


def _same_memory(one: Message, other: Message) -> bool:
    """Whether two messages are the same tensors, not just equal ones."""
    if one.fields.keys() != other.fields.keys() or not one.fields or not torch.equal(one.size, other.size):
        return False
    pairs = [(f, other[name]) for name, f in one.fields.items()]
    return all(a.data_ptr() == b.data_ptr() and a.shape == b.shape for a, b in pairs)


def _scalar(term: Term) -> bool:
    return isinstance(term.weight, float | int) or term.weight.shape[-1] == 1


def _vector(term: Term, rows: int) -> np.ndarray:
    """A summand's scalar weight for each message; 1 where the weights are per element (they are in the value then)."""
    if not _scalar(term):
        return np.ones(rows, np.float32)
    if isinstance(term.weight, Tensor):
        return np.broadcast_to(term.weight.detach().cpu().numpy().astype(np.float32).ravel(), rows)
    return np.full(rows, term.weight, np.float32)


def _scale_columns(arcs: sp.csr_array, factors: np.ndarray) -> sp.csr_array:
    return sp.csr_array((arcs.data * factors[arcs.indices], arcs.indices, arcs.indptr), shape=arcs.shape)


def _scale_rows(arcs: sp.csr_array, factors: np.ndarray) -> sp.csr_array:
    data = (arcs.data * np.repeat(factors, np.diff(arcs.indptr))).astype(np.float32)
    return sp.csr_array((data, arcs.indices, arcs.indptr), shape=arcs.shape)


def operand(arcs: sp.csr_array, like: Tensor) -> Operand:
    """A sparse matrix ready for products with tensors like this one."""
    indices, offsets, weights = (torch.from_numpy(x).to(like.device) for x in (arcs.indices, arcs.indptr, arcs.data))
    return indices, offsets, weights.to(like.dtype)


def product(operand: Operand, x: Tensor) -> Tensor:
    """A sparse matrix times a dense one, as weighted bags of rows: PyTorch's fastest kernel for it, on any device."""
    indices, offsets, weights = operand
    return F.embedding_bag(indices, x, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True)

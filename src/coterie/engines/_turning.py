"""Merging by columns: between two exchanges in which everyone sends to all others, each worker merges all rows."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from coterie.contract import Layout, Me, Rule
from coterie.engines._moves import Run
from coterie.engines._wire import Wire
from coterie.job import Indices, Roster
from coterie.node.bundles import Bundle
from coterie.node.merging import Exchange, HeardBundle, Merger

NOBODY: Indices = np.empty(0, np.int64)


class Turned(NamedTuple):
    """One's own rows of an architecture: their parameters, the place of each row among them, and all its nodes."""

    params: Tensor
    local: Indices
    nodes: Indices


def turn(
    wire: Wire,
    rule: Rule,
    roster: Roster,
    layout: Layout,
    own: Turned,
    exchange: Exchange,
    arcs: sp.csr_array,
    runs: Sequence[Run],
    owners: Indices,
    sizes: np.ndarray,
) -> None:
    """Merge a block of columns of all rows. Every message is the model of the row of its number, and nothing else."""
    params, local, nodes = own
    said, mine = np.concatenate([run.ids for run in runs]), wire.worker
    ends = [params.shape[1] * w // wire.count for w in range(wire.count + 1)]
    columns = [slice(a, b) for a, b in itertools.pairwise(ends)]
    width = ends[mine + 1] - ends[mine]
    theirs = [np.flatnonzero(owners == w) for w in range(wire.count)]
    block = params.new_empty(len(said), width)
    rows = params[torch.as_tensor(local[said[theirs[mine]]])]
    for w, found in enumerate(_swap(wire, [rows[:, c] for c in columns], [(len(t), width) for t in theirs])):
        block[torch.as_tensor(theirs[w])] = found
    at = np.searchsorted(said, exchange.rows)
    merged = block[torch.as_tensor(at)]

    def me(some: Any, round: int) -> Me:
        return roster.me(nodes[exchange.rows[some]], round, layout)

    bundle = Bundle(0, {"w": block}, sizes, exchange.round, NOBODY)
    whole = replace(exchange, rows=np.arange(len(at)), heard=(HeardBundle(arcs, bundle),))
    Merger(rule, merged, block[:, :0], {}, me).by_columns(whole, 0, width)
    home = [torch.as_tensor(np.flatnonzero(owners[at] == w)) for w in range(wire.count)]
    to = torch.as_tensor(local[exchange.rows[home[mine].numpy()]])
    back = _swap(wire, [merged[h] for h in home], [(len(to), c.stop - c.start) for c in columns])
    for c, found in zip(columns, back, strict=True):
        params[to, c] = found


def _swap(wire: Wire, out: Sequence[Tensor], shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """Send each worker its part; gives everyone's for this one, one's own among them."""
    mine, others = wire.worker, [w for w in range(wire.count) if w != wire.worker]
    coming = {w: wire.receive(w, wire.room(*shapes[w], out[mine].dtype)) for w in others}
    for w in others:
        wire.send(w, out[w])
    return [out[w] if w == mine else coming[w].wait()[0].to(out[mine].device) for w in range(wire.count)]

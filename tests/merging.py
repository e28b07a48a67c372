"""The same merge through both inboxes: that of the simulator, all rows at once, and that of a peer alone."""

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from coterie.contract import Layout, Me, Message, Rule, State
from coterie.network.graph import Graph
from coterie.node.bundles import Bundle
from coterie.node.merging import Exchange, HeardBundle, Merger
from coterie.node.sums import Packet, StreamInbox, Summed


@dataclass
class Nodes:
    """Models, data sizes and a network, with no data behind them."""

    params: Tensor
    sizes: Tensor
    graph: Graph
    layout: Layout
    state: State = field(default_factory=dict)
    round: int = 1

    def me(self, rows: object, round: int) -> Me:
        n = len(self.params)
        degree = torch.as_tensor(self.graph.degree).float()[:, None]
        return Me(
            node=torch.arange(n)[:, None][rows],
            size=self.sizes[:, None][rows],
            degree=degree[rows],
            labels=torch.full((n, 2), 0.5)[rows],
            seed=0,
            round=round,
            layout=self.layout,
        )


def nodes(params: object, sizes: object, graph: Graph, shapes: tuple[tuple[int, ...], ...] | None = None) -> Nodes:
    w = torch.as_tensor(params, dtype=torch.float32)
    shapes = shapes or ((w.shape[1],),)
    names = tuple(f"t{i}" for i in range(len(shapes)))
    return Nodes(w, torch.as_tensor(sizes, dtype=torch.float32), graph, Layout(names, shapes))


def stacked(rule: Rule, who: Nodes, active: np.ndarray | None = None, chunk: int = 2) -> tuple[Tensor, State]:
    """Parameters and state of all nodes after one merge in the simulator's way; who heard nobody is left alone."""
    params, state = who.params.clone(), {k: s.clone() for k, s in who.state.items()}
    arcs = sp.csr_array(_heard(who.graph, active).astype(np.float32))
    rows = np.flatnonzero(np.diff(arcs.indptr))
    me = who.me(slice(None), who.round)
    fields = {k: f.clone() for k, f in rule.send(me, who.params, who.state).items()}
    bundle = Bundle(0, fields, me.size.numpy(), who.round, np.empty(0, np.int64))
    exchange = Exchange(rows, (HeardBundle(arcs[rows], bundle),), who.round)
    merger = Merger(rule, params, torch.zeros(len(params), 0), state, who.me)
    if not len(rows):
        return params, state
    if rule.span == "coordinate":
        merger.by_columns(exchange, 0, params.shape[1])
        merger.store_scalars()
    else:
        out = torch.zeros_like(params)
        merger.by_rows(exchange, out, chunk)
        params[rows] = out[rows]
    return params, state


def alone(rule: Rule, who: Nodes, active: np.ndarray | None = None) -> tuple[Tensor, State]:
    """The same, each node as a peer of its own."""
    params, state = who.params.clone(), {k: s.clone() for k, s in who.state.items()}
    heard = _heard(who.graph, active)
    for i in range(len(params)):
        links = {int(j): float(heard[i, j]) for j in np.flatnonzero(heard[i])}
        if links:
            added = Summed(rule, "model", links)
            for j in links:
                added.add(Packet(j, "model", _message(rule, who, j)))
            inbox = StreamInbox(rule, _message(rule, who, i), added)
            mine = {k: s[i] for k, s in who.state.items()}
            params[i], kept = rule.merge(who.me(i, who.round), who.params[i].clone(), mine, inbox)
            for k, value in kept.items():
                state[k][i] = value
    return params, state


def _heard(graph: Graph, active: np.ndarray | None) -> np.ndarray:
    """Weights of the links that carry a message, dense: row = who hears."""
    dense = np.zeros((graph.nodes, graph.nodes))
    keep = slice(None) if active is None else active
    dense[graph.targets[keep], graph.sources[keep]] = graph.weights[keep]
    return dense


def _message(rule: Rule, who: Nodes, i: int) -> Message:
    me = who.me(i, who.round)
    return Message(rule.send(me, who.params[i], {k: s[i] for k, s in who.state.items()}), me.size, who.round)

"""Rules that give back what averaging takes from unlike weights: by numbers, and from merge to merge."""

from dataclasses import replace

import numpy as np
import torch

from coterie.network.graph import Graph
from coterie.parts import find
from merging import Nodes, nodes, stacked

SHAPES = ((4, 50), (4,))
SPANS = ((0, 200), (200, 204))


def drawn(graph: Graph, middle: float = 0.0) -> Nodes:
    params = torch.randn(graph.nodes, 204, generator=torch.Generator().manual_seed(0)) + middle
    return nodes(params, torch.ones(graph.nodes), graph, SHAPES)


def ring(count: int) -> Graph:
    return Graph.from_edges(count, [(i, (i + 1) % count) for i in range(count)])


def test_variance_restored_is_a_rescaling_about_the_mean() -> None:
    who = drawn(Graph.from_edges(6, [(i, j) for i in range(6) for j in range(i)]), 3.0)
    merged, _ = stacked(find("rules", "variance_restored").make(), who)
    for a, b in SPANS:
        mean = who.params[:, a:b].mean(0)
        wanted = who.params[:, a:b].var(1, correction=0).mean().sqrt() / mean.std(correction=0)
        torch.testing.assert_close(merged[0, a:b], mean.mean() + (mean - mean.mean()) * wanted, rtol=1e-4, atol=1e-4)


def test_the_correction_ends_when_it_is_told_to() -> None:
    who = replace(drawn(ring(4)), round=3)
    plain, _ = stacked(find("rules", "decavg").make(), who)
    for until, same in ((2, True), (3, False)):
        merged, _ = stacked(find("rules", "variance_corrected").make(until=until), who)
        assert torch.allclose(merged, plain, atol=1e-6) == same


def test_a_consensus_start_is_one_model_about_as_wide_as_the_first() -> None:
    rule, who = find("rules", "consensus_start").make(), drawn(ring(8))
    first = who.params.clone()
    who.state = rule.init(who.me(slice(None), 0), who.params)
    for round in range(1, 60):
        params, state = stacked(rule, replace(who, round=round))
        who = replace(who, params=params, state=state)
    assert who.state["begun"].all()
    assert float(who.params.std(0).max()) < 0.05
    widths = [[x[:, a:b].square().mean().sqrt() for a, b in SPANS[:1]] for x in (who.params, first)]
    np.testing.assert_allclose(*widths, rtol=0.25)

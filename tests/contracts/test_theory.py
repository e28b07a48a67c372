"""What the theory says of merging, held against the engines' own sums."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from coterie.graph import Graph, draw
from coterie.initialisers import Origin, weights
from coterie.parts import find
from coterie.rules.decavg import DecAvg
from merging import Nodes, nodes, stacked


def network(name: str, n: int, seed: int = 0, **settings: object) -> Graph:
    return draw(find("topologies", name).make(**settings), n, seed, connect=True)


def merged(who: Nodes, times: int) -> Nodes:
    for _ in range(times):
        who.params, _ = stacked(DecAvg(), who)
    return who


@pytest.mark.parametrize(("name", "settings"), [("regular", {"k": 4}), ("ring", {}), ("complete", {})])
def test_averaging_preserves_the_mean_on_regular_graphs(name: str, settings: dict[str, object]) -> None:
    who = nodes(np.random.default_rng(0).normal(size=(12, 40)), [7] * 12, network(name, 12, **settings))
    before = who.params.mean(0)
    torch.testing.assert_close(merged(who, 10).params.mean(0), before, rtol=1e-5, atol=1e-6)


def test_averaging_preserves_the_steady_mean_on_any_graph() -> None:
    """Σ v_i w_i is kept, v being the graph's own account of how much each node counts."""
    sizes = np.random.default_rng(1).integers(5, 50, 12)
    graph = network("ba", 12, m=2)
    who = nodes(np.random.default_rng(0).normal(size=(12, 40)), sizes, graph)
    v = torch.as_tensor(graph.steady_state(sizes)).float()
    before = v @ who.params
    end = merged(who, 60).params
    torch.testing.assert_close(v @ end, before, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(end, before.expand_as(end), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "n", "second"),
    [("ring", 10, (1 + 2 * math.cos(2 * math.pi / 10)) / 3), ("star", 5, 0.5), ("line", 3, 0.5), ("er", 14, None)],
)
def test_consensus_contracts_at_the_spectral_gap(name: str, n: int, second: float | None) -> None:
    graph = network(name, n, **({"p": 0.3} if name == "er" else {}))
    rate = 1 - graph.spectral_gap()
    if second is not None:
        assert rate == pytest.approx(second, abs=1e-9)
    who = nodes(np.random.default_rng(0).normal(size=(n, 500)), [1] * n, graph)

    def spread(x: Tensor) -> float:
        return float((x - x.mean(0)).norm())

    first = round(3 / -math.log(rate))  # faster modes have died out, rounding errors not come up yet
    early = spread(merged(who, first).params)
    late = spread(merged(who, 6).params)
    assert (late / early) ** (1 / 6) == pytest.approx(rate, rel=0.02)


def test_one_merge_on_the_complete_graph_is_consensus() -> None:
    who = merged(nodes(np.random.default_rng(0).normal(size=(6, 9)), [3, 1, 4, 1, 5, 9], network("complete", 6)), 1)
    torch.testing.assert_close(who.params, who.params[:1].expand_as(who.params), rtol=1e-5, atol=1e-6)


class TestGain:
    """Averaging shrinks weights that were drawn apart; the gain-corrected start makes up for it."""

    def models(self, initialiser: str, graph: Graph, sizes: np.ndarray) -> Nodes:
        draws = []
        for node in range(graph.nodes):
            module = nn.Linear(100, 200)
            find("initialisers", initialiser).make()(module, Origin(0, node, graph.gain(sizes)))
            draws.append(weights(module)[0].detach().flatten().numpy())
        return nodes(np.stack(draws), sizes, graph)

    @pytest.mark.parametrize(("name", "settings"), [("ba", {"m": 2}), ("star", {}), ("regular", {"k": 4})])
    def test_variance_after_many_merges(self, name: str, settings: dict[str, object]) -> None:
        graph, sizes = network(name, 16, **settings), np.random.default_rng(0).integers(10, 60, 16)
        he = math.sqrt(2 / 100)
        with_gain = merged(self.models("gain", graph, sizes), 50).params.std(dim=1)
        without = merged(self.models("he", graph, sizes), 50).params.std(dim=1)
        np.testing.assert_allclose(with_gain, he, rtol=0.03)
        np.testing.assert_allclose(without, he / graph.gain(sizes), rtol=0.03)

    def test_closed_forms(self) -> None:
        assert network("complete", 9).gain() == pytest.approx(3)
        assert network("star", 10).gain() == pytest.approx(28 / math.sqrt(136))
        assert network("line", 10).gain() == pytest.approx(28 / math.sqrt(80))
        assert network("line", 3).gain([10, 30, 60]) == pytest.approx(1.421575, abs=1e-6)

    def test_early_stage_model_on_the_complete_graph(self) -> None:
        """Merging plus noise each round: σ_ap² = σ_init²/n + σ_noise²(1 + (t − 1)/n)."""
        n, d, rounds, start, noise = 8, 40_000, 5, 1.0, 0.3
        rng = np.random.default_rng(0)
        who = nodes(rng.normal(0, start, (n, d)), [1] * n, network("complete", n))
        for _ in range(rounds):
            merged(who, 1).params += torch.as_tensor(rng.normal(0, noise, (n, d))).float()
        wanted = start**2 / n + noise**2 * (1 + (rounds - 1) / n)
        assert float(who.params.var(dim=1).mean()) == pytest.approx(wanted, rel=0.02)

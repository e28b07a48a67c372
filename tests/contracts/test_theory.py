"""What the theory says of merging, held against the engines' own sums."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from coterie.config.build import gain
from coterie.contract import Rule
from coterie.initialisers import Origin, weights
from coterie.network.graph import Graph, draw
from coterie.parts import find
from coterie.rules.cfa import CFA
from coterie.rules.decavg import DecAvg
from coterie.rules.dechw import DecHW
from coterie.rules.variance_corrected import VarianceCorrected
from driving import Outcome, drive
from merging import Nodes, nodes, stacked


def network(name: str, n: int, seed: int = 0, **settings: object) -> Graph:
    return draw(find("topologies", name).make(**settings).draw, n, seed, connect=True)


def merged(who: Nodes, times: int, rule: Rule | None = None) -> Nodes:
    for _ in range(times):
        who.params, _ = stacked(rule or DecAvg(), who)
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


MERGING: dict[str, Any] = {"protocol": "coterie.node.gossip:Gossip", "nodes": 8, "total": 400, "rule": "decavg"}
"""Unequal data sizes, and no training: models are merged and nothing else."""


def rows(found: Outcome) -> Tensor:
    return torch.stack([found.models[i] for i in sorted(found.models)]).double()


@pytest.mark.parametrize("links", [1.0, 0.6])
@pytest.mark.parametrize("engine", ["stack", "memory"])
def test_metropolis_preserves_the_mean_on_any_graph(engine: str, links: float) -> None:
    """Whatever is not heard a node keeps, so that the mean stays where links fail, too; data sizes do not matter."""
    settings = {**MERGING, "topology": {"name": "ba", "m": 2, "mixing": "metropolis"}, "links": links}
    start, early, late = (rows(drive(engine, rounds=r, **settings)) for r in (0, 3, 150))
    mean = start.mean(0)
    torch.testing.assert_close(early.mean(0), mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(late, mean.expand_as(late), rtol=0, atol=1e-4)
    assert (early - mean).norm() < (start - mean).norm()
    by_data = rows(drive(engine, rounds=3, **{**settings, "topology": {"name": "ba", "m": 2}}))
    assert (by_data.mean(0) - mean).abs().max() > 0.01


def test_models_that_meet_in_pairs_agree_on_their_mean() -> None:
    settings = {**MERGING, "topology": {"name": "matching", "mixing": "uniform"}}
    start, end = (rows(drive("stack", rounds=r, **settings)) for r in (0, 40))
    torch.testing.assert_close(end, start.mean(0).expand_as(end), rtol=0, atol=1e-4)


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

    @pytest.mark.parametrize(("name", "settings"), [("ba", {"m": 2}), ("regular", {"k": 4}), ("er", {"p": 0.4})])
    def test_cfa_has_a_gain_of_its_own(self, name: str, settings: dict[str, object]) -> None:
        """v_i ∝ d_i k_i Σ_{j∈N_i} d_j, the steady state of w ← w + (w̄ − w)/k."""
        graph, sizes = network(name, 16, **settings), np.random.default_rng(0).integers(10, 60, 16)
        v = sizes * graph.degree * (graph.matrix() @ sizes)
        wanted = gain(CFA(), [graph], sizes)
        assert wanted == pytest.approx(v.sum() / np.linalg.norm(v))
        assert wanted < 0.98 * graph.gain(sizes) or name == "regular"
        spread = merged(self.models("he", graph, sizes), 200, CFA()).params.std(dim=1)
        np.testing.assert_allclose(spread, math.sqrt(2 / 100) / wanted, rtol=0.03)

    def test_rules_that_need_no_gain(self) -> None:
        graph = network("er", 12, p=0.4)
        assert gain(DecAvg(), [graph], np.ones(12)) == pytest.approx(graph.gain())
        for rule in ("decdiff", "isolation", "variance_corrected"):
            assert gain(find("rules", rule).make(), [graph], np.ones(12)) == 1.0

    @pytest.mark.parametrize("shape", [0.1, 0.5, 5.0])
    def test_uneven_curvature_shrinks_less(self, shape: float) -> None:
        """Weights H/ΣH of gamma-distributed H are Dirichlet: E Σp² = (a + 1)/(n·a + 1), and 1/n if all are equal."""
        n, d, rng = 10, 40_000, np.random.default_rng(0)
        who = nodes(rng.normal(size=(n, d)), [1] * n, network("complete", n))
        who.state = {"h": torch.from_numpy(rng.gamma(shape, size=(n, d))).float(), "seen": torch.ones(n, 1)}
        found = float(stacked(DecHW(), who)[0].var(dim=1).mean())
        assert found == pytest.approx((shape + 1) / (n * shape + 1), rel=0.03)

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


class TestVarianceCorrection:
    """Merging that keeps the size of weights, whatever the network, and is plain averaging once models agree."""

    def models(self, name: str, **settings: object) -> Nodes:
        graph, rng = network(name, 16, **settings), np.random.default_rng(0)
        return nodes(0.2 * rng.normal(size=(16, 20_000)), rng.integers(10, 60, 16), graph, ((100, 200),))

    @pytest.mark.parametrize(
        ("name", "settings"), [("ba", {"m": 2}), ("star", {}), ("er", {"p": 0.3}), ("complete", {})]
    )
    def test_independent_weights_keep_their_size_all_the_way_to_consensus(
        self, name: str, settings: dict[str, object]
    ) -> None:
        who = self.models(name, **settings)
        np.testing.assert_allclose(merged(who, 1, VarianceCorrected()).params.std(dim=1), 0.2, rtol=0.03)
        end = merged(who, 200, VarianceCorrected()).params
        np.testing.assert_allclose(end.std(dim=1), 0.2, rtol=0.03)
        torch.testing.assert_close(end, end[:1].expand_as(end), rtol=1e-3, atol=1e-3)

    def test_models_that_agree_are_averaged(self) -> None:
        """A common part c and a small private part e: the factor is 1 + O(e²/c²)."""
        who = self.models("er", p=0.4)
        common = 0.2 * torch.from_numpy(np.random.default_rng(1).normal(size=20_000)).float()
        who.params = common + 0.01 * who.params
        corrected, plain = stacked(VarianceCorrected(), who)[0], stacked(DecAvg(), who)[0]
        factor = corrected.norm(dim=1) / plain.norm(dim=1)
        assert (factor >= 1 - 1e-6).all()
        assert (factor <= 1 + 0.01**2).all()

    def test_noise_adds_up_as_at_a_node_alone_and_no_faster(self) -> None:
        """Merging plus noise each round: mean squares grow by σ² a round, by addition and not by a factor."""
        who, rng, rounds, noise = self.models("complete"), np.random.default_rng(2), 40, 0.05
        for _ in range(rounds):
            who.params += torch.as_tensor(rng.normal(0, noise, who.params.shape)).float()
            merged(who, 1, VarianceCorrected())
        assert float(who.params.var(dim=1).mean()) == pytest.approx(0.2**2 + rounds * noise**2, rel=0.03)

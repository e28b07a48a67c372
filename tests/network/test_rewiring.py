"""Rewiring at fixed degrees."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.app.cli import main
from coterie.config.networks import network
from coterie.errors import GraphError
from coterie.network.graph import Graph, draw
from coterie.network.rewiring import assortativity, rewire
from coterie.parts import find
from coterie.runs.experiment import Experiment


def make(name: str, nodes: int, seed: int = 0, **options: object) -> Graph:
    return draw(find("topologies", name).make(**options).draw, nodes, seed, connect=True)


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(["er", "ba", "ws", "powerlaw"]), st.integers(0, 9), st.integers(1, 30), st.booleans())
def test_degrees_and_gain_stay_and_the_target_is_reached(name: str, seed: int, swaps: int, connected: bool) -> None:
    options = {"er": {"p": 0.12}, "ba": {"m": 3}, "ws": {"p": 0.5}, "powerlaw": {"exponent": 3.0}}[name]
    graph = make(name, 80, seed, **options)
    other = graph.to_networkx()  # of the same degrees, so that its assortativity can be reached
    nx.connected_double_edge_swap(other, swaps, seed=seed)
    target = assortativity(Graph.from_networkx(other))
    found = rewire(graph, target, np.random.default_rng(seed), tolerance=0.01, connected=connected)
    assert np.array_equal(found.degree, graph.degree)
    assert found.gain() == graph.gain()
    assert assortativity(found) == pytest.approx(target, abs=0.01 + 1e-9)
    assert found.is_connected() or not connected
    # the graph itself refuses loops and links listed twice
    assert found.edges == graph.edges


def test_assortativity_is_that_of_networkx() -> None:
    graph = make("ba", 100, m=2)
    assert assortativity(graph) == pytest.approx(nx.degree_assortativity_coefficient(graph.to_networkx()))
    assert np.isnan(assortativity(make("ring", 8)))


def test_far_targets_are_reached_and_the_gain_stays() -> None:
    graph = make("er", 300, p=0.05)
    targets = [-0.6, -0.3, 0.0, 0.3, 0.6]
    found = [rewire(graph, r, np.random.default_rng(1)) for r in targets]
    np.testing.assert_allclose([assortativity(g) for g in found], targets, atol=1e-3)
    assert len({g.gain() for g in found}) == 1
    assert found[-1].mixing_time() > found[2].mixing_time()  # the rate of mixing is not the degrees' alone


@pytest.mark.parametrize("seed", range(5))
def test_a_tree_stays_in_one_piece(seed: int) -> None:
    """Most exchanges break a tree and are taken back, which must leave links and their assortativity as they were."""
    graph = make("ba", 60, seed, m=1)
    target = assortativity(graph) + 0.03
    found = rewire(graph, target, np.random.default_rng(seed), tolerance=0.01)
    assert found.is_connected()
    assert found.edges == 59
    assert np.array_equal(found.degree, graph.degree)
    assert assortativity(found) == pytest.approx(target, abs=0.01)
    assert found.sources.tolist() != graph.sources.tolist()


def test_weights_stay_the_same_set() -> None:
    graph = make("er", 50, p=0.2, weights="uniform")
    found = rewire(graph, 0.3, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(found.weights), np.sort(graph.weights))


def test_impossible_rewiring_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(GraphError, match="same degree"):
        rewire(make("ring", 10), 0.3, rng)
    with pytest.raises(GraphError, match="from −1 to 1"):
        rewire(make("er", 30), 2.0, rng)
    with pytest.raises(GraphError, match="undirected"):
        rewire(make("er", 30, directed=True), 0.3, rng)
    with pytest.raises(GraphError, match=r"not reached: expected 0\.9, got -"):
        rewire(make("star", 12), 0.9, rng)


def test_assortativity_is_a_setting_of_any_topology(capsys: pytest.CaptureFixture[str]) -> None:
    table = {"name": "er", "p": 0.1, "connect": True, "assortativity": 0.4}
    (experiment,) = Experiment(nodes=100, topology=table).resolved.values()
    found, again, other = (network(experiment, seed).graph(1) for seed in (3, 3, 4))
    assert assortativity(found) == pytest.approx(0.4, abs=1e-3)
    assert np.array_equal(found.sources, again.sources)
    assert not np.array_equal(found.sources, other.sources)
    (plain,) = Experiment(nodes=100, topology={"name": "er", "p": 0.1, "connect": True}).resolved.values()
    assert np.array_equal(network(plain, 3).graph(1).degree, found.degree)
    assert main(["graph", "er", "--nodes", "100", "--p", "0.1", "--assortativity", "0.4"]) == 0
    told = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = next(float(words[1]) for words in told if words[0] == "assortativity")
    assert shown == pytest.approx(0.4, abs=2e-3)

"""Graphs: what they hold, and the theory of merging on them."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver

from coterie.errors import GraphError
from coterie.network.graph import Graph, draw
from coterie.parts import find
from coterie.randomness import generator
from coterie.report.network import describe, draw_graph

PATH3 = Graph.from_edges(3, [(0, 1), (1, 2)])


def make(name: str, nodes: int, seed: int = 0, **options: object) -> Graph:
    return draw(find("topologies", name).make(**options).draw, nodes, seed, connect=True)


def power(graph: Graph, sizes: list[float] | None = None) -> np.ndarray:
    """The left fixed vector of the merge matrix, built here from the definition and iterated densely."""
    data = np.ones(graph.nodes) if sizes is None else np.array(sizes, float)
    merge = np.eye(graph.nodes)
    merge[graph.targets, graph.sources] = graph.weights
    merge = merge * data
    merge /= merge.sum(axis=1, keepdims=True)
    return np.linalg.matrix_power(merge, 2**16)[0]


@st.composite
def graphs(drawing: st.DrawFn, directed: bool = False) -> Graph:
    """A connected weighted graph of up to ten nodes: a random tree or ring, and more links."""
    nodes = drawing(st.integers(1, 10))
    links = {(i, (i + 1) % nodes) for i in range(nodes)} if directed else set()
    for i in range(1, nodes):
        links.add((drawing(st.integers(0, i - 1)), i))
    for a, b in drawing(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=12)):
        links.add((a, b) if directed else (min(a, b), max(a, b)))
    listed = sorted((a, b) for a, b in links if a != b)
    weights = [drawing(st.floats(0.1, 5)) for _ in listed]
    return Graph.from_edges(nodes, listed, weights, directed)


def test_arcs_are_sorted_and_both_ways() -> None:
    graph = Graph.from_edges(4, [(3, 0), (1, 0), (2, 3)], [0.5, 1.0, 2.0])
    assert graph.targets.tolist() == [0, 0, 1, 2, 3, 3]
    assert graph.sources.tolist() == [1, 3, 0, 3, 0, 2]
    assert graph.weights.tolist() == [1.0, 0.5, 1.0, 2.0, 0.5, 2.0]
    assert graph.edges == 3
    assert graph.degree.tolist() == [2, 1, 1, 2]
    assert graph.sources.dtype == graph.targets.dtype == graph.degree.dtype == np.int64


def test_directed_rows_list_whom_a_node_hears() -> None:
    graph = Graph.from_edges(3, [(0, 1), (0, 2), (2, 1)], directed=True)
    assert [graph.neighbours(i).tolist() for i in range(3)] == [[], [0, 2], [0]]
    assert [graph.audience(i).tolist() for i in range(3)] == [[1, 2], [], [1]]
    assert graph.matrix().toarray().tolist() == [[0, 0, 0], [1, 0, 1], [1, 0, 0]]
    assert graph.edges == 3
    assert not graph.is_connected()
    assert graph.components() == 3


@given(graphs(directed=True))
def test_neighbours_and_audience_are_the_rows_and_columns(graph: Graph) -> None:
    dense = graph.matrix().toarray()
    for i in range(graph.nodes):
        assert graph.neighbours(i).tolist() == np.flatnonzero(dense[i]).tolist()
        assert graph.audience(i).tolist() == np.flatnonzero(dense[:, i]).tolist()


@given(st.one_of(graphs(), graphs(directed=True)))
def test_networkx_and_back(graph: Graph) -> None:
    again = Graph.from_networkx(graph.to_networkx())
    assert again.nodes == graph.nodes
    assert again.directed == graph.directed
    assert again.sources.tolist() == graph.sources.tolist()
    assert again.targets.tolist() == graph.targets.tolist()
    assert again.weights.tolist() == graph.weights.tolist()


def test_networkx_labels_are_numbered_in_order() -> None:
    original = nx.DiGraph()
    original.add_nodes_from("cab")
    original.add_edge("b", "a", weight=3.0)
    graph = Graph.from_networkx(original)
    assert (graph.sources.tolist(), graph.targets.tolist(), graph.weights.tolist()) == ([2], [1], [3.0])


def test_a_changed_matrix_leaves_the_graph_alone() -> None:
    graph = make("ring", 5)
    graph.matrix().data[:] = 7.0
    assert graph.weights.tolist() == [1.0] * 10
    assert graph.matrix().sum() == 10


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Graph.from_edges(0, []), "at least 1"),
        (lambda: Graph.from_edges(2, [(0, 2)]), "nodes 0 to 1, got 2"),
        (lambda: Graph.from_edges(2, [(-1, 0)]), "got -1"),
        (lambda: Graph.from_edges(3, [(0, 1), (1, 0)]), "twice"),
        (lambda: Graph.from_edges(3, [(0, 1), (0, 1)], directed=True), "twice"),
        (lambda: Graph.from_edges(2, [(0, 1)], [0.0]), "positive"),
        (lambda: Graph.from_edges(2, [(0, 1)], [math.inf]), "positive"),
        (lambda: Graph.from_edges(2, [(0, 1)], [math.nan]), "positive"),
        (lambda: Graph.from_edges(2, [(0, 1)], [1.0, 1.0]), "1 weights"),
        (lambda: Graph(2, np.array([0]), np.array([1]), np.ones(1)), "both arcs"),
        (lambda: Graph(2, np.array([0, 1]), np.array([1, 0]), np.array([1.0, 2.0])), "equal weight"),
        (lambda: Graph(2, np.array([1]), np.array([1]), np.ones(1), True), "itself"),
        (lambda: PATH3.steady_state([1, 2]), "3 numbers"),
        (lambda: PATH3.steady_state([1, -2, 3]), "≥ 0"),
        (lambda: PATH3.steady_state([0, 0, 0]), "not all 0"),
        (lambda: PATH3.active(0, 0, links=1.5), "from 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused(build: Callable[[], object], words: str) -> None:
    with pytest.raises(GraphError, match=words) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_self_loops_are_dropped() -> None:
    assert Graph.from_edges(2, [(0, 0), (0, 1)]).edges == 1


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_gain_of_the_complete_graph_is_root_n(n: int) -> None:
    assert make("complete", n).gain() == pytest.approx(math.sqrt(n))


@pytest.mark.parametrize("n", [2, 3, 5, 40])
def test_gain_of_star_and_path(n: int) -> None:
    assert make("star", n).gain() == pytest.approx((3 * n - 2) / math.sqrt(n**2 + 4 * (n - 1)))
    assert make("line", n).gain() == pytest.approx((3 * n - 2) / math.sqrt(9 * n - 10))


def test_steady_state_by_data_size() -> None:
    np.testing.assert_allclose(PATH3.steady_state([10, 30, 60]), np.array([2, 15, 27]) / 44, rtol=1e-12)
    assert PATH3.gain([10, 30, 60]) == pytest.approx(1.421575, abs=5e-7)


@settings(deadline=None)
@given(st.one_of(graphs(), graphs(directed=True)), st.data())
def test_steady_state_equals_power_iteration(graph: Graph, data: st.DataObject) -> None:
    sizes = data.draw(st.none() | st.lists(st.floats(1, 100), min_size=graph.nodes, max_size=graph.nodes))
    found = graph.steady_state(sizes)
    np.testing.assert_allclose(found, power(graph, sizes), rtol=1e-6, atol=1e-9)
    assert found.sum() == pytest.approx(1)
    np.testing.assert_allclose(found @ graph.merge_matrix(sizes), found, atol=1e-10)


def test_closed_form_is_degree_plus_one() -> None:
    graph = make("er", 60)
    np.testing.assert_allclose(graph.steady_state(), (graph.degree + 1) / (graph.degree + 1).sum(), rtol=1e-13)


def test_a_node_without_data_does_not_count() -> None:
    assert PATH3.steady_state([1, 0, 0]).tolist() == [1, 0, 0]
    rows = PATH3.merge_matrix([1, 0, 0]).toarray()
    np.testing.assert_array_equal(rows, [[1, 0, 0], [1, 0, 0], [0, 0, 1]])


def test_steady_state_of_a_slow_directed_graph() -> None:
    n = 300
    weights = np.where(np.arange(n) % 2, 1.0, 0.01)
    graph = Graph.from_edges(n, [(i, (i + 1) % n) for i in range(n)], weights, directed=True)
    # around a ring the flow v_{i+1} M_{i+1,i} is the same everywhere
    flow = np.roll(graph.steady_state(), -1) * weights / (1 + weights)
    np.testing.assert_allclose(flow, flow[0], rtol=1e-8)


def test_two_camps_that_hear_nobody_else_never_agree() -> None:
    graph = Graph.from_edges(5, [(0, 1), (1, 0), (2, 3), (3, 2), (0, 4), (2, 4)], directed=True)
    assert graph.spectral_gap() == pytest.approx(0, abs=1e-9)
    assert graph.diameter() == math.inf


def test_consensus_is_the_steady_state_average() -> None:
    graph, sizes = make("ba", 20), np.arange(1, 21)
    first = np.random.default_rng(0).standard_normal((20, 3))
    models, merge = first, graph.merge_matrix(sizes)
    for _ in range(2000):
        models = merge @ models
    np.testing.assert_allclose(models, np.tile(graph.steady_state(sizes) @ first, (20, 1)), atol=1e-9)


def test_gain_restores_the_spread_of_independent_models() -> None:
    graph = make("powerlaw", 200)
    models = graph.gain() * np.random.default_rng(0).standard_normal((200, 4000))
    assert (graph.steady_state() @ models).std() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("n", [3, 4, 7, 50, 700])
def test_second_eigenvalue_of_cycles_and_complete_graphs(n: int) -> None:
    assert 1 - make("ring", n).spectral_gap() == pytest.approx((1 + 2 * math.cos(2 * math.pi / n)) / 3, abs=1e-12)
    assert make("complete", n).spectral_gap() == pytest.approx(1, abs=1e-12)
    assert make("complete", n).mixing_time() == 0


def test_second_eigenvalue_of_path_3_and_star_5() -> None:
    assert PATH3.spectral_gap() == pytest.approx(0.5)
    assert make("star", 5).spectral_gap() == pytest.approx(0.5)
    assert make("star", 5).mixing_time() == pytest.approx(1 / math.log(2))


@pytest.mark.parametrize("n", [20, 3000])
def test_second_eigenvalue_of_a_directed_ring(n: int) -> None:
    assert make("ring", n, directed=True).spectral_gap() == pytest.approx(1 - math.cos(math.pi / n), rel=1e-5)


@pytest.mark.parametrize("directed", [False, True])
def test_large_graphs_have_the_spectrum_of_the_dense_matrix(directed: bool) -> None:
    graph = make("er", 600, p=0.02, directed=directed, weights="uniform")
    dense = np.sort(np.abs(np.linalg.eigvals(graph.merge_matrix().toarray())))
    assert 1 - graph.spectral_gap() == pytest.approx(dense[-2], rel=5e-3 if directed else 1e-9)


def test_a_negative_second_eigenvalue_counts() -> None:
    halves = Graph.from_edges(6, [(a, b) for a in range(3) for b in range(3, 6)], [9.0] * 9)
    assert 1 - halves.spectral_gap() == pytest.approx((27 - 1) / 28)


def test_disagreement_contracts_at_the_rate_of_the_gap() -> None:
    graph = make("ws", 40)
    merge, models = graph.merge_matrix(), np.random.default_rng(1).standard_normal(40)
    spread = []
    for _ in range(150):
        models = merge @ models
        spread.append(np.linalg.norm(models - graph.steady_state() @ models))
    rounds = graph.mixing_time()
    assert math.log(spread[50] / spread[149]) == pytest.approx(99 / rounds, rel=0.02)


def test_a_network_of_one_node() -> None:
    graph = Graph.from_edges(1, [])
    assert graph.is_connected()
    assert (graph.edges, graph.diameter(), graph.gain(), graph.spectral_gap(), graph.mixing_time()) == (0, 0, 1, 1, 0)
    assert graph.neighbours(0).tolist() == graph.audience(0).tolist() == []
    assert graph.active(0, 1, 0.5, 0.5).shape == (0,)


def test_a_network_of_two_parts_is_not_connected() -> None:
    graph = Graph.from_edges(4, [(0, 1), (2, 3)])
    assert (graph.is_connected(), graph.components(), graph.diameter()) == (False, 2, math.inf)
    assert (graph.spectral_gap(), graph.mixing_time()) == (0, math.inf)


@given(st.one_of(graphs(), graphs(directed=True)))
def test_diameter_is_that_of_networkx(graph: Graph) -> None:
    assert graph.diameter() == nx.diameter(graph.to_networkx())


@pytest.mark.parametrize("first", [0, 700])
def test_diameter_of_a_network_too_dense_for_one_pass(first: int) -> None:
    """A clique with two tails, which are searched either first or last: all else is much nearer together."""
    clique = [n for n in range(710) if not first <= n < first + 10]
    tails = [*itertools.pairwise(range(first, first + 5)), *itertools.pairwise(range(first + 5, first + 10))]
    held = [(clique[0], first), (clique[1], first + 5)]
    assert Graph.from_edges(710, [*itertools.combinations(clique, 2), *tails, *held]).diameter() == 11


def test_diameter_of_plain_and_of_large_networks() -> None:
    order = [*range(0, 100, 2), *range(100, 150), *range(1, 100, 2)]  # a line whose last nodes stand in the middle
    assert Graph.from_edges(150, list(itertools.pairwise(order))).diameter() == 149
    assert make("line", 150).diameter() == 149
    assert make("complete", 300).diameter() == 1
    assert make("er", 600, p=0.2).diameter() == 2
    assert make("line", 2500).diameter() == 2499
    assert make("ring", 2500, directed=True).diameter() == 2499
    assert make("grid", 2500).diameter() == 98


@pytest.mark.parametrize("directed", [False, True])
def test_active_links_are_drawn_per_link_and_round(directed: bool) -> None:
    graph = make("er", 80, directed=directed)
    mask = graph.active(3, 5, links=0.3)
    assert mask.dtype == np.bool_
    assert mask.mean() == pytest.approx(0.3, abs=0.06)
    assert np.array_equal(mask, graph.active(3, 5, links=0.3))
    assert not np.array_equal(mask, graph.active(3, 6, links=0.3))
    assert not np.array_equal(mask, graph.active(4, 5, links=0.3))
    state = {(s, t): on for s, t, on in zip(graph.sources, graph.targets, mask, strict=True)}
    both = [(on, state[t, s]) for (s, t), on in state.items() if (t, s) in state]
    assert both
    assert all(a == b for a, b in both) != directed


def test_a_link_has_the_same_state_in_any_graph_that_holds_it() -> None:
    whole = make("complete", 12)
    mask = whole.active(1, 2, links=0.5, nodes=0.8)
    state = dict(zip(zip(whole.sources.tolist(), whole.targets.tolist(), strict=True), mask.tolist(), strict=True))
    for a, b in [(0, 5), (3, 11), (7, 2)]:
        alone = Graph.from_edges(12, [(a, b)])
        assert alone.active(1, 2, links=0.5, nodes=0.8).tolist() == [state[a, b]] * 2


def test_an_inactive_node_neither_sends_nor_hears() -> None:
    graph = make("complete", 60)
    mask = graph.active(0, 1, nodes=0.6)
    up = np.unique(graph.sources[mask])
    assert np.array_equal(up, np.unique(graph.targets[mask]))
    assert len(up) == pytest.approx(36, abs=12)
    assert mask.sum() == len(up) * (len(up) - 1)


def test_certain_and_impossible_links() -> None:
    graph = make("ring", 6)
    assert graph.active(0, 0).all()
    assert not graph.active(0, 0, links=0).any()
    assert not graph.active(0, 0, nodes=0).any()


def test_draw_redraws_until_connected() -> None:
    sparse = find("topologies", "er").make(p=0.08).draw
    seed = next(s for s in range(100) if not sparse(40, _first(s)).is_connected())
    with pytest.raises(GraphError, match=r"components\..*--topology.connect true"):
        draw(sparse, 40, seed)
    graph = draw(sparse, 40, seed, connect=True)
    assert graph.is_connected()
    assert np.array_equal(graph.sources, draw(sparse, 40, seed, connect=True).sources)


def _first(seed: int) -> np.random.Generator:
    return generator(seed, "topology", 0)


def test_draw_gives_up() -> None:
    calls = []

    def fixed(nodes: int, rng: np.random.Generator) -> Graph:
        calls.append(nodes)
        return Graph.from_edges(nodes, [(0, 1)])

    def hopeless(nodes: int, rng: np.random.Generator) -> Graph:
        calls.append(int(rng.integers(9)))
        return Graph.from_edges(nodes, [])

    with pytest.raises(GraphError, match=r"3 components.*Every draw"):
        draw(fixed, 4, 0, connect=True)
    assert calls == [4]
    with pytest.raises(GraphError, match="1000 draws"):
        draw(hopeless, 4, 0, connect=True)
    assert len(calls) == 1001


def test_draw_wants_the_right_number_of_nodes() -> None:
    with pytest.raises(GraphError, match="expected 4, got 3"):
        draw(lambda nodes, rng: PATH3, 4, 0)


def test_describe_gives_size_degrees_diameter_and_gain() -> None:
    facts = describe(PATH3, [10, 30, 60])
    assert facts["nodes"] == 3
    assert facts["links"] == 2
    assert facts["diameter"] == 2
    assert facts["mean degree"] == pytest.approx(4 / 3)
    assert facts["gain"] == pytest.approx(1.421575, abs=5e-7)
    assert describe(make("ring", 4, directed=True))["arcs"] == 4


@pytest.mark.parametrize(
    "graph",
    [
        Graph.from_edges(1, []),
        Graph.from_edges(4, [(0, 1), (2, 3)], [0.1, 5.0]),
        make("regular", 12, k=3, directed=True),
        make("ba", 160),
    ],
    ids=["one node", "two parts", "directed", "many"],
)
def test_a_network_is_drawn_with_all_its_nodes_and_links(
    graph: Graph, tmp_path: Path, figures: dict[str, Figure]
) -> None:
    draw_graph(graph, tmp_path / "new" / "network.png")
    axes, bar = figures["network.png"].axes
    *links, dots = axes.collections
    assert np.array_equal(np.sort(dots.get_array()), np.sort(graph.degree))
    assert len(dots.get_offsets()) == graph.nodes
    drawn = sum(arrows.N if isinstance(arrows, Quiver) else len(arrows.get_paths()) for arrows in links)
    assert drawn == graph.edges
    assert bar.get_ylabel() == "degree (how many a node hears)"
    assert f"{graph.edges} {'arc' if graph.directed else 'link'}" in axes.get_xlabel()
    assert ("not connected: 2 components" in axes.get_xlabel()) == (not graph.is_connected())

"""How many rows cross between workers, and who has which nodes."""

from itertools import chain, combinations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from coterie.network.crossing import cover, crossing
from coterie.network.graph import Graph, draw
from coterie.network.placement import place
from coterie.parts import find


def arcs(graph: Graph) -> sp.csr_array:
    shape = (graph.nodes, graph.nodes)
    return sp.csr_array((np.ones(len(graph.sources), np.float32), (graph.targets, graph.sources)), shape=shape)


def counted(graph: Graph, owner: np.ndarray, workers: int) -> dict[str, float]:
    return crossing(arcs(graph), owner, owner, workers).rows


def drawn(name: str, nodes: int, **settings: object) -> Graph:
    return draw(find("topologies", name).make(**settings).draw, nodes, 0, connect=True)


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=14))
def test_covers_touch_every_link_and_are_the_smallest(links: set[tuple[int, int]]) -> None:
    rows, columns = (np.array(side) for side in zip(*sorted(links), strict=True))
    right, left = cover(rows, columns)
    assert all(r in left or c in right for r, c in links)
    every = [("row", r) for r in sorted(set(rows))] + [("column", c) for c in sorted(set(columns))]

    def touches(some: tuple[tuple[str, int], ...]) -> bool:
        return all(("row", r) in some or ("column", c) in some for r, c in links)

    sizes = chain.from_iterable(combinations(every, size) for size in range(len(every) + 1))
    assert len(right) + len(left) == len(next(some for some in sizes if touches(some)))


def test_a_star_needs_two_rows_in_sums_and_one_for_each_far_leaf_without() -> None:
    star = Graph.from_edges(7, [(0, i) for i in range(1, 7)])
    owner = np.array([0, 0, 0, 0, 1, 1, 1])
    found = crossing(arcs(star), owner, owner, 2)
    assert found.rows == {"halo": 4, "sums": 2, "transpose": 7}
    assert found.plan == "sums"
    (sent, folded) = found.covers[1, 0]
    assert (sent.tolist(), folded.tolist()) == ([], [0])


def test_everyone_with_everyone_is_cheapest_by_columns() -> None:
    complete = Graph.from_edges(12, list(combinations(range(12), 2)))
    owner = np.arange(12) % 4
    found = crossing(arcs(complete), owner, owner, 4)
    assert found.rows == {"halo": 36, "sums": 36, "transpose": 18}
    assert found.plan == "transpose"
    assert crossing(arcs(complete), owner, owner, 4, turns=False).plan == "halo"


def test_nothing_crosses_where_nothing_is_cut() -> None:
    pairs = Graph.from_edges(4, [(0, 1), (2, 3)])
    found = crossing(arcs(pairs), np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1]), 2)
    assert (found.plan, found.rows["halo"]) == ("halo", 0)


@pytest.mark.parametrize(
    ("name", "settings", "workers", "halo", "sums"),
    [
        ("grid", {}, 4, 0.12, None),
        ("regular", {"k": 4}, 4, 0.93, 0.87),
        ("regular", {"k": 4}, 8, 1.25, 1.20),
        ("ba", {"m": 4}, 4, 1.81, 1.32),
        ("er", {"p": 8 / 1023}, 8, 3.20, 2.79),
    ],
)
def test_counts_of_a_thousand_nodes(
    name: str, settings: dict[str, object], workers: int, halo: float, sums: float
) -> None:
    """No more than counts that were made independently, with other graphs of the families, by cuts alone."""
    graph = drawn(name, 1024, **settings)
    found = counted(graph, place(graph, np.ones(1024), workers, 0, "metis").owner, workers)
    assert 0.8 * halo <= found["halo"] / 1024 <= 1.05 * halo
    if sums:
        assert 0.8 * sums <= found["sums"] / 1024 <= 1.05 * sums
    assert found["transpose"] / 1024 == pytest.approx(2 * (workers - 1) / workers)


class TestPlacement:
    @pytest.mark.parametrize("by", ["metis", "kernighan-lin"])
    @pytest.mark.parametrize("workers", [2, 4])
    def test_few_links_are_cut_and_loads_are_even(self, by: str, workers: int) -> None:
        graph = Graph.from_networkx(nx.connected_caveman_graph(8, 6))
        loads = np.ones(48)
        found = place(graph, loads, workers, 0, by)
        assert np.bincount(found.owner, loads).max() <= 1.1 * 48 / workers
        assert found.cut <= 2 * workers
        assert found.by == by
        cut = found.owner[graph.sources] != found.owner[graph.targets]
        assert cut.sum() == 2 * found.cut

    @pytest.mark.parametrize("by", ["metis", "kernighan-lin"])
    def test_heavy_nodes_count_for_more(self, by: str) -> None:
        loads = np.array([10.0] * 4 + [1.0] * 40)
        found = place(drawn("regular", 44, k=4), loads, 2, 0, by)
        assert np.bincount(found.owner, loads).max() <= 0.6 * loads.sum()

    def test_nobody_is_left_without_a_node(self) -> None:
        graph = Graph.from_edges(5, [(0, i) for i in range(1, 5)])
        for workers in (1, 2, 3, 5):
            assert set(place(graph, np.ones(5), workers, 0).owner) == set(range(workers))

    def test_it_is_the_same_every_time(self) -> None:
        graph = drawn("ba", 60, m=3)
        one, other = (place(graph, np.ones(60), 3, 7).owner for _ in range(2))
        assert np.array_equal(one, other)

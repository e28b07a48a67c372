"""Every family of graphs that stay: the contract they share, and what each promises."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from coterie.app.cli import main
from coterie.config.layers import layered
from coterie.errors import GraphError
from coterie.network.graph import Graph, draw
from coterie.parts import find, names
from coterie.randomness import generator
from coterie.runs.experiment import Experiment

RANDOM = ("er", "ba", "ws", "regular", "sbm", "powerlaw")
ALONE = ("er", "complete", "ring", "line", "star", "grid", "torus", "cliques", "exponential")  # make sense for one node
ALL = [n for n in names("topologies") if not find("topologies", n).target.changes]  # type: ignore[attr-defined]
NODES = 36


@pytest.fixture
def family(tmp_path: Path) -> Callable[..., Any]:
    """Name and settings -> a function of nodes and generator; a part that needs settings gets them here."""

    def get(name: str, **settings: Any) -> Callable[[int, np.random.Generator], Graph]:
        if name == "file":
            listed = "\n".join(f"{i} {i + 1}" for i in range(NODES - 1))
            (tmp_path / "links.txt").write_text(listed)
            settings.setdefault("path", str(tmp_path / "links.txt"))
        made: Callable[[int, np.random.Generator], Graph] = find("topologies", name).make(**settings).draw
        return made

    return get


def make(name: str, nodes: int, seed: int = 0, **settings: Any) -> Graph:
    return draw(find("topologies", name).make(**settings).draw, nodes, seed, connect=True)


def arcs(graph: Graph) -> set[tuple[int, int]]:
    return set(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))


def directed_too() -> list[Any]:
    found = [pytest.param(name, {}, id=name) for name in ALL]
    turned = [name for name in ALL if "directed" in find("topologies", name).parameters and name != "file"]
    return found + [pytest.param(name, {"directed": True}, id=f"{name} directed") for name in turned]


@pytest.mark.parametrize(("name", "settings"), directed_too())
def test_contract(name: str, settings: dict[str, Any], family: Callable[..., Any]) -> None:
    make_one = family(name, **settings)
    for seed in range(3):
        graph = make_one(NODES, generator(seed, "topology", 0))
        again = make_one(NODES, generator(seed, "topology", 0))
        assert graph.nodes == NODES
        assert graph.directed == settings.get("directed", False)
        assert arcs(graph) == arcs(again)
        assert np.array_equal(graph.weights, again.weights)
        code = graph.targets * NODES + graph.sources
        assert (np.diff(code) > 0).all()
        assert (graph.sources != graph.targets).all()
        if not graph.directed:
            assert (graph.matrix() != graph.matrix().T).nnz == 0
        if graph.is_connected():
            assert arcs(draw(make_one, NODES, seed)) == arcs(graph)
        else:
            with pytest.raises(GraphError, match="components"):
                draw(make_one, NODES, seed)
        assert draw(make_one, NODES, seed, connect=True).is_connected()


@pytest.mark.parametrize(("name", "settings"), directed_too())
def test_the_seed_matters_to_random_families_alone(
    name: str, settings: dict[str, Any], family: Callable[..., Any]
) -> None:
    made = [arcs(family(name, **settings)(NODES, generator(seed, "topology", 0))) for seed in range(4)]
    different = sum(a != b for a, b in itertools.combinations(made, 2))
    assert different == (6 if name in RANDOM else 0)


@pytest.mark.parametrize("name", names("topologies"))
def test_documented(name: str) -> None:
    part = find("topologies", name)
    assert part.summary.endswith(".")
    assert all(annotation is not Any for annotation, _ in part.parameters.values())


@pytest.mark.parametrize("name", ALONE)
def test_one_and_two_nodes(name: str) -> None:
    alone = make(name, 1)
    assert (alone.nodes, alone.edges, alone.is_connected()) == (1, 0, True)
    if name not in ("grid", "torus"):
        assert arcs(make(name, 2)) == {(0, 1), (1, 0)}


@pytest.mark.parametrize("name", sorted(set(ALL) - set(ALONE) - {"file", "sbm"}))
def test_one_node_is_too_few(name: str) -> None:
    with pytest.raises(GraphError):
        make(name, 1)


def test_er_has_the_asked_density() -> None:
    assert make("er", 300, p=0.1).edges == pytest.approx(0.1 * 300 * 299 / 2, rel=0.05)
    both_ways = make("er", 300, p=0.1, directed=True)
    assert both_ways.edges == pytest.approx(0.1 * 300 * 299, rel=0.05)
    assert arcs(both_ways) != {(b, a) for a, b in arcs(both_ways)}
    assert make("er", 9, p=1.0).edges == 36
    weights = make("er", 100, weights="uniform").weights
    assert 0 < weights.min() < 0.05
    assert 0.95 < weights.max() <= 1


def test_ba_has_m_links_a_newcomer() -> None:
    graph = make("ba", 200, m=3)
    assert graph.edges == 3 * 197
    assert graph.degree.min() == 3
    assert graph.degree.max() > 15


def test_ws_without_rewiring_is_a_ring_of_nearest_neighbours() -> None:
    graph = make("ws", 20, k=4, p=0.0)
    assert graph.neighbours(10).tolist() == [8, 9, 11, 12]
    assert make("ws", 20, k=4, p=0.5).edges == 40


@pytest.mark.parametrize(("nodes", "k"), [(2, 1), (3, 1), (3, 2), (5, 2), (5, 4), (8, 3), (30, 4), (31, 17), (40, 20)])
def test_regular_digraphs_are_regular_both_ways(nodes: int, k: int) -> None:
    for seed in range(5):
        make_one = find("topologies", "regular").make(k=k, directed=True).draw
        graph = make_one(nodes, generator(seed, "topology"))
        assert (graph.degree == k).all()
        assert all(len(graph.audience(i)) == k for i in range(nodes))


def test_regular_is_regular() -> None:
    assert (make("regular", 30, k=5).degree == 5).all()
    assert make("regular", 64).gain() == pytest.approx(8)


def test_ring_line_and_star() -> None:
    assert arcs(make("ring", 4, directed=True)) == {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert make("ring", 5).degree.tolist() == [2] * 5
    assert make("line", 5).degree.tolist() == [1, 2, 2, 2, 1]
    assert make("star", 5).degree.tolist() == [4, 1, 1, 1, 1]


@pytest.mark.parametrize(("name", "periodic"), [("grid", False), ("torus", True)])
@pytest.mark.parametrize("dims", [(4, 5), (3, 3, 3), (2, 3, 4), (7,), (1, 6), (2, 2)])
def test_lattices_are_those_of_networkx(name: str, periodic: bool, dims: tuple[int, ...]) -> None:
    expected = nx.grid_graph(dims[::-1], periodic=periodic)
    expected.remove_edges_from(list(nx.selfloop_edges(expected)))
    order = {place: i for i, place in enumerate(sorted(expected))}
    wanted = {(order[a], order[b]) for a, b in expected.edges} | {(order[b], order[a]) for a, b in expected.edges}
    assert arcs(make(name, math.prod(dims), dims=dims)) == wanted


def test_lattices_choose_even_sides() -> None:
    assert make("grid", 12).diameter() == 5  # 3 × 4
    assert (make("torus", 36).degree == 4).all()
    assert (make("torus", 60, d=3).degree == 6).all()  # 3 × 4 × 5
    assert make("grid", 7, d=1).edges == 6


def test_sbm_prefers_its_own_block() -> None:
    graph = make("sbm", 91, blocks=3, p_in=0.6, p_out=0.03)
    block = np.repeat([0, 1, 2], [31, 30, 30])
    inside = block[graph.sources] == block[graph.targets]
    assert inside.sum() / (31 * 30 + 2 * 30 * 29) == pytest.approx(0.6, abs=0.05)
    assert (~inside).sum() / (91 * 90 - 31 * 30 - 2 * 30 * 29) == pytest.approx(0.03, abs=0.01)


def test_powerlaw_has_the_asked_tail() -> None:
    graph = make("powerlaw", 3000, exponent=2.5, min_degree=3)
    assert graph.degree.min() == 3
    expected = np.arange(3, 3000) ** -2.5
    shares = np.bincount(graph.degree)[3:8] / 3000
    np.testing.assert_allclose(shares, expected[:5] / expected.sum(), atol=0.03)
    assert graph.degree.max() > 30


@pytest.mark.parametrize("nodes", [3, 4, 5, 9])
def test_powerlaw_of_few_nodes(nodes: int) -> None:
    for seed in range(5):
        assert make("powerlaw", nodes, seed).degree.min() >= 2


def test_two_cliques_meet_at_addresses_25_and_26() -> None:
    graph = make("cliques", 50)
    crossing = {(a + 1, b + 1) for a, b in arcs(graph) if (a - b) % 2}
    assert crossing == {(25, 26), (26, 25)}
    assert graph.edges == 2 * (25 * 24 // 2) + 1
    assert {(a + 1, b + 1) for a, b in arcs(make("cliques", 8)) if (a - b) % 2} == {(3, 4), (4, 3)}  # lower medians


def test_exponential_hops() -> None:
    assert make("exponential", 16, directed=True).audience(3).tolist() == [4, 5, 7, 11]
    assert make("exponential", 10).neighbours(0).tolist() == [1, 2, 4, 6, 8, 9]
    assert make("exponential", 64, directed=True).diameter() == 6


def test_file_edge_list(tmp_path: Path) -> None:
    path = tmp_path / "links.txt"
    path.write_text("# a comment\n0 1\n\n2 1 0.5  # weighted\n2 0\n")
    graph = make("file", 3, path=str(path))
    assert graph.matrix().toarray().tolist() == [[0, 1, 1], [1, 0, 0.5], [1, 0.5, 0]]
    turned = find("topologies", "file").make(path=str(path), directed=True).draw(3, generator(0, "topology"))
    assert turned.matrix().toarray().tolist() == [[0, 0, 1], [1, 0, 0.5], [0, 0, 0]]


def test_file_graphml(tmp_path: Path) -> None:
    original = nx.DiGraph()
    original.add_nodes_from(["Pisa", "Wien", "Espoo"])
    original.add_weighted_edges_from([("Pisa", "Wien", 2.0), ("Wien", "Espoo", 1.0), ("Espoo", "Pisa", 0.5)])
    nx.write_graphml(original, tmp_path / "towns.graphml")
    graph = make("file", 3, path=str(tmp_path / "towns.graphml"))
    assert graph.directed
    assert graph.matrix().toarray().tolist() == [[0, 0, 0.5], [2, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 1\n1 2\n", "expected 4 nodes, got 3.*Set nodes to 3"),
        ("0 1\n1\n", "line 2 of .*expected `a b"),
        ("0 one\n", "line 1 of"),
        ("0 1 2 3\n", "line 1 of"),
        ("0 1 heavy\n", "line 1 of"),
        ("0 1 -2\n", "positive finite"),
        ("0 1\n1 0\n2 3\n", "twice"),
        ("0 1\n2 3\n", "2 components"),
    ],
)
def test_file_that_is_wrong(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "links.txt").write_text(text)
    with pytest.raises(GraphError, match=words):
        make("file", 4, path=str(tmp_path / "links.txt"))


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "broken.graphml").write_text("<graphml><node")
    for name in ("none.txt", "none.graphml", "broken.graphml", "."):
        with pytest.raises(GraphError, match="cannot read the network"):
            make("file", 4, path=str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "nodes", "settings"),
    [
        ("er", 10, {"p": 1.2}),
        ("er", 10, {"p": -0.1}),
        ("er", 10, {"p": math.nan}),
        ("ba", 5, {"m": 5}),
        ("ba", 5, {"m": 0}),
        ("ws", 10, {"k": 10}),
        ("ws", 10, {"k": 3}),
        ("ws", 10, {"p": 2}),
        ("regular", 5, {"k": 3}),
        ("regular", 5, {"k": 5}),
        ("regular", 5, {"k": -1}),
        ("grid", 10, {"dims": (3, 3)}),
        ("grid", 10, {"dims": ()}),
        ("grid", 10, {"dims": (-2, -5)}),
        ("grid", 7, {}),
        ("torus", 10, {"d": 3}),
        ("torus", 10, {"d": 0}),
        ("sbm", 10, {"blocks": 11}),
        ("sbm", 10, {"blocks": 0}),
        ("sbm", 10, {"p_in": 3}),
        ("sbm", 10, {"p_out": -1}),
        ("powerlaw", 10, {"min_degree": 10}),
        ("powerlaw", 10, {"exponent": 0.5}),
    ],
)
def test_impossible_settings_say_what_was_expected(name: str, nodes: int, settings: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match=r"expected .*, got ") as caught:
        make(name, nodes, **settings)
    assert "\n" not in str(caught.value)


def test_the_path_of_a_file_is_a_topology(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the command line, in a file and in Python; the number of nodes is the network's, unless it is said."""
    file = tmp_path / "g.edgelist"
    file.write_text("# a square\n0,1\n1 2\n2 3 1.0\n3 0\n")
    assert main(["graph", str(file)]) == 0
    assert "nodes                 4" in capsys.readouterr().out
    assert Experiment(topology=str(file)).nodes == 4
    assert layered(None, {"topology": {"name": str(file)}, "rule": "decavg"}).nodes == 4  # a default has 20
    (method,) = Experiment(topology={"name": str(file), "directed": True}).resolved.values()
    assert method.topology["path"] == str(file)  # type: ignore[index]
    assert main(["graph", str(tmp_path / "none.edgelist")]) == 2
    assert "Check topology.path" in capsys.readouterr().err
    assert main(["run", "--topology", str(file), "--nodes", "5", "--rule", "decavg", "--out", str(tmp_path / "x")]) == 2
    assert "Set nodes to 4" in capsys.readouterr().err

"""Mixing weights: who counts for how much, and what that keeps."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.app.cli import main
from coterie.config.build import build, gain
from coterie.config.networks import network
from coterie.contract import Rule
from coterie.errors import ConfigError, GraphError
from coterie.network.graph import Graph, draw
from coterie.network.mixing import check_doubly_stochastic, own_weights, weighed
from coterie.parts import find
from coterie.runs.experiment import Experiment
from driving import drive, samples


def make(name: str, nodes: int, **options: object) -> Graph:
    return draw(find("topologies", name).make(**options).draw, nodes, 0, connect=True)


def test_metropolis_by_hand() -> None:
    line = weighed(Graph.from_edges(3, [(0, 1), (1, 2)], [5.0, 0.1]), "metropolis")
    assert line.weights == pytest.approx(1 / 3)
    assert own_weights(line, "metropolis") == pytest.approx([2 / 3, 1 / 3, 2 / 3])
    star = weighed(make("star", 5), "metropolis")
    assert own_weights(star, "metropolis") == pytest.approx([1 / 5] + [4 / 5] * 4)


@pytest.mark.parametrize("name", ["ba", "star", "line", "er"])
def test_metropolis_is_doubly_stochastic_and_its_steady_state_uniform(name: str) -> None:
    graph = weighed(make(name, 30), "metropolis")
    own = own_weights(graph, "metropolis")
    matrix = graph.merge_matrix(own=own).toarray()
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-15)
    np.testing.assert_allclose(matrix.sum(0), 1)
    np.testing.assert_allclose(matrix.sum(1), 1)
    assert (own >= 1 / (1 + graph.degree) - 1e-12).all()
    assert graph.steady_state(own=own) == pytest.approx(np.full(30, 1 / 30))
    assert graph.gain(own=own) == pytest.approx(np.sqrt(30))
    second = np.sort(np.abs(np.linalg.eigvalsh(matrix)))[-2]
    assert graph.spectral_gap(own) == pytest.approx(1 - second)


def test_uniform_forgets_the_weights_of_links() -> None:
    graph = make("er", 20, p=0.3, weights="uniform")
    assert (weighed(graph, "uniform").weights == 1).all()
    assert weighed(graph, "data") is graph
    ring = make("ring", 8)
    assert weighed(ring, "uniform") is ring
    assert (own_weights(ring, "uniform") == 1).all()


def test_directed_networks_have_no_metropolis_weights() -> None:
    with pytest.raises(GraphError, match=r"expected an undirected network.*topology\.mixing"):
        weighed(make("ring", 8, directed=True), "metropolis")
    with pytest.raises(GraphError, match="do not keep the mean"):
        check_doubly_stochastic(Graph.from_edges(3, [(0, 1), (1, 2)], [0.6, 0.6]))
    with pytest.raises(GraphError, match="do not keep the mean"):
        check_doubly_stochastic(Graph.from_edges(3, [(0, 1), (1, 2), (0, 2)], [0.2, 0.2, 0.2], directed=True))


@pytest.mark.parametrize("links", [1.0, 0.7])
def test_the_gain_follows_the_mixing(links: float) -> None:
    settings = {"nodes": 16, "total": 800, "initialiser": "gain", "links": links}
    found = {}
    for mixing in ("data", "uniform", "metropolis"):
        (method,) = Experiment(**settings, topology={"name": "ba", "mixing": mixing}).resolved.values()
        job = build(method, samples(), 0)
        found[mixing] = job.gains[0]
        sizes = [len(t) for t in job.roster.train] if mixing == "data" else None
        if mixing != "metropolis":
            assert found[mixing] == pytest.approx(job.graph(1).gain(sizes, links))
    assert found["metropolis"] == pytest.approx(4.0)
    assert found["data"] < found["uniform"] < 4.0
    (method,) = Experiment(
        nodes=16,
        total=800,
        initialiser={"name": "gain", "estimate": "size"},
        topology={"name": "star", "mixing": "metropolis"},
    ).resolved.values()
    assert build(method, samples(), 0).gains == pytest.approx(np.full(16, 4.0))


@pytest.mark.parametrize("name", ["decavg", "cfa"])
def test_the_gain_of_a_rule_is_that_of_the_matrix_it_merges_by(name: str) -> None:
    rule: Rule = find("rules", name).make()
    graph = weighed(make("ba", 12), "metropolis")
    near = graph.matrix().toarray()
    if name == "decavg":
        matrix = near + np.diag(1 - near.sum(1))
    else:
        towards, count = near / near.sum(1, keepdims=True), graph.degree[:, None]
        matrix = np.eye(12) * (1 - 1 / count) + towards / count
    steady = np.linalg.matrix_power(matrix, 20_000)[0]
    assert gain(rule, [graph], np.ones(12), mixing="metropolis") == pytest.approx(1 / np.linalg.norm(steady))


def test_the_command_shows_what_the_weights_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "star", "--nodes", "16", "--mixing", "metropolis"]) == 0
    told = dict(line.rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line.strip())
    assert float(told["gain"]) == pytest.approx(4)
    assert float(told["spectral gap"]) == pytest.approx(1 / 16)
    assert main(["graph", "ring", "--directed", "--mixing", "metropolis"]) != 0
    assert "undirected" in capsys.readouterr().err


def test_ones_own_weight_counts_in_the_average_and_in_the_gain(tmp_path: Path) -> None:
    """Two nodes, of which one takes its own model five times: a line of an edge list, or a setting for all."""
    (tmp_path / "links.txt").write_text("0 1\n0 0 5.0\n")
    settings: dict[str, Any] = {"nodes": 2, "total": 100, "partition": "iid", "initialiser": "gain"}
    (method,) = Experiment(**settings, topology={"name": "file", "path": str(tmp_path / "links.txt")}).resolved.values()
    job = build(method, samples(), 0)
    assert job.roster.own is not None
    assert job.roster.own.tolist() == [5.0, 1.0]
    matrix = np.array([[5 / 6, 1 / 6], [1 / 2, 1 / 2]])
    np.testing.assert_allclose(job.graph(1).merge_matrix(own=job.roster.own).toarray(), matrix)
    steady = np.linalg.matrix_power(matrix, 200)[0]
    assert job.gains == pytest.approx(np.full(2, 1 / np.linalg.norm(steady)))
    (method,) = Experiment(**settings, topology={"name": "line", "own": 0.5}).resolved.values()
    assert build(method, samples(), 0).roster.own == pytest.approx([0.5, 0.5])
    (method,) = Experiment(**settings, topology="line").resolved.values()
    assert build(method, samples(), 0).roster.own is None


def test_an_own_weight_merges_as_it_says() -> None:
    found = {own: drive("loop", topology={"name": "complete", "own": own}, lr=1e-9) for own in (1.0, 1e6)}
    apart = {own: float(done.models[0].sub(done.models[1]).norm()) for own, done in found.items()}
    assert apart[1.0] < 1e-3 < 1.0 < apart[1e6]  # who hardly listens keeps its own start


@pytest.mark.parametrize(
    ("topology", "told"),
    [
        ({"name": "ring", "own": 0.0}, "topology.own: expected a number above 0, got 0"),
        ({"name": "star", "own": 2.0, "mixing": "metropolis"}, "leave topology.own out"),
    ],
)
def test_own_weights_that_cannot_be_are_refused(topology: dict[str, Any], told: str) -> None:
    (method,) = Experiment(nodes=8, topology=topology).resolved.values()
    with pytest.raises(GraphError, match=told):
        network(method, 0)
    with pytest.raises(GraphError, match="own weights cannot be: expected numbers above 0"):
        Graph.from_edges(2, [(0, 1), (1, 1)], [1.0, 0.0])


def test_parts_of_a_network_keep_own_weights() -> None:
    graph = Graph.from_edges(3, [(0, 1), (1, 2), (2, 2)], [1.0, 1.0, 4.0])
    assert graph.among([2, 1]).loops == pytest.approx([4.0, 1.0])
    assert weighed(graph, "uniform").loops is None
    assert own_weights(weighed(graph, "data", 2.0), "data") == pytest.approx([2.0, 2.0, 8.0])


@pytest.mark.parametrize("estimate", ["degrees", "gossip"])
def test_guesses_that_own_weights_spoil_are_refused(estimate: str) -> None:
    settings = {"topology": {"name": "ring", "own": 2.0}, "initialiser": {"name": "gain", "estimate": estimate}}
    (method,) = Experiment(nodes=8, total=400, **settings).resolved.values()
    with pytest.raises(ConfigError, match="weight of its own"):
        build(method, samples(), 0)

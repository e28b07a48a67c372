"""Mixing weights: who counts for how much, and what that keeps."""

import numpy as np
import pytest

from coterie.app.cli import main
from coterie.config.build import build, gain
from coterie.contract import Rule
from coterie.errors import GraphError
from coterie.network.graph import Graph, draw
from coterie.network.mixing import check_doubly_stochastic, own_weights, weighed
from coterie.parts import find
from coterie.runs.experiment import Experiment
from driving import samples


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

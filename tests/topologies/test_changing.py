"""Networks that change from round to round, and topologies of one's own."""

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.app.cli import main
from coterie.config.build import build
from coterie.config.networks import network
from coterie.errors import ConfigError
from coterie.network.graph import Graph
from coterie.parts import find, names
from coterie.runs.experiment import Experiment
from driving import samples

CHANGING = [n for n in names("topologies") if find("topologies", n).target.changes]  # type: ignore[attr-defined]


def graphs(topology: Any, nodes: int = 12, rounds: int = 8, seed: int = 0) -> list[Graph]:
    (method,) = Experiment(nodes=nodes, rounds=rounds, topology=topology).resolved.values()
    return network(method, seed).first(rounds)


def arcs(graph: Graph) -> set[tuple[int, int]]:
    return set(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))


@pytest.mark.parametrize("name", CHANGING)
def test_everyone_computes_the_same_network_of_a_round(name: str) -> None:
    ours, theirs = graphs(name), graphs(name)
    assert [arcs(a) for a in ours] == [arcs(b) for b in theirs]
    assert len({frozenset(arcs(g)) for g in ours}) > 2
    assert all(g.nodes == 12 for g in ours)
    (method,) = Experiment(nodes=12, rounds=8, topology=name).resolved.values()
    later_first = network(method, 0)
    assert arcs(later_first.graph(7)) == arcs(ours[6])  # in whatever order they are asked for
    assert arcs(later_first.graph(2)) == arcs(ours[1])


@pytest.mark.parametrize("name", CHANGING)
def test_one_and_two_nodes(name: str) -> None:
    assert [g.edges for g in graphs(name, nodes=1, rounds=3)] == [0, 0, 0]
    assert all(g.nodes == 2 for g in graphs(name, nodes=2, rounds=3))


@pytest.mark.parametrize("nodes", [2, 8, 9])
def test_a_matching_has_pairs_and_at_most_one_alone(nodes: int) -> None:
    found = graphs("matching", nodes, 20)
    for graph in found:
        assert graph.degree.max() == 1
        assert graph.degree.sum() == nodes - nodes % 2
    assert (len({frozenset(arcs(g)) for g in found}) > 10) == (nodes > 2)
    assert found[0].is_connected() == (nodes == 2)


def test_averaging_over_matchings_contracts_as_theory_says() -> None:
    n, draws = 20, 60
    models = np.random.default_rng(0).normal(size=(n, 2000))
    models -= models.mean(0)
    shrunk = []
    for graph in graphs("matching", n, draws):
        merged = graph.merge_matrix() @ models
        np.testing.assert_allclose(merged.mean(0), 0, atol=1e-12)
        shrunk.append((merged**2).sum() / (models**2).sum())
        models = merged
    assert np.mean(shrunk[:15]) == pytest.approx((n - 2) / (2 * n - 2), rel=0.03)
    assert np.prod(shrunk) < 1e-12


def test_one_peer_exponential_agrees_after_log_n_rounds() -> None:
    found = graphs("one_peer_exponential", 16, 8)
    assert all((g.degree == 1).all() and g.directed for g in found)
    assert [g.audience(3).tolist() for g in found] == [[4], [5], [7], [11]] * 2
    product = np.eye(16)
    for graph in found[:4]:
        product = graph.merge_matrix() @ product
    np.testing.assert_allclose(product, 1 / 16)


def test_resampled_draws_its_base_anew_every_so_often() -> None:
    found = graphs({"name": "resampled", "base": {"name": "regular", "k": 3}, "every": 3}, 12, 9)
    assert all((g.degree == 3).all() for g in found)
    same = [arcs(a) == arcs(b) for a, b in itertools.pairwise(found)]
    assert same == [True, True, False, True, True, False, True, True]
    sparse = {"name": "resampled", "base": {"name": "er", "p": 0.12}}
    assert not all(g.is_connected() for g in graphs(sparse, 20))
    assert all(g.is_connected() for g in graphs({**sparse, "connect": True}, 20))


def test_a_base_that_changes_is_refused() -> None:
    with pytest.raises(ConfigError, match="changes by itself"):
        graphs({"name": "resampled", "base": "matching"})


def test_a_network_that_stays_is_one_object() -> None:
    (method,) = Experiment(nodes=12, topology="ring").resolved.values()
    found = network(method, 0)
    assert not found.changes
    assert found.graph(1) is found.graph(1000)


def test_around_is_whoever_is_met_in_any_round() -> None:
    (method,) = Experiment(nodes=16, rounds=4, topology="one_peer_exponential").resolved.values()
    assert network(method, 0).around(0) == [1, 2, 4, 8, 12, 14, 15]
    short = network(method.model_copy(update={"rounds": 1}), 0)
    assert short.around(0) == [1, 15]
    assert short.around(0, 4) == [1, 2, 4, 8, 12, 14, 15]


@pytest.mark.parametrize("name", CHANGING)
def test_the_exact_gain_is_that_of_the_mean_over_rounds(name: str) -> None:
    table = {"name": name, "mixing": "uniform"}
    (method,) = Experiment(
        nodes=16, rounds=40, topology=table, initialiser="gain", partition="iid", total=400
    ).resolved.values()
    gains = build(method, samples(), 0).gains
    rel = 0.02 if name == "resampled" else 1e-6
    assert gains == pytest.approx(np.full(16, 4.0), rel=rel)


@pytest.mark.parametrize("estimate", ["gossip", "degrees"])
def test_the_degrees_of_a_round_do_not_tell_the_gain(estimate: str) -> None:
    settings = {"nodes": 8, "total": 200, "initialiser": {"name": "gain", "estimate": estimate}}
    for topology in ("matching", {"name": "ring", "mixing": "metropolis"}):
        (method,) = Experiment(**settings, topology=topology).resolved.values()
        with pytest.raises(ConfigError, match="size"):
            build(method, samples(), 0)


def test_the_command_shows_the_network_of_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--nodes", "16", "--base", "er", "--base.p", "0.3"]
    told = []
    for number in ("1", "2", "1"):
        assert main(["graph", "resampled", *flags, "--round", number]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[2] != told[1]
    assert main(["graph", "matching", "--round", "0"]) != 0
    assert "round: expected at least 1, got 0" in capsys.readouterr().err


OWN = '''
from dataclasses import dataclass

import numpy as np

from coterie.network.graph import Graph
from coterie.topologies import ChangingTopology, Topology


def spokes(nodes, rng, *, share: float = 1.0):
    """A star of which some spokes are missing."""
    known = np.arange(1, nodes)[rng.random(nodes - 1) < share]
    return Graph.from_edges(nodes, np.stack([known, np.zeros_like(known)], axis=1))


def nothing(nodes, rng):
    """No graph at all."""


@dataclass(frozen=True)
class Hub(Topology):
    """A star around a node."""

    centre: int = 0

    def draw(self, nodes, rng):
        return Graph.from_edges(nodes, [(self.centre, i) for i in range(nodes) if i != self.centre])


@dataclass(frozen=True)
class Turns(ChangingTopology):
    """A star around another node in each round."""

    def draw_round(self, nodes, rng, round):
        return Graph.from_edges(nodes, [(round % nodes, i) for i in range(nodes) if i != round % nodes])


@dataclass(frozen=True)
class Stray:
    """Not a topology."""

    def draw(self, nodes, rng):
        return Graph.from_edges(nodes, [])
'''


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(OWN)
    return str(tmp_path / "mine.py")


def test_functions_and_classes_of_ones_own(own: str) -> None:
    (star,) = graphs(f"{own}:spokes", 5)
    assert star.degree.tolist() == [4, 1, 1, 1, 1]
    (hub,) = graphs({"name": f"{own}:Hub", "centre": 2}, 5)
    assert hub.degree.tolist() == [1, 1, 4, 1, 1]
    assert [int(g.degree.argmax()) for g in graphs(f"{own}:Turns", 5, 6)] == [1, 2, 3, 4, 0, 1]
    again = graphs({"name": "resampled", "base": {"name": f"{own}:spokes", "share": 0.5}}, 20, 3)
    assert len({g.edges for g in again}) > 1


def test_those_of_the_guide(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text("utf-8")
    for name in ("wheel.py", "tour.py"):
        found = re.search(rf"`{name}`:\n\n```python\n(.*?)```", guide, re.S)
        assert found
        (tmp_path / name).write_text(found[1])
    (wheel,) = graphs({"name": f"{tmp_path / 'wheel.py'}:wheel", "spokes": 0.5}, 12)
    assert (wheel.degree[1:] >= 2).all()
    tour = graphs({"name": f"{tmp_path / 'tour.py'}:Tour", "stay": 2}, 12, 4)
    assert all((g.degree == 2).all() and g.is_connected() for g in tour)
    assert [arcs(a) == arcs(b) for a, b in itertools.pairwise(tour)] == [True, False, True]


def test_what_is_no_topology_is_refused_in_one_line(own: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        ConfigError, match=r"Stray is no topology: expected a child of Topology.*class Stray\(Topology\)"
    ):
        graphs(f"{own}:Stray")
    with pytest.raises(ConfigError, match="expected a Graph of Coterie or networkx, got NoneType"):
        graphs(f"{own}:nothing")
    assert main(["graph", f"{own}:Stray"]) != 0
    assert "Traceback" not in capsys.readouterr().err


def test_no_theory_tells_the_gain_of_a_function_of_ones_own(own: str) -> None:
    settings = {"nodes": 9, "total": 200, "topology": f"{own}:spokes"}
    size = {"name": "gain", "estimate": "size"}
    (method,) = Experiment(**settings, initialiser=size).resolved.values()
    with pytest.raises(ConfigError, match=r"no theory .*--initialiser\.exponent"):
        build(method, samples(), 0)
    (told,) = Experiment(**settings, initialiser={**size, "exponent": 0.5}).resolved.values()
    assert build(told, samples(), 0).gains == pytest.approx(np.full(9, 3.0))

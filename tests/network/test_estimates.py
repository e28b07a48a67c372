"""What nodes can know of the gain without knowing the network."""

import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import pictures
from coterie.errors import GraphError
from coterie.network import estimates
from coterie.network.graph import Graph, draw
from coterie.parts import find, names
from coterie.report.dynamics import draw_gossip


def make(name: str, nodes: int, seed: int = 0, **options: object) -> Graph:
    return draw(find("topologies", name).make(**options).draw, nodes, seed, connect=True)


def test_gain_from_the_number_of_nodes_right_or_mistaken() -> None:
    assert estimates.from_nodes(64) == 8
    assert estimates.from_nodes(64, mistaken=4) == 16
    assert estimates.from_nodes(64, 1 / 3) == pytest.approx(4)
    assert estimates.from_nodes(make("torus", 64).nodes) == pytest.approx(make("torus", 64).gain())
    with pytest.raises(GraphError, match="at least 1 node"):
        estimates.from_nodes(64, mistaken=0)


def test_from_family_is_near_any_draw() -> None:
    family = find("topologies", "ba").make(m=4).draw
    found = estimates.from_family(family, 300, draws=4)
    assert found == estimates.from_family(family, 300, draws=4)
    assert found == pytest.approx(make("ba", 300, 9, m=4).gain(), rel=0.1)
    assert found < 0.85 * math.sqrt(300)


STAYING = [n for n in names("topologies") if not find("topologies", n).target.changes]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [n for n in STAYING if n not in ("file", "powerlaw", "ba")])
def test_theory_gives_every_family_the_exponent_that_it_has(name: str) -> None:
    options: dict[str, object] = {"er": {"p": 0.3}, "sbm": {}}.get(name, {})
    near, far = make(name, 144, **options), make(name, 576, **options)
    measured = math.log(far.gain() / near.gain()) / math.log(4)
    assert find("topologies", name).make(**options).gain_exponent == pytest.approx(measured, abs=0.02)


def test_exponents_of_heavy_tails() -> None:
    tails = {3.5: 0.5, 3.0: 0.5, 2.5: 1 / 3, 1.9: 0.0}
    found = {tail: find("topologies", "powerlaw").make(exponent=tail).gain_exponent for tail in tails}
    assert found == pytest.approx(tails)
    assert find("topologies", "ba").make().gain_exponent == 0.5
    assert find("topologies", "file").make(path="any").gain_exponent is None


def test_scaling_of_homogeneous_and_heavy_tailed_families() -> None:
    sizes = [64, 128, 256, 512]
    families = {
        "regular": find("topologies", "regular").make(k=8).draw,
        "ba": find("topologies", "ba").make(m=4).draw,
        "powerlaw": find("topologies", "powerlaw").make(exponent=2.3).draw,
    }
    found = {name: estimates.scaling(family, sizes, draws=3) for name, family in families.items()}
    assert found["regular"].exponent == pytest.approx(0.5, abs=1e-9)
    np.testing.assert_allclose(found["regular"].at(sizes), np.array(sizes) ** -0.5)
    assert 0.38 < found["ba"].exponent < 0.48  # a half, were it not for the logarithm
    assert found["powerlaw"].exponent < found["ba"].exponent - 0.03
    assert 0 < found["powerlaw"].error < 0.1
    assert found["ba"].norms.shape == (4, 3)
    with pytest.raises(GraphError, match="several sizes"):
        estimates.scaling(families["ba"], [64, 64])


def test_from_a_sample_of_degrees() -> None:
    graph = make("ba", 600, m=3)
    assert estimates.from_degrees(graph.degree, 600) == pytest.approx(graph.gain())
    some = np.random.default_rng(0).choice(graph.degree, 300, replace=False)
    assert estimates.from_degrees(some, 600) == pytest.approx(graph.gain(), rel=0.15)
    with pytest.raises(GraphError, match="a sample of degrees"):
        estimates.from_degrees([], 600)


def test_a_walk_tells_the_degrees_and_the_number_of_nodes() -> None:
    graph = make("ba", 400, m=3)
    visited = estimates.walk(graph, 1500, stride=10)
    degrees = graph.degree[visited]
    assert degrees.mean() > 1.5 * graph.degree.mean()  # hubs are met more often, which the estimate must undo
    nodes = estimates.count_nodes(visited, degrees)
    assert nodes == pytest.approx(400, rel=0.1)
    assert estimates.from_degrees(degrees, nodes, walked=True) == pytest.approx(graph.gain(), rel=0.1)
    assert estimates.count_nodes([1, 2, 3], [4, 5, 6]) == math.inf


def test_a_walk_goes_along_links() -> None:
    graph = make("ring", 12)
    steps = np.diff(estimates.walk(graph, 50, stride=1, start=3))
    assert set(np.abs(steps)) <= {1, 11}


def test_push_sum_is_exact_and_loses_what_is_lost() -> None:
    graph = make("er", 150, p=0.1)
    sure, lossy = (estimates.gossip_push_sum(graph, 60, loss=loss) for loss in (0.0, 0.2))
    assert np.isinf(sure.estimates[0, 1:]).all()
    np.testing.assert_allclose(sure.estimates[-1], graph.gain(), rtol=1e-9)
    until = sure.rounds_until(0.05)
    assert until is not None
    assert until < 20
    assert sure.rounds_until(0.0) is None
    wrong = np.median(lossy.errors[-1])
    assert 0.002 < wrong < 0.5
    directed = make("er", 60, p=0.2, directed=True)
    plus = directed.degree + 1
    believed = estimates.gossip_push_sum(directed, 60).estimates[-1]
    np.testing.assert_allclose(believed, plus.sum() / math.sqrt((plus**2).sum()), rtol=1e-9)


def test_gossip_that_cannot_be() -> None:
    with pytest.raises(GraphError, match="loss is a probability"):
        estimates.gossip_push_sum(make("ring", 6), 3, loss=1.0)


def test_gossip_is_drawn_from_the_round_in_which_everyone_knows_something(
    tmp_path: Path, figures: dict[str, Figure]
) -> None:
    found = estimates.gossip_push_sum(make("ring", 6), 8)
    draw_gossip({"push-sum": found}, tmp_path / "g.png")
    (axes,) = figures["g.png"].axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("round of gossip", "relative error of the gain")
    assert pictures.legend(axes) == ["push-sum"]
    median, worst = map(pictures.points, axes.lines)
    first = int(median[0, 0])
    assert first == 3  # the other side of the ring
    np.testing.assert_allclose(median[:, 1], np.median(found.errors[first:], axis=1))
    np.testing.assert_allclose(worst[:, 1], found.errors[first:].max(axis=1))


def test_without_outages_nothing_fluctuates() -> None:
    graph = make("ba", 30)
    assert estimates.under_outages(graph) == (graph.gain(), 0.0)

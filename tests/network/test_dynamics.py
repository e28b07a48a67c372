"""The early stage of training in miniature, and merging when links and nodes fail, against their theory."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from cyclopts import App
from matplotlib.figure import Figure

import pictures
from coterie.app.dynamics_view import dynamics_command
from coterie.errors import CoterieError, GraphError
from coterie.network.dynamics import Dynamics, simulate
from coterie.network.estimates import under_outages
from coterie.network.graph import Graph, draw
from coterie.parts import find
from coterie.report.dynamics import draw_dynamics

LINKS = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (0, 4)]


def make(name: str, nodes: int, **options: object) -> Graph:
    return draw(find("topologies", name).make(**options).draw, nodes, 0, connect=True)


def all_rounds(graph: Graph, data: np.ndarray, own: np.ndarray, links: float, presence: float) -> np.ndarray:
    """E[M] by going through every set of links and nodes that may work."""
    keep = np.ones(len(graph.sources), bool) if graph.directed else graph.sources < graph.targets
    pairs, full = list(zip(graph.sources[keep], graph.targets[keep], strict=True)), graph.matrix().toarray()
    mean = np.zeros_like(full)
    for up in itertools.product([0, 1], repeat=graph.nodes + len(pairs)):
        there, works = up[: graph.nodes], up[graph.nodes :]
        chance = presence ** sum(there) * (1 - presence) ** (graph.nodes - sum(there))
        chance *= links ** sum(works) * (1 - links) ** (len(pairs) - sum(works))
        heard = np.diag(own)
        for work, (a, b) in zip(works, pairs, strict=True):
            if work and there[a] and there[b]:
                heard[b, a] = full[b, a]
                heard[a, b] = heard[a, b] if graph.directed else full[a, b]
        heard = heard * data
        total = heard.sum(axis=1, keepdims=True)
        mean += chance * np.where(total > 0, heard / np.where(total > 0, total, 1), np.eye(graph.nodes))
    return mean


@pytest.mark.parametrize(
    ("weights", "data", "own", "directed"),
    [
        (None, [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], False),
        (None, [1, 1, 1, 1, 1], [2, 2, 2, 2, 2], False),
        (None, [1, 100, 3, 0, 5000], [1, 1, 1, 1, 1], False),
        ([0.1, 5, 2, 1, 0.3, 0.01], [1, 100, 3, 0, 5000], [0, 1, 2, 0.5, 3], False),
        ([0.1, 5, 2, 1, 0.3, 0.01], [1, 2, 3, 4, 5], [1, 1, 1, 1, 1], True),
    ],
)
def test_expected_merge_matrix_is_the_mean_over_all_rounds(
    weights: list[float] | None, data: list[float], own: list[float], directed: bool
) -> None:
    graph = Graph.from_edges(5, LINKS, weights, directed)
    exact = all_rounds(graph, np.array(data, float), np.array(own, float), 0.7, 0.6)
    found = graph.expected_merge_matrix(data, 0.7, 0.6, own).toarray()
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-12)


def test_a_round_in_which_all_works_is_the_merge_matrix() -> None:
    graph, sizes = make("er", 20, p=0.3, weights="uniform"), np.arange(20)
    for found in (graph.failing(0, sizes).matrix(3), graph.expected_merge_matrix(sizes)):
        np.testing.assert_allclose(found.toarray(), graph.merge_matrix(sizes).toarray(), atol=1e-14)


def test_rounds_hear_what_is_active() -> None:
    graph = make("er", 20, p=0.3)
    found = graph.failing(5, links=0.5, presence=0.7).matrix(2).toarray()
    up = graph.active(5, 2, 0.5, 0.7)
    heard = np.eye(20, dtype=bool)
    heard[graph.targets[up], graph.sources[up]] = True
    assert np.array_equal(found > 0, heard)
    np.testing.assert_allclose(found.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("name", "options", "sizes", "links", "presence"),
    [
        ("ba", {"m": 2}, False, 0.5, 1.0),
        ("ba", {"m": 2}, True, 0.7, 0.6),
        ("er", {"p": 0.3, "directed": True}, False, 0.4, 0.8),
    ],
)
def test_steady_state_under_outages_is_the_mean_of_products(
    name: str, options: dict[str, object], sizes: bool, links: float, presence: float
) -> None:
    graph = make(name, 16, **options)
    data = np.arange(8, 24) if sizes else None
    theory = graph.steady_state(data, links, presence)
    np.testing.assert_allclose(theory @ graph.expected_merge_matrix(data, links, presence), theory, atol=1e-12)
    assert theory.sum() == pytest.approx(1)
    products = []
    for seed in range(100):
        rounds, product = graph.failing(seed, data, links, presence), np.eye(16)
        round = 0
        while np.ptp(product, axis=0).max() > 1e-4:  # until everybody agrees: the rows are one vector
            product, round = rounds.matrix(round) @ product, round + 1
        products.append(product[0])
    drawn = np.array(products)
    error = drawn.std(axis=0) / math.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - theory) < 4.5 * error).all()
    squares = (drawn**2).sum(axis=1)
    gain, doubt = under_outages(graph, links, presence, data, rounds=1000)
    slack = 4 * math.hypot(doubt, gain / 2 * squares.std() / squares.mean() / math.sqrt(len(drawn)))
    assert gain == pytest.approx(squares.mean() ** -0.5, abs=slack)
    assert slack < 0.1 * gain
    assert gain < graph.gain(data, links, presence)


def test_closed_form_under_outages_equals_power_iteration() -> None:
    graph = make("ba", 100, m=3)
    closed = graph.steady_state(links=0.3, presence=0.8)
    general = graph.steady_state(np.concatenate([np.ones(99), [1 + 1e-12]]), links=0.3, presence=0.8)
    np.testing.assert_allclose(closed, general, rtol=1e-8)
    assert graph.gain(links=1e-3) == pytest.approx(10, rel=1e-3)  # who rarely hears anybody counts like anyone else


def test_own_weights_enter_merge_matrix_steady_state_and_gain() -> None:
    graph = Graph.from_edges(5, LINKS, [0.1, 5, 2, 1, 0.3, 0.01])
    own, sizes = [0, 1, 2, 0.5, 3], [4, 1, 2, 2, 9]
    merge = (graph.matrix().toarray() + np.diag(own)) * sizes
    merge /= merge.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(graph.merge_matrix(sizes, own).toarray(), merge)
    found = graph.steady_state(sizes, own=own)
    np.testing.assert_allclose(found @ merge, found, atol=1e-15)
    assert make("star", 9).gain(own=1e6) == pytest.approx(3, rel=1e-3)
    assert make("ring", 9, directed=True).gain(own=2.0) == pytest.approx(3)


def test_own_weights_and_chances_that_cannot_be() -> None:
    graph = make("ring", 4)
    with pytest.raises(GraphError, match="4 numbers"):
        graph.gain(own=[1, 2])
    with pytest.raises(GraphError, match="≥ 0"):
        graph.gain(own=-1.0)
    with pytest.raises(GraphError, match="nobody hears anybody"):
        graph.gain(links=0.0)
    with pytest.raises(GraphError, match="from 0 to 1"):
        graph.gain(presence=1.5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("regular", {"k": 8}),
        ("er", {"p": 0.2}),
        ("ba", {"m": 4}),
        ("powerlaw", {"min_degree": 3}),
        ("er", {"p": 0.2, "directed": True, "weights": "uniform"}),
    ],
)
def test_the_plateau_is_the_norm_of_the_steady_state(name: str, options: dict[str, object]) -> None:
    graph = make(name, 60, **options)
    found = simulate(graph, 30_000, 40, noise=1e-3, init=2.0)
    assert found.theory == pytest.approx(2 / graph.gain())
    assert found.plateau == pytest.approx(found.theory, rel=0.02)
    assert found.error < 0.005
    assert found.across_parameters[0] == pytest.approx(2, rel=0.01)
    assert found.across_nodes[0] == pytest.approx(2, rel=0.02)


def test_noise_is_told_from_the_plateau() -> None:
    found = simulate(make("regular", 40, k=6), 20_000, 150, noise=0.05)
    assert found.across_parameters[-1] > 1.1 * found.theory
    assert found.plateau == pytest.approx(found.theory, rel=0.025)


def test_both_measures_follow_the_powers_of_the_merge_matrix() -> None:
    graph = make("ba", 30, m=2)
    found = simulate(graph, 20_000, 12, noise=0.1)
    merge, power = graph.merge_matrix().toarray(), np.eye(30)
    covariance, noise = np.eye(30), np.zeros((30, 30))
    for round in range(13):
        among = covariance + noise
        np.testing.assert_allclose(found.across_parameters[round], np.sqrt(np.diag(among)).mean(), rtol=0.02)
        apart = np.trace(among) / 30 - among.mean()
        # the mean of a root is below the root of the mean, the more so the fewer directions nodes differ in
        assert 0.94 * math.sqrt(apart) < found.across_nodes[round] < 1.01 * math.sqrt(apart)
        power = merge @ power
        covariance, noise = power @ power.T, merge @ noise @ merge.T + 0.01 * np.eye(30)


def test_stabilisation_scales_like_the_mixing_time() -> None:
    rounds = {n: simulate(make("ring", n), 400, 30 * n, noise=1e-4) for n in (12, 24)}
    near, far = (found.stabilisation for found in rounds.values())
    assert near is not None
    assert far is not None
    times = rounds[24].mixing_time / rounds[12].mixing_time
    assert times == pytest.approx(4, rel=0.05)
    assert far / near == pytest.approx(times, rel=0.2)
    level = rounds[24].level
    assert level is not None
    assert 1e-4 <= level < 4e-4


def test_without_noise_or_in_too_few_rounds_there_is_no_stabilisation() -> None:
    silent = simulate(make("regular", 20, k=4), 2000, 40, noise=0.0)
    assert silent.stabilisation is None
    assert silent.plateau == pytest.approx(silent.theory, rel=0.06)
    hasty = simulate(make("ring", 60), 100, 20, noise=1e-4)
    assert hasty.stabilisation is None
    assert "σ_an stabilises (rounds)" not in hasty.facts()


@pytest.mark.parametrize(("links", "presence"), [(0.5, 1.0), (1.0, 0.6)])
def test_the_plateau_under_outages(links: float, presence: float) -> None:
    graph = make("ba", 150, m=4)
    found = simulate(graph, 20_000, 80, noise=1e-4, links=links, presence=presence)
    assert found.plateau == pytest.approx(found.theory, rel=0.04)
    assert found.theory < 0.99 / graph.gain()  # failing links hide the hubs


def test_the_same_seed_gives_the_same_numbers_and_columns_are_apart() -> None:
    graph = make("ring", 30)
    one, same, other = (simulate(graph, 700, 3, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.across_nodes, same.across_nodes)
    assert not np.array_equal(one.across_nodes, other.across_nodes)
    # parameters beyond the first block are drawn anew, so that a mean over many has a small error
    assert simulate(graph, 40_000, 1).across_nodes[0] == pytest.approx(math.sqrt(29 / 30), rel=0.01)


def test_noise_is_normal() -> None:
    """Two nodes that start at zero: after a round they are noise, and E|a − b| / 2 = σ / √π of no other law."""
    found = simulate(make("line", 2), 400_000, 1, noise=0.1, init=1e-12)
    assert found.across_parameters[1] == pytest.approx(0.1, rel=3e-3)
    assert found.across_nodes[1] == pytest.approx(0.1 / math.sqrt(math.pi), rel=3e-3)


def test_noise_of_one_round_tells_nothing_of_the_next() -> None:
    """What two nodes share is a walk whose variance grows by σ² / 2 a round; what sets them apart stays as it is."""
    found = simulate(make("line", 2), 100_000, 20, noise=0.1, init=1e-12)
    rounds = np.arange(1, 21)
    shared = found.across_parameters[1:] ** 2 - 0.1**2 / 2  # less the part that sets them apart
    np.testing.assert_allclose(shared, rounds * 0.1**2 / 2, rtol=0.02)
    np.testing.assert_allclose(found.across_nodes[1:], 0.1 / math.sqrt(math.pi), rtol=0.01)


@pytest.mark.parametrize("wrong", [{"dimensions": 0}, {"rounds": 0}, {"noise": -1.0}, {"init": 0.0}])
def test_impossible_settings_of_the_simulation_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(CoterieError, match=f"^{next(iter(wrong))}: expected"):
        simulate(make("ring", 5), **wrong)  # type: ignore[arg-type]


def test_the_dynamics_command_prints_facts_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], figures: dict[str, Figure]
) -> None:
    picture = tmp_path / "new" / "d.png"
    _command("ba", "--nodes", "60", "--m", "3", "--dimensions", "500", "--rounds", "60", "--draw", str(picture))
    told = capsys.readouterr().out
    for words in ("σ_ap plateau", "theory", "ratio", "σ_an stabilises", "mixing time"):
        assert words in told
    assert picture.is_file()
    lines = pictures.named(*figures["d.png"].axes)
    assert len(lines) == 5  # both spreads, the theory, the noise, and when σ_an is stable
    assert all(len(pictures.points(line)) == 61 for label, line in lines.items() if "over" in label)
    _command("ring", "--nodes", "60", "--rounds", "10", "--links", "0.8", "--dimensions", "10")
    assert "not come to rest within 10 rounds" in capsys.readouterr().out
    with pytest.raises(CoterieError, match="noise: expected a number"):
        _command("ring", "--noise", "loud")


def _command(*tokens: str) -> None:
    function, typed = dynamics_command(list(tokens), "Plays the early stage.")
    app = App(name="coterie", result_action="return_value")
    app.command(function, name="dynamics")
    app(["dynamics", *typed])


def test_both_spreads_are_drawn_with_the_level_of_the_theory(tmp_path: Path, figures: dict[str, Figure]) -> None:
    still = Dynamics(np.array([1.0, 0.5, 0.5]), np.array([1.0, 0.0, 0.0]), 10, 0.0, 0.5, 1.0)
    draw_dynamics(still, tmp_path / "d.svg")
    (axes,) = figures["d.svg"].axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("communication round", "standard deviation")
    assert axes.get_yscale() == "log"
    within, apart, theory = map(pictures.points, axes.lines)  # without noise neither its level nor stabilisation
    assert pictures.legend(axes)[2] == "σ_init·‖v_steady‖ = 0.5"
    assert within.tolist() == [[0, 1], [1, 0.5], [2, 0.5]]
    assert apart[0].tolist() == [0, 1]
    assert np.isnan(apart[1:, 1]).all()  # zero has no place on a logarithmic axis
    assert theory[:, 1].tolist() == [0.5, 0.5]

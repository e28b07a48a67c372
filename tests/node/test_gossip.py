"""The gain by gossip: every node's own estimate, in the simulator and at peers."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.config.build import gossip
from coterie.config.networks import network
from coterie.engines.memory import Memory
from coterie.errors import ConfigError
from coterie.network.graph import Graph
from coterie.network.rounds import Network
from coterie.node.gossip import REST, GossipGain, enough_rounds, gossip_job
from coterie.parts import find
from coterie.peers.founding import with_estimated_gain
from coterie.runs.experiment import Experiment
from coterie.runs.gossip import estimates, on, survey
from driving import job
from peering import peer_configs, together

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "model": {"name": "mlp", "sizes": [8]},
    "nodes": 5,
    "rounds": 2,
    "batches": 2,
    "total": 200,
    "topology": {"name": "ring"},
    "initialiser": {"name": "gain", "estimate": "gossip", "gossip_rounds": 5, "gossip_samples": 500},
}


@pytest.mark.parametrize("links", [1.0, 0.8])
@pytest.mark.parametrize("topology", [{"name": "er", "p": 0.05, "connect": True}, {"name": "ba", "m": 4}])
def test_every_node_is_within_five_per_cent_in_six_rounds(topology: dict[str, Any], links: float) -> None:
    made = job(nodes=200, total=1400, validation=0, topology=topology, partition="iid", links=links)
    exact = made.graph(1).gain([len(t) for t in made.roster.train])
    *_, last = survey(made, 4000, 6)
    assert np.abs(last / exact - 1).max() < 0.05


def test_data_sizes_count() -> None:
    skewed = {"name": "dirichlet", "alpha": 0.3, "min_samples": 2}
    made = job(nodes=40, total=1200, topology={"name": "ba", "m": 3}, partition=skewed)
    sizes = [len(t) for t in made.roster.train]
    found = estimates(made, 8000, 8)
    assert np.abs(found / made.graph(1).gain(sizes) - 1).max() < 0.05
    assert abs(made.graph(1).gain() / made.graph(1).gain(sizes) - 1) > 0.08  # degrees alone would not do


def test_who_hears_nobody_is_alone() -> None:
    made = job(nodes=4, total=80, topology={"name": "star"}, partition="iid")
    lonely = replace(made, network=Network.still(Graph.from_edges(4, [(0, 1), (1, 2)])))
    assert estimates(lonely, 100, 3)[3] == 1.0


def test_peers_in_memory_find_the_same() -> None:
    made = gossip_job(job(nodes=12, total=240, topology={"name": "ba", "m": 2}), 300)
    assert isinstance(made.rule, GossipGain)
    session = Memory().open()
    session.begin(made)
    for number, expected in enumerate(survey(made, 300, 4), 1):
        session.round(number, False)
        found = [float(made.rule.gain(session.peers[i].state["minima"])) for i in range(12)]
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_peers_over_sockets_find_the_same_and_start_from_it(tmp_path: Path) -> None:
    (settings,) = Experiment(**SMALL).resolved.values()
    asking = gossip(settings)
    assert asking == {"samples": 500, "rounds": 5}

    async def scene() -> Any:
        given = await asyncio.gather(
            *(with_estimated_gain(a, **asking) for a in peer_configs(Experiment(**SMALL), tmp_path))
        )
        return given, await together(list(given))

    given, rows = asyncio.run(scene())
    simulated = Experiment(**SMALL, engine="memory").run().records.sort("round", "node")
    np.testing.assert_allclose(rows["test_loss"], simulated["test_loss"], rtol=1e-4)
    gains = {float(a.job.gains[a.node]) for a in given}
    assert len(gains) == 1  # five rounds are enough for everyone to hear everyone
    assert abs(gains.pop() / np.sqrt(5) - 1) < 0.2


@pytest.mark.parametrize("name", ["rounds", "samples"])
def test_too_little_gossip_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"gossip_{name}: expected at least 2, got 1"):
        Experiment(**{**SMALL, "initialiser": {"name": "gain", "estimate": "gossip", f"gossip_{name}": 1}}).run()


def test_the_estimate_needs_no_scale() -> None:
    """Ten times the data everywhere changes nothing."""
    (*_, few), (*_, many) = (survey(job(nodes=6, total=total, partition="iid"), 1000, 4) for total in (120, 1200))
    np.testing.assert_allclose(few, many, rtol=1e-5)


@pytest.mark.parametrize("rule", ["decavg", "cfa"])
def test_the_gain_is_that_of_the_rule(rule: str) -> None:
    made = job(nodes=12, total=480, rule=rule, topology={"name": "ba", "m": 2})
    *_, last = survey(made, 4000, 6)
    np.testing.assert_allclose(last, made.gains, rtol=0.05)


def test_nobody_asks_for_a_rule_that_needs_no_gain() -> None:
    (settings,) = Experiment(**{**SMALL, "rule": "variance_corrected"}).resolved.values()
    assert gossip(settings) is None


def test_weights_of_links_count() -> None:
    base = find("topologies", "ba").make(m=2).draw(30, np.random.default_rng(0))
    uneven = np.where(np.maximum(base.sources, base.targets) < 6, 10.0, 0.1)
    made = on(Graph(30, base.sources, base.targets, uneven))
    assert abs(made.graph(1).gain() / base.gain() - 1) > 0.2
    np.testing.assert_allclose(estimates(made, 4000), made.graph(1).gain(), rtol=0.06)


@pytest.mark.parametrize(("topology", "nodes", "exact"), [("ring", 64, 8), ("torus", 400, 20)])
def test_gossip_goes_on_until_everyone_has_heard_of_everyone(topology: str, nodes: int, exact: float) -> None:
    made = on(find("topologies", topology).make().draw(nodes, np.random.default_rng(0)))
    np.testing.assert_allclose(estimates(made, 1000), exact, rtol=0.1)
    assert enough_rounds(made.network) >= made.graph(1).diameter()


def test_rounds_are_enough_in_a_network_that_changes() -> None:
    """Along hops of 1, 2, 4 and 8, one a round, sixteen nodes have heard of each other after four rounds."""
    (method,) = Experiment(nodes=16, rounds=2, topology="one_peer_exponential").resolved.values()
    assert enough_rounds(network(method, 0)) == REST + 4


@pytest.mark.parametrize("estimate", ["gossip", "degrees"])
def test_one_way_links_are_refused(estimate: str) -> None:
    one_way = {"name": "er", "p": 0.6, "directed": True, "connect": True}
    told = {"initialiser": {"name": "gain", "estimate": estimate}, "topology": one_way}
    with pytest.raises(ConfigError, match="where links go one way"):
        Experiment(**SMALL | told).run()

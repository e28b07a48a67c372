"""The six deployments between real peers: sockets, keys and TLS on loopback give the simulator's numbers."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from coterie.config.build import build
from coterie.mail.pace import Timing
from coterie.node.node import snapshot
from coterie.peers.runtime import PeerRuntime
from coterie.runs.experiment import Experiment
from driving import SMALL, Outcome, agree, brought_together, outcome, samples, session
from peering import peer_configs, together

SIX = ["continuous-linear", "continuous-ring", "aggregate-linear", "aggregate-ring", "star", "mesh"]
BARE = {k: v for k, v in SMALL.items() if k not in ("batches", "rounds", "topology")}
BATCH_NORM = {"name": "cnn", "channels": [4], "kernel": 3, "norm": "batch"}
ROLES: dict[str, dict[str, Any]] = {
    "a proxy": {"protocol": {"proxy": [1]}},
    "an idle node": {"protocol": {"idle": [1]}, "topology": "complete"},
    "a path": {"protocol": {"path": [3, 1, 0, 2]}, "topology": "complete"},
    "roles by round": {"protocol": {"roles": ["ttpt", "ptit"]}, "topology": "complete"},
    "batch norm": {"model": BATCH_NORM},
}


def experiment(method: str, nodes: int, **own: Any) -> Experiment:
    return Experiment(**{**BARE, "nodes": nodes, "total": 40 * nodes, "methods": {"mine": {"use": method, **own}}})


def simulated(given: Experiment, engine: str) -> Outcome:
    (one,) = given.resolved.values()
    made, running = build(one, samples(), 0), session(engine)
    running.begin(made)
    for number in range(1, one.rounds + 1):
        running.round(number, number == one.rounds)
    return outcome(running, made)


def peers(given: Experiment, folder: Path) -> tuple[Outcome, int]:
    """What came of real peers, and how often somebody waited in vain."""
    seen: list[PeerRuntime] = []

    async def look(running: list[PeerRuntime]) -> None:
        seen.extend(running)

    configs = peer_configs(given, folder, timing=Timing(deadline=60))
    asyncio.run(asyncio.wait_for(together(configs, look), 240))
    missed = sum(n.missed for r in seen for n in r.status.neighbours.values())
    return brought_together([snapshot([r.node]) for r in seen], {}, seen[0].config.job), missed


def same(given: Experiment, folder: Path) -> None:
    found, missed = peers(given, folder)
    assert missed == 0
    for engine in ("loop", "memory"):
        agree(found, simulated(given, engine))


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("method", SIX)
def test_same_numbers(method: str, nodes: int, tmp_path: Path) -> None:
    same(experiment(method, nodes), tmp_path)


def test_same_numbers_with_a_hub_by_round(tmp_path: Path) -> None:
    same(experiment("star", 4, protocol={"hub": [2, 0]}, topology="complete"), tmp_path)


@pytest.mark.parametrize("roles", [{"proxy": [0], "idle": [3]}, {"roles": ["tttt", "ptit"]}])
def test_same_numbers_whatever_the_roles_on_a_star(roles: dict[str, Any], tmp_path: Path) -> None:
    same(experiment("star", 4, protocol=roles), tmp_path)


@pytest.mark.parametrize("method", ["continuous-linear", "aggregate-ring"])
def test_same_numbers_where_the_walk_comes_through_the_hub_again(method: str, tmp_path: Path) -> None:
    same(experiment(method, 4, protocol={"through": True}, topology="star"), tmp_path)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("method", ["continuous-ring", "aggregate-ring"])
def test_same_numbers_whatever_the_roles(method: str, role: str, tmp_path: Path) -> None:
    same(experiment(method, 4, **ROLES[role]), tmp_path)

"""Relays of peers on machines of their own, who know those next to them on the path by name, and nobody else."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coterie.engines.peer import free_ports
from coterie.errors import ConfigError
from coterie.net.identity import Home
from coterie.peers import deployment
from coterie.peers.agreement import shared
from coterie.peers.runtime import PeerRuntime
from coterie.runs.experiment import Experiment
from peering import TINY, run

NAMES = ("dora", "carl", "anna", "bert")
"""In their order along the path, which is that of no alphabet."""


def homes(folder: Path, ring: bool) -> list[Home]:
    """Peers that have the cards of those next to them."""
    ports = free_ports(len(NAMES))
    made = [Home.create(folder / name, name, f"127.0.0.1:{port}") for name, port in zip(NAMES, ports, strict=True)]
    for one, other in [*pairwise(made), *([(made[-1], made[0])] if ring else [])]:
        one.add(other.card)
        other.add(one.card)
    return made


def experiment(ring: bool, aggregate: bool = False, **protocol: Any) -> Experiment:
    relay = {"name": "relay", "ring": ring, "aggregate": aggregate, "names": NAMES, **protocol}
    rounds, rule = (2 if ring else 1), ("handed" if aggregate else "isolation")
    own = {"batches": None, "epochs": 2, "rounds": rounds, "rule": rule, "initialiser": "common"}
    return Experiment(**{**TINY, **own, "protocol": relay, "engine": {"name": "peer", "deadline": 30.0, "wait": 60.0}})


def peer(given: Experiment, home: Home) -> PeerRuntime:
    return PeerRuntime(deployment.peer_config(given, home, None, None, 0, port=0, verbose=False))


def walked(given: Experiment, made: list[Home]) -> list[dict[str, int]]:
    running = [peer(given, home) for home in made]

    async def scene() -> None:
        await asyncio.gather(*(each.go() for each in running))

    run(scene())
    return [each.node.counters for each in running]


@pytest.mark.parametrize("aggregate", [False, True])
def test_a_line_of_peers_who_know_their_neighbours_alone(aggregate: bool, tmp_path: Path) -> None:
    found = walked(experiment(False, aggregate), homes(tmp_path, False))
    assert [kept["turn"] for kept in found] == [1, 2, 3, 4]
    assert [kept["epochs"] for kept in found] == [2, 4, 6, 8]
    assert [kept["holds"] for kept in found] == [0, 0, 0, 1]


@pytest.mark.parametrize("aggregate", [False, True])
def test_on_a_ring_it_comes_back_to_the_first(aggregate: bool, tmp_path: Path) -> None:
    found = walked(experiment(True, aggregate), homes(tmp_path, True))
    assert [kept["turn"] for kept in found] == [8, 6, 7, 8]
    assert [kept["holds"] for kept in found] == [1, 0, 0, 0]


def test_a_proxy_is_a_place_on_the_path(tmp_path: Path) -> None:
    found = walked(experiment(False, proxy=(1,)), homes(tmp_path, False))
    assert [kept["epochs"] for kept in found] == [2, 2, 4, 6]


def test_epochs_are_agreed_on_where_they_are_counted_along_the_way() -> None:
    (relay,), (plain,) = (given.resolved.values() for given in (experiment(True), Experiment(**TINY)))
    assert shared(relay)["epochs"] == "2"
    assert "epochs" not in shared(plain)


def test_a_budget_is_shared_out_over_those_who_are_named() -> None:
    own = {"budget": 24, "rounds": 2, "protocol": {"name": "relay", "names": NAMES}}
    (method,) = Experiment(**{**TINY, "batches": None, **own}).resolved.values()
    assert method.epochs == 3


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("anna", "bert", "carl"), r"the name of this peer, dora, among them.*--protocol\.names"),
        (("dora", "bert", "anna"), r"dora hands on to bert or takes from it.*coterie peer add bert\.peer"),
    ],
)
def test_who_cannot_take_part_is_told(names: tuple[str, ...], words: str, tmp_path: Path) -> None:
    dora, *_ = homes(tmp_path, False)
    with pytest.raises(ConfigError, match=words):
        peer(experiment(False, names=names), dora)


@pytest.mark.parametrize("more", [{"path": (0, 1)}, {"idle": (1,)}, {"names": ("anna", "anna")}])
def test_names_that_say_two_things_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="names"):
        experiment(True, **more)

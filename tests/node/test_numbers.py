"""The agreed start: a number that nodes agree on by gossip, and the weights that they draw from it."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from coterie.initialisers import Origin
from coterie.network.faults import Faults
from coterie.node.numbers import EXACT
from coterie.parts import find
from coterie.peers.founding import with_agreed_number
from coterie.runs.experiment import Experiment
from coterie.runs.gossip import numbers
from driving import job
from peering import peer_configs, together

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "model": {"name": "mlp", "sizes": [8]},
    "nodes": 4,
    "rounds": 1,
    "batches": 1,
    "total": 160,
    "topology": "ring",
    "initialiser": "agreed",
}


@pytest.mark.parametrize("links", [1.0, 0.3])
@pytest.mark.parametrize("topology", [{"name": "ring"}, {"name": "er", "p": 0.2, "connect": True, "directed": True}])
def test_all_agree_on_the_smallest_number(topology: dict[str, Any], links: float) -> None:
    made = job(nodes=24, total=240, topology=topology, partition="iid", links=links)
    first, found = numbers(made, 1), numbers(made)
    assert len(set(found.tolist())) == 1
    assert 0 <= found[0] <= first.min() < EXACT


def test_who_joins_later_keeps_a_number_of_its_own() -> None:
    made = job(nodes=6, total=120, topology="complete", partition="iid")
    found = numbers(replace(made, faults=Faults(0, joins={5: 3})))
    assert len(set(found[:5].tolist())) == 1
    assert found[5] != found[0]


def test_one_number_is_one_start_and_another_is_another() -> None:
    def drawn(node: int, number: int | None) -> torch.Tensor:
        layer = torch.nn.Linear(6, 5)
        find("initialisers", "agreed").make()(layer, Origin(3, node, 1.0, number))
        return layer.weight.detach().clone()

    assert torch.equal(drawn(0, 7), drawn(1, 7))
    assert not torch.equal(drawn(0, 7), drawn(0, 8))
    assert not torch.equal(drawn(0, None), drawn(1, None))


def test_nodes_of_a_run_start_alike_and_averaging_takes_nothing() -> None:
    records = Experiment(**SMALL, evaluate=1).run().records
    assert records.filter(pl.col("round") == 0)["consensus_distance"].to_list() == pytest.approx([0.0] * 4, abs=1e-6)


@pytest.mark.parametrize("topology", ["ring", "matching"])
def test_peers_over_sockets_agree_as_in_the_simulator(topology: str, tmp_path: Path) -> None:
    """Where pairs change, they meet others in the rounds before the first than in the only one of training."""
    experiment = Experiment(**{**SMALL, "topology": topology})

    async def scene() -> Any:
        given = await asyncio.gather(*(with_agreed_number(a) for a in peer_configs(experiment, tmp_path)))
        return given, await together(list(given))

    given, rows = asyncio.run(scene())
    assert len({int(a.job.numbers[a.node]) for a in given}) == 1
    simulated = experiment.run().records.sort("round", "node")
    np.testing.assert_allclose(rows["test_loss"], simulated["test_loss"], rtol=1e-4)

"""Peers that compute on a device, for which `cpu:0` stands: it is not `cpu`, where models rest, so all is copied."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.engines.memory import Memory
from coterie.errors import ConfigError
from coterie.net.identity import Home
from coterie.peers import deployment
from coterie.runs.experiment import Experiment
from peering import TINY
from small import assert_same, small


@dataclass(frozen=True)
class Elsewhere(Memory):
    """Peers in memory that compute on a device."""

    device: str = "cpu:0"


WAYS: dict[str, dict[str, Any]] = {
    "decavg": {"methods": ["decavg"], "measures": ["steps", "epochs"], "keep_models": "best"},
    "epochs": {"methods": ["decavg"], "batches": None, "epochs": 2, "early_stopping": True},
    "momentum": {"methods": ["decavg"], "momentum": 0.9, "keep_optimiser": True, "augment": "noise"},
    "batch norm": {"methods": ["decavg"], "model": {"name": "resnet", "channels": [4]}, "batch_size": 16},
    "observes": {"methods": ["dechw"]},
    "squares": {"methods": ["dechw-lite"]},
    "answers": {"methods": ["cfa-ge"]},
    "agreed": {"methods": ["agreed-start"]},
    "lessons": {"methods": ["dfml"], "model": ["mlp[8]", "logistic"]},
    "exercises": {"methods": ["desa"], "protocol": {"name": "desa", "ipc": 1, "steps": 2}},
}
"""What peers do with their models."""


@pytest.mark.parametrize("way", WAYS)
def test_what_is_computed_elsewhere_comes_back(way: str) -> None:
    how = {"nodes": 4, "rounds": 3, **WAYS[way]}
    here, there = (small(**how, engine=engine).run(progress=False) for engine in ("memory", Elsewhere()))
    assert here.records["test_accuracy"].max() > 0
    assert_same(here.records, there.records)
    for node, model in here.models().items():
        for name, tensor in model.tensors().items():
            assert torch.equal(tensor, there.models()[node].tensors()[name])


def test_a_peer_is_told_where_to_compute(tmp_path: Path) -> None:
    alice, bob = (Home.create(tmp_path / name, name, "127.0.0.1:7001") for name in ("alice", "bob"))
    alice.add(bob.card)
    tiny = Experiment(**TINY)
    config = functools.partial(deployment.peer_config, tiny, alice, None, None, 0, 0, False)
    assert config().job.roster.device == "cpu"
    assert config("cpu:0").job.roster.device == "cpu:0"
    with pytest.raises(ConfigError, match="device 'nonsense'"):
        config("nonsense")


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("peer", "local"):
        with pytest.raises(ConfigError, match="device 'nonsense' is not to be had here"):
            Experiment(engine={"name": name, "device": "nonsense"}).run(tmp_path / name, progress=False)

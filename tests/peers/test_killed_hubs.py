"""A hub of real processes that ends with kill -9: another takes its place, from the last global model."""

from pathlib import Path
from typing import Any

import polars as pl
import polars.testing
import pytest
import torch
from torch import Tensor

from coterie.engines.peer import Peer
from coterie.node.snapshot import Snapshot
from coterie.peers.checkpoint import CHECKPOINT, load_checkpoint
from coterie.runs.experiment import Experiment
from graveyard import Graveyard
from peering import TINY

MORTAL = Path(__file__).parent / "mortal.py"
NODES, ROUNDS = 4, 4
SETTINGS: dict[str, Any] = {
    **TINY,
    "nodes": NODES,
    "rounds": ROUNDS,
    "evaluate": ROUNDS,
    "initialiser": "common",
    "engine": {"name": "peer", "deadline": 60.0, "stretch": 1e6, "restarts": 1},
}


def model(folder: Path, node: int) -> Tensor:
    (file,) = folder.rglob(f"node-{node}/{CHECKPOINT}")
    about, state = load_checkpoint(file)[:2]
    assert about["round"] == str(ROUNDS)
    return Snapshot.read(state).rows[0].matrix


@pytest.mark.parametrize("deaths", [("0 2 2",), ("0 2 4",), ("0 2 1", "1 3 4")])
def test_the_rest_go_on_with_one_model(
    deaths: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub with all models in hand, or while it hands them back, or before it hears any; then its deputy, too."""
    monkeypatch.setattr(Peer, "open", lambda engine: Graveyard(engine))
    protocol = {"name": f"{MORTAL}:Hub", "deaths": deaths, "marks": str(tmp_path)}
    rows = Experiment(**SETTINGS, protocol=protocol).run(tmp_path / "x").records
    rest = range(len(deaths), NODES)
    assert all((tmp_path / death).exists() for death in deaths)
    assert sorted(rows.filter(pl.col("round") == ROUNDS)["node"].to_list()) == [*rest]
    first = model(tmp_path / "x", rest[0])
    for node in rest[1:]:
        torch.testing.assert_close(model(tmp_path / "x", node), first)


def test_leaves_wait_for_a_hub_that_is_started_again(tmp_path: Path) -> None:
    """On a star nobody can take its place."""
    judged = ["round", "node", "test_loss", "test_accuracy"]
    given = {**SETTINGS, "topology": "star", "engine": {"name": "peer", "deadline": 60.0}}
    mortal = {"name": f"{MORTAL}:Hub", "deaths": ["0 2 2"], "marks": str(tmp_path)}
    found = Experiment(**given, protocol=mortal).run(tmp_path / "x").records.select(judged)
    assert (tmp_path / "0 2 2").exists()
    undisturbed = Experiment(**{**given, "engine": "memory"}, protocol="aggregator").run(tmp_path / "y").records
    expected = undisturbed.select(judged).sort(judged[:2])
    pl.testing.assert_frame_equal(found.sort(judged[:2]), expected, rel_tol=1e-4)


def test_peers_in_different_rounds_have_a_hub_without_deputies(tmp_path: Path) -> None:
    engine = {"name": "peer", "mode": "async"}
    rows = Experiment(**{**TINY, "engine": engine}, protocol="aggregator").run(tmp_path / "x").records
    assert sorted(rows.filter(pl.col("round") == 3)["node"].to_list()) == [0, 1, 2]

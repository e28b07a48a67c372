"""Relays of real processes that end with kill -9 while they wait for the model, have it, or hand it on."""

from pathlib import Path
from typing import Any

import polars as pl
import polars.testing
import pytest

from coterie.node.snapshot import Snapshot
from coterie.peers.checkpoint import CHECKPOINT, load_checkpoint
from coterie.runs.experiment import Experiment
from peering import TINY

MORTAL = Path(__file__).parent / "mortal.py"
NODES, ROUNDS = 4, 4
SETTINGS: dict[str, Any] = {
    **TINY,
    "nodes": NODES,
    "rounds": ROUNDS,
    "batches": None,
    "epochs": 150,
    "evaluate": ROUNDS,
    "initialiser": "common",
    "engine": {"name": "peer", "deadline": 10.0, "wait": 20.0},
}
DEATHS = [("0 2 1", False), ("1 2 5", True), ("2 2 9", False), ("3 2 12", True)]
"""`node round operation`, and whether it is an aggregate relay: the first begins, others have taken or handed on."""


def counters(folder: Path) -> list[dict[str, int]]:
    """What every peer's last checkpoint says of the walk."""
    found: dict[int, dict[str, int]] = {}
    for node, file in enumerate(sorted(folder.rglob(CHECKPOINT))):
        found[node] = Snapshot.read(load_checkpoint(file)[1]).counters[node]
    return [found[node] for node in range(NODES)]


@pytest.mark.parametrize(("death", "aggregate"), DEATHS)
def test_whoever_is_killed_the_walk_goes_on_with_the_newest_model(death: str, aggregate: bool, tmp_path: Path) -> None:
    """Copies that are older may be left with who comes back when all is over: nobody takes them."""
    own = {"aggregate": aggregate, "reach": NODES, "deaths": [death], "marks": str(tmp_path)}
    protocol, rule = {"name": f"{MORTAL}:Mortal", **own}, "handed" if aggregate else "isolation"
    rows = Experiment(**SETTINGS, protocol=protocol, rule=rule).run(tmp_path / "x").records
    assert (tmp_path / death).exists()
    assert sorted(rows.filter(pl.col("round") == ROUNDS)["node"].to_list()) == list(range(NODES))
    kept, victim = counters(tmp_path / "x"), int(death[0])
    newest = max(k["turn"] for k in kept)
    assert [k["turn"] for k in kept if k["holds"] and k["turn"] == newest] == [newest]
    assert [k for n, k in enumerate(kept) if k["holds"] and n != victim and k["turn"] < newest] == []
    assert newest >= NODES + 1  # what was trained before the death is not lost
    assert max(k["epochs"] for k in kept) == SETTINGS["epochs"] * newest


def test_who_is_back_in_time_has_its_turn_again_and_nothing_is_lost(tmp_path: Path) -> None:
    """The first before anybody else has the model, and another that has trained: no link leads past either."""
    given = {**SETTINGS, "topology": "ring", "rule": "handed", "engine": {"name": "peer", "deadline": 60.0}}
    deaths = ["0 1 1", "2 2 8"]
    mortal = {"name": f"{MORTAL}:Mortal", "aggregate": True, "deaths": deaths, "marks": str(tmp_path)}
    judged = ["round", "node", "test_loss", "test_accuracy"]
    found = Experiment(**given, protocol=mortal).run(tmp_path / "x").records.select(judged)
    assert all((tmp_path / death).exists() for death in deaths)
    memory = {**given, "engine": "memory", "protocol": {"name": "relay", "aggregate": True}}
    undisturbed = Experiment(**memory).run(tmp_path / "y").records.select(judged)
    pl.testing.assert_frame_equal(found.sort(judged[:2]), undisturbed.sort(judged[:2]), rel_tol=1e-5)

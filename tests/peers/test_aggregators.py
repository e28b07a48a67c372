"""A wandering aggregator among real processes: as in the simulator, and when it is killed at any moment."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from coterie.engines.peer import Peer, free_ports
from coterie.net.identity import Home
from coterie.peers import deployment
from coterie.peers.checkpoint import CHECKPOINT, load_checkpoint
from coterie.peers.runtime import PeerRuntime
from coterie.runs.experiment import Experiment
from driving import ENGINES
from driving import SMALL as WORLD
from graveyard import Graveyard
from peering import run

PARTS = Path(__file__).parent / "mortal_parts.py"
FIVE = "mlp[8],mlp[12,6],mlp[16],mlp[10,10],logistic"
DFML: dict[str, Any] = {
    **WORLD,
    "methods": {"dfml": {"use": "dfml", "protocol": {"lesson": {"name": "mutual", "epochs": 2}}}},
    "model": FIVE,
    "nodes": 5,
    "topology": "complete",
}


def test_five_processes_with_five_architectures_reach_the_simulator_s_numbers(tmp_path: Path) -> None:
    """Every accuracy in every round, of present models and of peaks; losses to float tolerance; bytes to the byte."""
    settings = {**DFML, "rounds": 8, "evaluate": 1}
    engine = {"name": "peer", "deadline": 120.0, "stretch": 1e6}
    found = Experiment(**settings, engine=engine).run(tmp_path).records.sort("round", "node")
    wanted = Experiment(**settings, engine=ENGINES["loop"]).run().records.sort("round", "node")
    same = ["round", "node", "batches", "sent_bytes", "received_bytes"]
    assert found.select(same).equals(wanted.select(same))
    for name in ("test_accuracy", "validation_accuracy", "peak_accuracy", "test_loss", "validation_loss"):
        ours, theirs = found[name].to_numpy(), wanted[name].to_numpy()
        np.testing.assert_allclose(ours, theirs, atol=0 if "accuracy" in name else 1e-4, err_msg=name)
    first, last = (found.filter(pl.col("round") == r)["test_accuracy"].mean() for r in (0, 8))
    assert last > first + 0.1


def leaders(folder: Path) -> tuple[dict[int, Counter[int]], list[int]]:
    """Who led in each round, and the turns in the order of their rounds."""
    led = sorted(tuple(map(int, line.split())) for line in (folder / "led").read_text().splitlines())
    by_round: dict[int, Counter[int]] = {}
    for number, node, _ in led:
        by_round.setdefault(number, Counter())[node] += 1
    return by_round, [turn for _, _, turn in led]


def test_introduced_peers_with_an_architecture_each_find_one_aggregator(tmp_path: Path) -> None:
    """On a ring, where each knows two others by name and nobody has a number; and they learn from each other."""
    homes = [Home.create(tmp_path / n, n, f"127.0.0.1:{p}") for n, p in zip("abcde", free_ports(5), strict=True)]
    for i, home in enumerate(homes):
        home.add(homes[i - 1].card)
        homes[i - 1].add(home.card)
    protocol = {"name": f"{PARTS}:Mortal", "folder": str(tmp_path), "lesson": {"name": "mutual", "epochs": 2}}
    settings = {**DFML, "methods": {"dfml": {"use": "dfml", "protocol": protocol}}, "rounds": 14}
    experiment = Experiment(**{**settings, "engine": {"name": "peer", "deadline": 60.0}})
    peers = [
        PeerRuntime(deployment.peer_config(experiment, home, None, None, kind, port=0, verbose=False))
        for kind, home in enumerate(homes)
    ]

    async def scene() -> None:
        await asyncio.gather(*(peer.go() for peer in peers))

    run(scene())
    led, turns = leaders(tmp_path)
    assert [len(led[r]) for r in range(4, 15)] == [1] * 11  # the lowest name has come to all by then
    assert len({node for r in led for node in led[r]}) > 1
    assert turns[-11:] == [*range(turns[-1] - 10, turns[-1] + 1)]
    assert len({peer.node.trainer.architecture.signature for peer in peers}) == 5
    assert sum(peer.status.neighbours[n].missed for peer in peers for n in peer.status.neighbours) == 0
    for peer in peers:
        rows = peer.keeper.rows.sort("round")["test_accuracy"]
        assert rows[-1] > rows[0] + 0.1


# ---- kill -9

PATIENCE, TURN, ROUNDS = 4, 2, 30
RECOVERY = PATIENCE + 2 + 3
"""Rounds after which one aggregator is left: its absence is noticed, someone takes the role up, and all hear of it."""
MOMENTS = ("calling", "handing on", "training", "returning", "in the lesson")


def killed(moment: str, folder: Path, monkeypatch: pytest.MonkeyPatch, back: bool) -> pl.DataFrame:
    """The records of a run whose aggregator is killed in its third turn, and started again or not."""
    lesson: dict[str, Any] = {"name": "mutual", "epochs": 2}
    if moment == "in the lesson":
        lesson |= {"name": f"{PARTS}:Fatal", "turn": TURN, "folder": str(folder)}
    protocol = {"name": f"{PARTS}:Mortal", "moment": moment, "turn": TURN, "folder": str(folder), "lesson": lesson}
    protocol["pause"] = 0.2 if back else 0.0
    settings = {**DFML, "methods": {"dfml": {"use": "dfml", "protocol": protocol}}}
    if not back:
        monkeypatch.setattr(Peer, "open", lambda engine: Graveyard(engine))
    engine = {"name": "peer", "deadline": 60.0, "stretch": 1e6, "restarts": 1}
    return Experiment(**{**settings, "rounds": ROUNDS, "evaluate": ROUNDS, "engine": engine}).run(folder / "x").records


@pytest.mark.parametrize(("moment", "back"), [(m, i % 2 == 1) for i, m in enumerate(MOMENTS)])
def test_an_aggregator_that_is_killed_is_replaced(
    moment: str, back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest do all rounds; once the role is found again there is one aggregator in each, and turns go on."""
    rows = killed(moment, tmp_path, monkeypatch, back)
    assert (tmp_path / "dead").exists()
    led, turns = leaders(tmp_path)
    death = TURN + 1  # its turns are counted from 0, and until then there is one in every round
    assert [len(led[r]) for r in range(1, death + 1)] == [1] * death
    (victim,) = led[death]
    for number in range(death + 1, ROUNDS + 1):
        most = 1 if number > death + RECOVERY and not back else 2
        assert len(led.get(number, ())) <= most, f"{led}"
    alone = [r for r in range(death + 1, ROUNDS + 1) if len(led.get(r, ())) != 1]
    assert len(alone) <= (2 if back else 1) * RECOVERY, f"{led}"
    assert turns == sorted(turns), "the cycle of α begins again nowhere"
    assert turns[-1] >= ROUNDS - death - 2 * RECOVERY
    rest = {0, 1, 2, 3, 4} - (set() if back else {victim})
    assert {*rows.filter(pl.col("round") == ROUNDS)["node"].to_list()} == rest
    for node in rest:
        (kept,) = tmp_path.glob(f"x/**/peers/node-{node}/{CHECKPOINT}")
        assert load_checkpoint(kept)[0]["round"] == str(ROUNDS)

"""Peers that were introduced to each other: who comes and goes, what their commands say, and their records."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from coterie.app import peer_commands, peer_status
from coterie.engines.peer import free_ports
from coterie.errors import ConfigError, PeerError, RunError
from coterie.net.identity import Home
from coterie.peers import deployment
from coterie.peers.agreement import shared
from coterie.peers.runtime import Introduced, PeerRuntime
from coterie.runs.experiment import Experiment
from peering import TINY, cancelled, given, kept, run, together, until

# ---- Neighbours who come and go


async def life(experiment: Experiment, home: Home, lives: list[PeerRuntime], architecture: int = 0) -> pl.DataFrame:
    """What `coterie peer run` does."""
    while True:
        lives.append(
            PeerRuntime(deployment.peer_config(experiment, home, None, None, architecture, port=0, verbose=False))
        )
        with suppress(Introduced):
            return await lives[-1].go()


def household(folder: Path) -> tuple[Home, Home, Home]:
    """Alice knows bob, who knows alice; carol knows alice, who does not know carol yet."""
    names = ("alice", "bob", "carol")
    ports = free_ports(len(names))
    alice, bob, carol = (
        Home.create(folder / name, name, f"127.0.0.1:{port}") for name, port in zip(names, ports, strict=True)
    )
    for one, other in ((alice, bob), (bob, alice), (carol, alice)):
        one.add(other.card)
    return alice, bob, carol


def test_a_running_peer_notices_who_is_introduced_and_who_is_removed(tmp_path: Path) -> None:
    alice, bob, carol = household(tmp_path)
    experiment = Experiment(**{**TINY, "rounds": 60, "engine": {"name": "peer", "deadline": 5.0, "wait": 30.0}})

    async def scene() -> None:
        lives: dict[str, list[PeerRuntime]] = {home.name: [] for home in (alice, bob, carol)}
        tasks = [asyncio.create_task(life(experiment, home, lives[home.name])) for home in (alice, bob)]
        await until(lambda: lives["alice"] and lives["alice"][0].status.round >= 2)
        alice.add(carol.card)
        tasks.append(asyncio.create_task(life(experiment, carol, lives["carol"])))
        await until(lambda: len(lives["alice"]) == 2 and lives["alice"][1].status.neighbours["carol"].received >= 2)
        went_on = lives["alice"][1].keeper.rows["round"].min()
        assert went_on == 0  # its records go on too
        alice.remove("bob")
        await until(lambda: len(lives["alice"]) == 3)
        assert list(lives["alice"][2].links.contacts.by_name) == ["carol"]
        await until(lambda: lives["alice"][2].status.round >= 5)
        await cancelled(tasks)

    run(scene())


def test_notes_on_a_neighbour_stay_its_own_whoever_comes_and_goes(tmp_path: Path) -> None:
    """A protocol that keeps things by number, among peers that number only those they know."""
    alice, bob, carol = household(tmp_path)
    models = [{"name": "mlp", "sizes": [8]}, {"name": "mlp", "sizes": [12]}]
    desa = {"protocol": {"name": "desa", "ipc": 1, "steps": 1}, "rule": "isolation", "model": models}
    experiment = Experiment(**{**TINY, **desa, "rounds": 60, "engine": {"name": "peer", "deadline": 5.0, "wait": 30.0}})
    lives: dict[str, list[PeerRuntime]] = {home.name: [] for home in (alice, bob, carol)}

    async def scene() -> None:
        alice.add(carol.card)
        tasks = [asyncio.create_task(life(experiment, home, lives[home.name])) for home in (alice, bob)]
        tasks.append(asyncio.create_task(life(experiment, carol, lives["carol"], architecture=1)))
        await until(lambda: lives["alice"] and lives["alice"][0].status.round >= 3)
        alice.remove("bob")
        await until(lambda: len(lives["alice"]) == 2 and lives["alice"][1].status.round >= 8)
        await cancelled(tasks)

    run(scene())
    notes, own = lives["alice"][1].node.notes, lives["carol"][-1].node.notes
    assert lives["alice"][1].config.numbers == {"carol": 2}
    torch.testing.assert_close(notes["anchors 2"], own["anchors 0"])
    assert notes["holds"].tolist() == [1, 2]  # who is gone may come back, and has them


def test_a_protocol_that_counts_all_nodes_is_not_for_peers_that_know_a_few(tmp_path: Path) -> None:
    alice, *_ = household(tmp_path)
    with pytest.raises(ConfigError, match=r"protocol relay needs everyone's number.*local = True"):
        deployment.peer_config(Experiment(**{**TINY, "protocol": "relay"}), alice, None, None, 0, port=0, verbose=False)


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ("matching", r"a changing network brings others.*Choose a topology that stays"),
        ({"name": "ring", "mixing": "metropolis"}, r"neighbours' degrees.*topology\.mixing to \"uniform\""),
    ],
)
def test_what_takes_the_whole_network_is_not_for_peers_that_know_a_few(
    topology: Any, words: str, tmp_path: Path
) -> None:
    alice, *_ = household(tmp_path)
    with pytest.raises(ConfigError, match=words):
        deployment.peer_config(
            Experiment(**{**TINY, "topology": topology}), alice, None, None, 0, port=0, verbose=False
        )


def test_uniform_weights_need_to_know_nobody(tmp_path: Path) -> None:
    alice, *_ = household(tmp_path)
    experiment = Experiment(**{**TINY, "topology": {"name": "complete", "mixing": "uniform"}})
    found = deployment.peer_config(experiment, alice, None, None, 0, port=0, verbose=False)
    assert float(PeerRuntime(found).node.trainer.me(0, 1).size) == 1.0
    assert shared(found.settings)["topology.mixing"] == '"uniform"'  # neighbours who weigh otherwise disagree


def test_a_card_that_cannot_be_read_stops_nobody(tmp_path: Path) -> None:
    crew = given(tmp_path, {"introduced": True})

    async def beside(running: list[PeerRuntime]) -> None:
        await until(lambda: running[0].status.round >= 1)
        (crew[0].home.path / "neighbours" / "dave.peer").write_text("not a card")

    run(together(crew, beside))
    assert kept(crew[0])[0]["round"] == "3"


# ---- Records of several


def test_records_of_peers_that_differ_are_not_brought_together(tmp_path: Path) -> None:
    homes = [Home.create(tmp_path / name, name, "127.0.0.1:7001") for name in ("alice", "bob")]
    homes[0].add(homes[1].card)
    homes[1].add(homes[0].card)
    for home, rounds in zip(homes, (3, 4), strict=True):
        experiment = Experiment(**{**TINY, "rounds": rounds, "engine": "peer"})
        given = deployment.peer_config(experiment, home, None, None, 0, port=0, verbose=False)
        made = PeerRuntime(given)
        made.node.score()
        made.keeper.record(0)
        made.keeper.finish()
    folders = [home.path for home in homes]
    with pytest.raises(RunError, match="alice and bob differ in rounds: expected 3, as alice has it, got 4"):
        deployment.collect(folders, tmp_path / "out")
    config = (folders[1] / "run" / "config.toml").read_text().replace("rounds = 4", "rounds = 3")
    (folders[1] / "run" / "config.toml").write_text(config)
    rows, unfinished = deployment.collect(folders, tmp_path / "out")
    assert rows["node"].unique().to_list() == [0, 1]
    assert unfinished == {"alice": 0, "bob": 0}
    with pytest.raises(RunError, match=r"Choose another --out\.$"):
        deployment.collect(folders, tmp_path / "out")


# ---- One peer, and its commands


def test_commands_of_a_peer_say_how_things_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "node-0"))
    crew = given(tmp_path)
    (tmp_path / "my.toml").write_text('rounds = 3\ndataset = "own"\nseeds = 0')
    with pytest.raises(PeerError, match=r"does not answer. It has not been started"):
        peer_status.status()
    with pytest.raises(ConfigError, match=r"no data. Name them with --data"):
        peer_commands.run("my.toml")
    with deployment.alone(Home("node-0")), pytest.raises(RunError, match="by another process"):
        peer_commands.run("my.toml")

    async def to_the_end_but_one() -> None:
        running = [PeerRuntime(a) for a in crew]
        tasks = [asyncio.create_task(r.go()) for r in running]
        await until(lambda: running[0].status.checkpoints >= 2)
        await cancelled(tasks)

    run(to_the_end_but_one())
    with pytest.raises(PeerError, match=r"stopped, or hangs, after round [23];"):
        peer_status.status()
    run(together(crew))
    with pytest.raises(PeerError, match=r"finished, with round 3\.$"):
        peer_status.status()
    with pytest.raises(RunError, match=r"No such file or directory.*Name another file\.$"):
        peer_commands.export("nowhere/model.safetensors")


def test_what_goes_on_going_wrong_is_logged_once(tmp_path: Path) -> None:
    """However long the words for it are."""
    contacts = PeerRuntime(given(tmp_path)[0]).links.contacts
    link = contacts.by_name["node-1"]
    for _ in range(3):
        contacts.trouble(link, "no route " * 100)
    for _ in range(3):
        contacts.disagree(link, "rounds: mine 3, theirs 4 " * 100)
    lines = (tmp_path / "node-0" / "run" / "log.jsonl").read_text()
    assert (lines.count('"trouble"'), lines.count('"disagreement"')) == (1, 1)

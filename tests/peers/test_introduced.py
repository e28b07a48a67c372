"""Peers that were introduced to each other: who comes and goes, what their commands say, and their records."""

import asyncio
import gc
import json
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import tomlkit
import torch

from coterie.app import peer_commands, peer_status
from coterie.engines.peer import free_ports
from coterie.errors import ConfigError, PeerError, Refused, RunError
from coterie.mail.pace import Timing
from coterie.net.identity import Home
from coterie.peers import deployment, founding, introductions
from coterie.peers.agreement import shared
from coterie.peers.introductions import Introduced
from coterie.peers.runtime import PeerConfig, PeerRuntime
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


def test_numbers_of_neighbours_are_kept_twice(tmp_path: Path) -> None:
    """The checkpoint says what it says of numbers: without them it would be of no use."""
    alice, _, carol = household(tmp_path)
    experiment, run = Experiment(**{**TINY, "engine": "peer"}), alice.path / "run"

    def numbers() -> tuple[dict[str, int], tuple[str, ...]]:
        found = deployment.peer_config(experiment, alice, None, None, 0, port=0, verbose=False)
        return found.numbers, found.warnings

    assert numbers() == ({"bob": 1}, ())
    alice.add(carol.card)
    alice.remove("bob")
    assert numbers() == ({"carol": 2}, ())
    files = [run / deployment.NUMBERS, run / deployment.NUMBERS_COPY]
    for path in files:
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        path.write_bytes(content)
        found, said = numbers()
        assert found == {"carol": 2}
        assert path == files[1] or "numbers.json is damaged" in said[0]
    for path in files:
        path.write_bytes(b"{")
    with pytest.raises(RunError, match=r"numbers.copy.json is damaged .*begin again"):
        numbers()


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


def test_whatever_is_wrong_with_cards_ends_nobody_and_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dangling link, a folder that cannot be listed for a while, and beside these a card that is removed."""
    monkeypatch.setattr(introductions, "GLANCE", 0.02)
    alice, bob, carol = household(tmp_path)
    alice.add(carol.card)
    experiment = Experiment(
        **{**TINY, "rounds": 100_000, "evaluate": 100_000, "engine": {"name": "peer", "wait": 30.0}}
    )
    neighbours = alice.path / "neighbours"
    (neighbours / "erin.peer").symlink_to(tmp_path / "nowhere")  # already at the start

    async def scene() -> None:
        lives: dict[str, list[PeerRuntime]] = {home.name: [] for home in (alice, bob, carol)}
        tasks = [asyncio.create_task(life(experiment, home, lives[home.name])) for home in (alice, bob, carol)]
        await until(lambda: lives["alice"] and lives["alice"][0].status.round >= 2)
        (neighbours / "dave.peer").symlink_to(tmp_path / "nowhere")
        listed = neighbours.rename(tmp_path / "elsewhere")
        await until(lambda: "cannot read" in log(alice))
        reached = lives["alice"][0].status.round
        await until(lambda: lives["alice"][0].status.round > reached + 3)
        assert list(lives["alice"][0].links.contacts.cards) == ["bob", "carol"]
        listed.rename(neighbours)
        alice.remove("bob")
        await until(lambda: len(lives["alice"]) == 2 and lives["alice"][1].status.round > reached + 6)
        assert list(lives["alice"][1].links.contacts.by_name) == ["carol"]
        assert not any(task.done() for task in tasks)
        await cancelled(tasks)

    run(scene(), 60)
    assert "dave.peer" in log(alice)
    assert log(alice).count("cannot use all cards") < 10  # what goes on being wrong is not said every time


def log(home: Home) -> str:
    return (home.path / deployment.RUN / "log.jsonl").read_text()


async def waiting_for_a_quorum(folder: Path) -> tuple[list[PeerRuntime], "list[asyncio.Task[Any]]"]:
    """Node 0 has heard node 1 and waits for a second model, which will not come."""
    crew = given(folder, {"introduced": True, "wait": 0.2, "timing": Timing(deadline=0.2, quorum=2)})
    running = [PeerRuntime(a) for a in crew[:2]]
    tasks = [asyncio.create_task(r.go()) for r in running]
    waiting = running[0].status
    await until(lambda: waiting.round == 1 and waiting.state == "waiting")
    await until(lambda: all(r.pace.neighbours[1 - i].alive for i, r in enumerate(running)))
    return running, tasks


def test_who_is_removed_while_a_quorum_is_waited_for_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introductions, "GLANCE", 0.02)

    async def scene() -> None:
        running, tasks = await waiting_for_a_quorum(tmp_path)
        running[0].config.home.remove("node-1")
        with pytest.raises(Introduced):
            await tasks[0]
        assert log(running[0].config.home).count("waiting for a quorum") == 1
        await cancelled(tasks)

    run(scene(), 60)


def test_who_is_removed_while_the_others_train_is_hung_up_on_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is a stranger from then on, though its certificate was known when the peer began to listen."""
    monkeypatch.setattr(introductions, "GLANCE", 0.02)
    crew = given(tmp_path, {"introduced": True}, rounds=100_000, evaluate=100_000)

    async def scene() -> None:
        running = [PeerRuntime(a) for a in crew]
        free, work = asyncio.Event(), running[0].node.work

        async def hang(what: Callable[[], Any]) -> Any:
            if running[0].status.round == 2:
                await free.wait()
            return await work(what)

        running[0].node.work = hang  # type: ignore[method-assign]
        tasks = [asyncio.create_task(r.go()) for r in running]
        await until(lambda: running[0].status.round == 2)
        served = running[0].links.contacts.by_name["node-1"]
        assert served.followers == 1
        crew[0].home.remove("node-1")
        await until(lambda: served.followers == served.streams == 0 and not served.status.alive)
        await until(lambda: not running[1].status.neighbours["node-0"].alive)
        await until(lambda: "you are not my neighbour" in running[1].status.neighbours["node-0"].last_error)
        assert running[0].status.round == 2
        assert running[0].status.neighbours["node-2"].alive  # which is served as before
        free.set()
        with pytest.raises(Introduced):
            await tasks[0]
        await cancelled(tasks)

    run(scene(), 60)


def test_whom_nobody_is_left_goes_on_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until there is a card again."""
    monkeypatch.setattr(introductions, "GLANCE", 0.02)
    crew = given(tmp_path, {"introduced": True}, nodes=2, rounds=100_000, evaluate=100_000)

    async def scene() -> None:
        running = [PeerRuntime(a) for a in crew]
        tasks = [asyncio.create_task(r.go()) for r in running]
        await until(lambda: running[0].status.round >= 2)
        crew[0].home.remove("node-1")
        await until(lambda: not running[0].status.neighbours["node-1"].alive)
        reached = running[0].status.round
        await until(lambda: running[0].status.round >= reached + 3)
        crew[0].home.add(crew[1].home.card)
        with pytest.raises(Introduced):
            await tasks[0]
        await cancelled(tasks)

    run(scene(), 60)


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


def test_a_peer_that_starts_again_holds_nothing_of_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data least of all, which lie in shared memory."""
    alice, *_ = household(tmp_path)
    (tmp_path / "my.toml").write_text(tomlkit.dumps({**TINY, "seeds": 0}))
    held: list[weakref.ref[Any]] = []

    def live(config: PeerConfig) -> pl.DataFrame:
        assert not [one for one in held if one() is not None]
        peer = PeerRuntime(config)
        held.append(weakref.ref(config.job.samples))
        if len(held) < 4:
            raise Introduced
        peer.node.score()
        return peer.keeper.record(0)

    monkeypatch.setattr(founding, "run", live)
    gc.disable()
    try:
        assert peer_commands.run(str(tmp_path / "my.toml"), home=str(alice.path)) == 0
    finally:
        gc.enable()
    assert len(held) == 4


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


def test_who_goes_wrong_all_day_fills_no_log(tmp_path: Path) -> None:
    """Whatever it says: a neighbour chooses the words of its greetings and receipts."""
    peer = PeerRuntime(given(tmp_path)[0])
    contacts = peer.links.contacts
    link = contacts.by_name["node-1"]
    for i in range(2000):
        contacts.refuse(link, Refused("shape", f"{i} numbers"))
        contacts.refuse(link, Refused("duplicate"))
        contacts.trouble(link, f"our message was refused: {i}")
        contacts.disagree(link, f"rounds: mine 3, theirs {i}")
    assert link.status.refusals == {"shape": 2000, "duplicate": 2000}
    lines = (tmp_path / "node-0" / "run" / "log.jsonl").read_text().splitlines()
    assert len(lines) < 50
    assert not any("times" in line for line in lines[:3])  # of what has happened once, as three of the four are told
    assert len(peer.status.errors) < 10


def test_who_comes_and_goes_or_is_odd_all_day_fills_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peer = PeerRuntime(given(tmp_path)[0])
    contacts, file = peer.links.contacts, tmp_path / "node-0" / "run" / "log.jsonl"
    link = contacts.by_name["node-1"]
    before = len(file.read_text().splitlines())
    for i in range(2000):
        contacts.alive(link, i % 2 == 0)
        contacts.missed(link.number)
        contacts.strange(link.number, f"its data size is now {i}")
        contacts.harmed([link.number], f"the loss is {i}")
    lines = file.read_text().splitlines()[before:]
    assert len({json.loads(line)["event"] for line in lines}) == 5
    assert len(lines) < 50
    assert len(capsys.readouterr().err.splitlines()) < 50
    assert link.status.missed == 2000  # which are counted all the same
    other = contacts.by_name["node-2"]
    contacts.strange(other.number, "another's oddity is news")
    assert "another's oddity" in file.read_text()

"""Every rule between real peers: sockets, keys and TLS on loopback give the simulator's numbers."""

import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import peering
from coterie.errors import ConfigError
from coterie.mail.pace import Timing
from coterie.network.graph import Graph
from coterie.node.bundles import NUMBER
from coterie.node.node import snapshot
from coterie.node.training import Trainer
from coterie.parts import names
from coterie.peers import runtime
from coterie.peers.runtime import PeerRuntime
from coterie.runs.experiment import Experiment
from driving import ENGINES, LIGHT, SMALL, Outcome, agree, brought_together, drive, own
from peering import peer_configs, together

PATIENT = Timing(deadline=60)
"""Nobody is given up: who waits in vain is found out by the count of missed deadlines, not by the clock."""

REMEMBERING = [own(n) for n in ("Velocity", "WholeVelocity", "RawVelocity", "Nostalgic")]
ANSWERING = [own(n) for n in ("SilentAnswers", "BrokenAnswers")]
RULES = [*names("rules"), *REMEMBERING, *ANSWERING, own("Broken")]

MIXED = [{"name": "mlp", "sizes": [8]}, {"name": "mlp", "sizes": [12]}]
BATCH_NORM = {"name": "cnn", "channels": [4], "kernel": 3, "norm": "batch"}
FIVE = [{"name": "mlp", "sizes": list(sizes)} for sizes in ((8,), (12, 6), (16,), (10, 10))] + [{"name": "logistic"}]
MUTUAL = {"name": "mutual", "epochs": 2}
WANDERING = {"protocol": {"name": "wandering", "lesson": MUTUAL}, "rule": "isolation", "model": FIVE, "nodes": 5}
DIRECTED = {"name": "er", "p": 0.5, "directed": True, "weights": "uniform", "connect": True}

WORLDS: dict[str, dict[str, Any]] = {
    "weights": {"topology": {"name": "er", "p": 0.6, "weights": "uniform", "connect": True}, "merge_first": True},
    "own weight": {"topology": {"name": "ring", "own": 0.25}, "model": BATCH_NORM, "merge_first": True},
    "more work": {"work": {2: 3}, "epochs": 1, "batches": None},
    "directed": {"topology": DIRECTED, "merge_first": True},
    "directed, failing": {"topology": DIRECTED, "links": 0.7},
    "answers, directed": {"topology": DIRECTED, "rule": "cfa_ge"},
    "answers, directed, failing": {"topology": DIRECTED, "rule": "cfa_ge", "links": 0.7, "presence": 0.8},
    "pairs": {"topology": "matching", "merge_first": True, "links": 0.8},
    "pairs, kept": {"topology": {"name": "matching", "mixing": "uniform"}, "rule": "median", "nodes": 5},
    "one hop a round": {"topology": "one_peer_exponential", "rule": "dechw"},
    "resampled, answers": {"topology": {"name": "resampled", "every": 2}, "rule": "cfa_ge"},
    "resampled, churn": {"topology": {"name": "resampled", "mixing": "metropolis"}, "joins": {4: 2}, "leaves": {0: 3}},
    "metropolis": {"topology": {"name": "ba", "mixing": "metropolis"}, "links": 0.7, "merge_first": True},
    "metropolis, batch norm": {"topology": {"name": "star", "mixing": "metropolis"}, "model": BATCH_NORM},
    "uniform": {"topology": {"name": "er", "p": 0.6, "weights": "uniform", "connect": True, "mixing": "uniform"}},
    "bursts": {"links": 0.6, "outage": 3.0, "presence": 0.8, "absence": 2.0},
    "churn": {"joins": {4: 2, 5: 3}, "leaves": {0: 3}, "merge_first": True},
    "churn, answers": {"joins": {1: 3}, "leaves": {2: 2}, "rule": "cfa_ge", "links": 0.8},
    "churn, aggregator": {"joins": {1: 2}, "leaves": {3: 3}, "protocol": "aggregator", "topology": "star"},
    "joined by those who join": {"topology": "line", "joins": {3: 3, 4: 3, 5: 3}, "nodes": 6},
    "gain": {"initialiser": "gain", "merge_first": True, "topology": "complete"},
    "two kinds of model": {"model": MIXED, "rule": "dechw", "topology": "complete"},
    "two kinds of model, kept": {"model": MIXED, "rule": "median", "topology": "complete"},
    "two kinds of model, answers": {"model": MIXED, "rule": "cfa_ge", "topology": "complete"},
    "batch norm": {"model": BATCH_NORM, "links": 0.7},
    "batch norm, merged first": {"model": BATCH_NORM, "merge_first": True},
    "kept optimiser": {"keep_optimiser": True, "optimiser": {"name": "adam", "lr": 0.01}, "lr": None},
    "early stopping": {"early_stopping": True, "epochs": 4, "batches": None, "lr": 0.8},
    "random virtual teacher": {"objective": {"name": "random_virtual_teacher", "low": 0.5}},
    "relay on a ring": {"protocol": "relay", "topology": "ring"},
    "relay on a line, failing": {"protocol": {"name": "relay", "ring": False}, "topology": "line", "links": 0.6},
    "aggregator": {"protocol": "aggregator", "topology": "star", "merge_first": True},
    "aggregator, failing": {"protocol": {"name": "aggregator", "hub": 1}, "links": 0.6, "presence": 0.8},
    "aggregator that leaves": {"protocol": "aggregator", "topology": "complete", "leaves": {0: 2}, "links": 0.8},
    "a lesson for two kinds": {
        "protocol": {"name": "aggregator", "lesson": own("Mutual"), "hub": 1},
        "topology": "complete",
        "model": MIXED,
    },
    "a lesson that spoils one": {"protocol": {"name": "aggregator", "lesson": own("Spoilt")}, "topology": "star"},
    "a protocol of one's own": {"protocol": own("Twice"), "links": 0.7},
    "anchors": {"protocol": LIGHT["desa"], "model": MIXED},
    "anchors, failing": {"protocol": LIGHT["desa"], "links": 0.6, "presence": 0.8},
    "anchors, directed": {"protocol": LIGHT["desa"], "topology": DIRECTED},
    "exercises of one's own": {"protocol": own("Meme"), "links": 0.7, "model": MIXED},
    "wandering, failing": {**WANDERING, "topology": "complete", "links": 0.6},
    "wandering, batch norm": {**WANDERING, "topology": "ring", "model": [BATCH_NORM, *FIVE[:2]]},
    "wandering, two hops": {
        **WANDERING,
        "protocol": {"name": "wandering", "lesson": MUTUAL, "hops": 2, "share": 0.8},
        "topology": "ring",
    },
    "wandering, churn": {**WANDERING, "joins": {3: 2, 4: 3}, "leaves": {0: 3}},
    "wandering, resampled": {**WANDERING, "topology": {"name": "resampled", "every": 2}},
    "wandering, informed": {**WANDERING, "protocol": {"name": "wandering", "lesson": "witnessed"}},
    "meetings": {**WANDERING, "protocol": {"name": "meetings", "lesson": MUTUAL, "senders": 2}, "links": 0.7},
    "meetings in pairs": {"protocol": {"name": "meetings", "lesson": "def_kt", "senders": 1}, "rule": "isolation"},
    "memes": {**WANDERING, "protocol": {"name": "fml", "meme": {"name": "mlp", "sizes": [4]}}, "links": 0.8},
}


class Peers:
    """A run of real peers in one event loop, and what came of it."""

    def __init__(self, folder: Path, timing: Timing = PATIENT, half: bool = False, **settings: Any) -> None:
        given = peer_configs(Experiment(**{**SMALL, **settings}), folder, timing=timing, half=half)
        self.running: list[PeerRuntime] = []

        async def look(running: list[PeerRuntime]) -> None:
            self.running = running

        draws = "fml" in str(settings.get("protocol"))  # its memes, when it first trains
        self.rows: pl.DataFrame = asyncio.run(asyncio.wait_for(together(given, look, in_turn=draws), 240))

    @property
    def missed(self) -> int:
        """How often somebody waited for a neighbour in vain."""
        return sum(n.missed for r in self.running for n in r.status.neighbours.values())

    @property
    def refusals(self) -> set[str]:
        return {reason for r in self.running for n in r.status.neighbours.values() for reason in n.refusals}

    @property
    def outcome(self) -> Outcome:
        found = [snapshot([peer.node]) for peer in self.running]
        return brought_together(found, {}, self.running[0].config.job)


def ids(name: str) -> str:
    return name.rpartition(":")[2]


def same(found: Peers, engine: str, **settings: Any) -> None:
    assert found.missed == 0
    assert found.refusals <= {"future", "duplicate", "past"}  # offered again, or already there
    agree(found.outcome, drive(engine, **settings))


@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_same_numbers(rule: str, tmp_path: Path) -> None:
    settings = {"rule": rule, "nodes": 4, "topology": "ring"}
    found = Peers(tmp_path, **settings)
    same(found, "memory", **settings)
    same(found, "loop", **settings)


@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_same_numbers_with_lost_links_and_absent_nodes(rule: str, tmp_path: Path) -> None:
    """Injected faults are computed by both ends: nobody waits for what will not come."""
    settings = {"rule": rule, "links": 0.6, "presence": 0.7, "merge_first": True, "nodes": 5}
    same(Peers(tmp_path, **settings), "memory", **settings)


@pytest.mark.parametrize("name", WORLDS)
def test_same_numbers_in_other_worlds(name: str, tmp_path: Path) -> None:
    same(Peers(tmp_path, **WORLDS[name]), "memory", **WORLDS[name])


LONER = Graph.from_edges(5, [(0, 1), (1, 2), (2, 0), (2, 3)], [0.5, 2.0, 1.0, 0.25])
"""Weighted; node 4 has no neighbour, node 3 has one."""
SOURCES = Graph.from_edges(5, [(0, 1), (1, 2), (2, 1), (0, 2), (3, 2), (3, 4)], directed=True)
"""Nodes 0 and 3 are heard but hear nobody: nothing but good manners keeps them from running ahead."""


@pytest.mark.parametrize("graph", [LONER, SOURCES], ids=["a loner", "sources"])
def test_same_numbers_where_some_hear_nobody(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"nodes": 5, "merge_first": True, "rule": "cfa"}
    wanted = drive("memory", graph=graph, **settings)
    monkeypatch.setattr(peering, "build", lambda *given: wanted.job)
    found = Peers(tmp_path, **settings)
    assert found.missed == 0
    agree(found.outcome, wanted)


def test_nobody_runs_ahead_or_skips_a_round_where_links_are_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node is slow, and in some rounds no message makes the others wait for it."""
    train = Trainer.train_row

    def slowly(trainer: Trainer, row: int, *given: Any, **more: Any) -> int:
        time.sleep(0.2 if trainer.nodes[row] == 1 else 0)
        return train(trainer, row, *given, **more)

    settings = {"nodes": 3, "topology": "line", "links": 0.4}
    wanted = drive("memory", rounds=5, **settings)
    monkeypatch.setattr(Trainer, "train_row", slowly)
    found = Peers(tmp_path, Timing(deadline=60, stretch=100), rounds=5, **settings)
    assert found.missed == 0
    agree(found.outcome, wanted)


def test_who_waits_for_a_neighbour_that_starts_late_skips_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node 1 is not waited for by node 0, to which its link is down, while it waits for node 2 to start."""
    monkeypatch.setattr(runtime, "LATE", 0.2)
    settings, seed = {"nodes": 3, "topology": "line", "links": 0.4}, 3
    wanted = drive("memory", seed=seed, **settings)
    graph = wanted.job.graph(1)
    up = np.stack([graph.sources, graph.targets], 1)[wanted.job.faults.active(graph, 1)]
    assert up.tolist() == [[2, 1], [1, 2]]
    crew = peer_configs(Experiment(**{**SMALL, **settings}), tmp_path, seed, timing=PATIENT)
    running = [PeerRuntime(a) for a in crew]

    async def scene() -> None:
        early = [asyncio.create_task(peer.go()) for peer in running[:2]]
        await asyncio.sleep(1.5)
        await asyncio.gather(*early, running[2].go())

    asyncio.run(asyncio.wait_for(scene(), 120))
    agree(brought_together([snapshot([peer.node]) for peer in running], {}, wanted.job), wanted)


def test_records_are_those_of_the_simulator(tmp_path: Path) -> None:
    """Every evaluated round and node; distances to others are not known to a peer."""
    settings = {**SMALL, "nodes": 4, "topology": "complete", "rule": "decdiff", "evaluate": 1, "merged": True}
    found = Peers(tmp_path, **settings)
    simulated = Experiment(**settings, engine=ENGINES["loop"]).run().records.sort("round", "node")
    same_columns = ["method", "seed", "round", "node", "batches", "sent_bytes", "received_bytes"]
    assert found.rows.select(same_columns).equals(simulated.select(same_columns))
    for name in ("test_accuracy", "test_loss", "merged_accuracy", "validation_accuracy", "validation_loss"):
        ours, theirs = found.rows[name].to_numpy(), simulated[name].to_numpy()
        np.testing.assert_allclose(ours, theirs, atol=0.01 if "accuracy" in name else 1e-3, err_msg=name)
    assert found.rows["staleness"].null_count() == found.rows.height
    for node, peer in enumerate(found.running):
        kept = pl.read_parquet(peer.config.folder / "records.parquet")
        assert kept.equals(found.rows.filter(pl.col("node") == node).sort("round"))


def test_five_architectures_learn_from_each_other_as_in_the_simulator(tmp_path: Path) -> None:
    """Accuracies are equal, and losses to float tolerance: of the present models and of the peaks, in every round."""
    settings = {**SMALL, **WANDERING, "topology": "complete", "rounds": 6, "evaluate": 1}
    found = Peers(tmp_path, **settings)
    assert found.missed == 0
    simulated = Experiment(**settings, engine=ENGINES["loop"]).run().records.sort("round", "node")
    same_columns = ["round", "node", "batches", "sent_bytes", "received_bytes"]
    assert found.rows.select(same_columns).equals(simulated.select(same_columns))
    for name in ("test_accuracy", "validation_accuracy", "peak_accuracy", "test_loss", "validation_loss"):
        ours, theirs = found.rows[name].to_numpy(), simulated[name].to_numpy()
        np.testing.assert_allclose(ours, theirs, atol=0 if "accuracy" in name else 1e-4, err_msg=name)
    assert found.rows["peak_accuracy"].drop_nulls().len() > 5


@pytest.mark.parametrize("rule", ["decavg", "dechw", "median", "cfa_ge"], ids=ids)
def test_half_precision_is_near_and_half_as_long(rule: str, tmp_path: Path) -> None:
    settings = {"rule": rule, "nodes": 4, "topology": "ring"}
    found, whole = Peers(tmp_path, half=True, **settings), drive("memory", **settings)
    assert found.missed == 0
    for node, row in found.outcome.models.items():
        torch.testing.assert_close(row, whole.models[node], rtol=0.02, atol=0.02)
        assert not torch.equal(row, whole.models[node])
    for name in ("sent_bytes", "received_bytes"):
        np.testing.assert_array_equal(2 * found.outcome.ledger[name], whole.ledger[name], err_msg=name)


def test_whole_numbers_travel_whole_in_half_precision(tmp_path: Path) -> None:
    """News and roles stand in headers, which know no half; of all bytes, only those of models are halved."""
    settings = {**WANDERING, "topology": "complete"}
    found, whole = Peers(tmp_path, half=True, **settings), drive("memory", **settings)
    assert found.missed == 0
    assert max(peer.node.counters["turn"] for peer in found.running) == 3  # the role wandered
    told = whole.job.protocol.tells(whole.job.roster.nodes)
    numbers = 3 * NUMBER * (5 * 4 * told["news"] + told["role"] + told["taken"])
    for name in ("sent_bytes", "received_bytes"):
        halved, models = found.outcome.ledger[name].sum(), whole.ledger[name].sum() - numbers
        assert halved == models / 2 + numbers, name


@pytest.mark.parametrize("rule", ["decavg", "dechw", "median", own("Velocity")], ids=ids)
def test_asynchronous_peers_learn(rule: str, tmp_path: Path) -> None:
    """Nobody waits, so numbers depend on the hour; but models get better, and how old they were is in the records."""
    settings = {"rule": rule, "nodes": 4, "topology": "complete", "rounds": 8, "batches": 12, "initialiser": "common"}
    settings |= {"partition": "iid", "total": 400}
    found = Peers(tmp_path, timing=Timing("async", discount=0.8), **settings, evaluate=1)
    assert found.rows["round"].max() == 8
    before, after = (found.rows.filter(pl.col("round") == r)["test_accuracy"].mean() for r in (0, 8))
    assert before < 0.2  # ten kinds of digits
    assert after > 0.35
    ages = found.rows["staleness"].drop_nulls()
    assert len(ages) > 0
    assert ages.min() >= 0
    assert found.rows["received_bytes"].max() > 0


@pytest.mark.parametrize("settings", [{"rule": "cfa_ge"}, {"protocol": LIGHT["desa"]}], ids=["answers", "exercises"])
def test_what_says_several_things_is_not_for_asynchronous_peers(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot run asynchronously"):
        Peers(tmp_path, timing=Timing("async"), **settings)


@pytest.mark.parametrize("protocol", ["wandering", "meetings", "fml"])
def test_meetings_of_a_round_are_not_for_asynchronous_peers(protocol: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"protocol {protocol} is for peers in the same round.*--engine\.mode sync"):
        Peers(tmp_path, timing=Timing("async"), protocol=protocol, rule="isolation")


def test_asynchronous_peers_share_no_round_and_so_no_network(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"different networks.*--engine\.mode sync"):
        Peers(tmp_path, timing=Timing("async"), topology="matching")


def test_seeds_differ(tmp_path: Path) -> None:
    settings = {**SMALL, "nodes": 3, "topology": "complete", "rounds": 1}
    rows = []
    for seed in (0, 1):
        given = peer_configs(Experiment(**settings, seeds=2), tmp_path / str(seed), seed)
        rows.append(asyncio.run(together(given)).drop("seed"))
    assert rows[0]["test_loss"].to_list() != rows[1]["test_loss"].to_list()

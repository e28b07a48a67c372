"""Relays in every engine: the paths that models take, what they are worth, and what becomes of them when nodes fail."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from coterie.errors import ConfigError
from coterie.job import Job
from coterie.runs.experiment import Experiment
from driving import Outcome, agree, drive, job, outcome, session

EPOCHS = {"epochs": 1, "batches": None, "validation": 0.0, "renew_optimiser": True, "momentum": 0.5}
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "continuous line": {"topology": "line", "protocol": {"name": "relay", "ring": False}},
    "continuous ring": {"topology": "ring", "protocol": "relay"},
    "aggregate line": {"topology": "line", "protocol": {"name": "relay", "ring": False, "aggregate": True}},
    "aggregate ring": {"topology": "ring", "protocol": {"name": "relay", "aggregate": True}},
    "star": {"topology": "star", "protocol": "aggregator", "rule": "decavg", "initialiser": "common"},
    "mesh": {"topology": "complete", "rule": "decavg", "initialiser": "common"},
}
ROLES: dict[str, dict[str, Any]] = {
    "a proxy": {"proxy": (1,)},
    "an idle node": {"idle": (1,), "path": (0, 2, 3, 4)},
    "a path": {"path": (3, 1, 0, 2, 4)},
    "another start": {"start": 2},
    "roles by round": {"roles": ("ttptt", "ptitt")},
}


def run(made: Job, engine: str = "loop", rounds: int = 1) -> Outcome:
    running = session(engine)
    running.begin(made)
    for number in range(1, rounds + 1):
        running.round(number, number == rounds)
    return outcome(running, made)


def alike(**settings: Any) -> Job:
    """Nodes that all hold the same samples."""
    made = job(**{**EPOCHS, "initialiser": "common", **settings})
    whole = np.sort(np.concatenate(made.roster.train))
    return replace(made, roster=replace(made.roster, train=(whole,) * made.roster.nodes))


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("engine", ["loop", "stack", "workers", "cluster"])
@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_same_numbers(deployment: str, engine: str, nodes: int) -> None:
    settings = {"rule": "handed", **EPOCHS, "nodes": nodes, "momentum": 0.0, **DEPLOYMENTS[deployment]}
    agree(drive(engine, rounds=2, **settings), drive("memory", rounds=2, **settings))


@pytest.mark.parametrize("engine", ["loop", "stack", "two", "cluster"])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("aggregate", [False, True])
def test_same_numbers_whatever_the_roles(role: str, engine: str, aggregate: bool) -> None:
    protocol = {"name": "relay", "aggregate": aggregate, **ROLES[role]}
    settings = {**EPOCHS, "nodes": 5, "topology": "complete", "rule": "handed", "protocol": protocol}
    settings["momentum"] = 0.5 * (engine != "stack")
    agree(drive(engine, rounds=2, **settings), drive("memory", rounds=2, **settings))


@pytest.mark.parametrize("engine", ["loop", "memory"])
@pytest.mark.parametrize(("ring", "models"), [(False, [3, 1, 1, 0]), (True, [3, 1, 1, 1])])
def test_every_hop_of_a_walk_through_the_hub_is_counted(engine: str, ring: bool, models: list[int]) -> None:
    """0 1 0 2 0 3, and on a ring 0 again."""
    protocol = {"name": "relay", "ring": ring, "through": True}
    found = drive(engine, rounds=1, nodes=4, topology="star", rule="isolation", protocol=protocol, **EPOCHS)
    size = 4 * found.models[0].numel()
    for what, expected in (("sent_bytes", models), ("received_bytes", [2 + ring, 1, 1, 1])):
        np.testing.assert_array_equal(found.ledger[what] // size, expected)
    assert (found.ledger["sent_bytes"] % size < 200).all()  # tokens and receipts


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("engine", ["loop", "memory"])
def test_where_all_hold_the_same_samples_the_way_through_does_not_matter(engine: str, through: bool) -> None:
    on = {"topology": "star", "protocol": {"name": "relay", "through": True}} if through else {"topology": "ring"}
    protocol = {"protocol": "relay", **on}
    found, plain = (
        run(alike(nodes=4, rule="isolation", **protocol), engine),
        run(alike(nodes=4, rule="isolation", topology="complete", protocol="relay"), engine),
    )
    torch.testing.assert_close(found.models[0], plain.models[0])


@pytest.mark.parametrize("engine", ["loop", "memory"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("topology", ["line", "ring"])
def test_a_walk_through_nodes_with_all_data_is_the_centralised_baseline(
    engine: str, momentum: float, topology: str
) -> None:
    rounds = 2 if topology == "ring" else 1
    protocol = {"name": "relay", "ring": topology == "ring"}
    walked = run(alike(nodes=4, topology=topology, protocol=protocol, momentum=momentum), engine, rounds)
    alone = run(alike(nodes=4, epochs=4 * rounds, rule="isolation", momentum=momentum), engine)
    last = 0 if topology == "ring" else 3
    assert torch.equal(walked.models[last], alone.models[0])
    assert not torch.equal(walked.models[1], alone.models[0])


@pytest.mark.parametrize("engine", ["loop", "memory"])
def test_a_schedule_goes_on_where_the_model_goes(engine: str) -> None:
    """Nobody warms up anew, and all agree on when it ends."""
    cosine = {"name": "cosine", "of": "sgd", "lr": 0.1, "floor": 0.01, "warmup": 2.5}
    settings = {"momentum": None, "optimiser": cosine}
    walked = run(alike(nodes=4, rounds=2, topology="ring", protocol="relay", **settings), engine, 2)
    alone = run(alike(nodes=4, rounds=1, epochs=8, rule="isolation", **settings), engine)
    assert torch.equal(walked.models[0], alone.models[0])


class TestAggregate:
    def starts(self, sizes: list[int], worth: list[float]) -> dict[int, float]:
        """Where nodes start, if each is trained to be `worth` so much: nobody trains, and rows are filled by hand."""
        made = job(
            **EPOCHS, nodes=4, topology="line", rule="handed", protocol=DEPLOYMENTS["aggregate line"]["protocol"]
        )
        own = tuple(np.arange(size) for size in [*sizes, 5])
        made = replace(made, roster=replace(made.roster, train=own))
        running, found = session("memory"), dict[int, float]()
        running.begin(made)
        trainer = running.peers[0].trainer  # type: ignore[attr-defined]

        def train_row(row: int, round: int, wanted: Any = None, turn: Any = None) -> int:
            found[row] = float(trainer.params[row, 0])
            trainer.params[row] = [*worth, 0.0][row]
            return 1

        trainer.train_row = train_row
        running.round(1, False)
        return found

    def test_numbers(self) -> None:
        """Trained models worth 1, 2, 4 of nodes with 10, 20, 30 samples: 5/3 and 3.2."""
        found = self.starts([10, 20, 30], [1.0, 2.0, 4.0])
        assert found[1] == pytest.approx(1)
        assert found[2] == pytest.approx(1.666667, abs=1e-6)
        assert found[3] == pytest.approx(3.2)

    @pytest.mark.parametrize("engine", ["loop", "memory"])
    def test_batch_norm_statistics_are_averaged_without_ones_own(self, engine: str) -> None:
        """Those of node 2, who only passes on, are those of nodes 0 and 1 by their data, however many it has itself."""
        model = {"name": "cnn", "channels": [4], "kernel": 3, "norm": "batch"}
        protocol = {"name": "relay", "ring": False, "aggregate": True, "proxy": (2,)}
        settings = {**EPOCHS, "nodes": 3, "topology": "line", "rule": "handed", "protocol": protocol, "model": model}
        found = drive(engine, rounds=1, **settings)
        s0, s1, _ = (len(own) for own in found.job.roster.train)
        torch.testing.assert_close(found.models[2], (s0 * found.models[0] + s1 * found.models[1]) / (s0 + s1))

    @pytest.mark.parametrize("engine", ["loop", "memory"])
    def test_two_models_travel(self, engine: str) -> None:
        found = {
            name: drive(engine, rounds=1, rule="handed", **EPOCHS, **DEPLOYMENTS[name])
            for name in ("continuous line", "aggregate line")
        }
        model = 4 * found["continuous line"].models[0].numel()
        sent = {name: (come.ledger["sent_bytes"] // model).tolist() for name, come in found.items()}
        assert sent == {"continuous line": [1, 1, 1, 1, 1, 0], "aggregate line": [1, 2, 2, 2, 2, 0]}


def holders(found: Outcome) -> list[int]:
    return [node for node, kept in found.counters.items() if kept["holds"]]


def turns(found: Outcome) -> int:
    return max(kept["turn"] for kept in found.counters.values())


class TestFaults:
    """Nothing is lost when nodes or links are gone: the walk goes past them, or goes on where it stopped."""

    FAULTS = ({"presence": 0.6}, {"links": 0.5}, {"links": 0.7, "outage": 3.0}, {"leaves": {2: 2}, "joins": {3: 2}})

    @pytest.mark.parametrize("aggregate", [False, True])
    @pytest.mark.parametrize("faults", FAULTS)
    @pytest.mark.parametrize("topology", ["ring", "complete"])
    def test_there_is_always_one_relay(self, topology: str, faults: dict[str, Any], aggregate: bool) -> None:
        protocol = {"name": "relay", "aggregate": aggregate, "reach": 4}
        settings = {**EPOCHS, **faults, "nodes": 5, "topology": topology, "rule": "handed"}
        made, progress = job(**settings, protocol=protocol), list[int]()
        running = session("loop")
        running.begin(made)
        for number in range(1, 9):
            running.round(number, number == 8)
            found = outcome(running, made)
            assert len(holders(found)) == 1
            progress.append(turns(found))
        assert progress == sorted(progress)
        assert progress[-1] > 8 if topology == "complete" else progress[-1] >= 1
        agree(found, drive("memory", rounds=8, **settings, protocol=protocol))

    @pytest.mark.parametrize("engine", ["loop", "memory"])
    def test_who_is_gone_is_skipped(self, engine: str) -> None:
        """Once node 2 has left, the others go on as a walk through them alone; each epoch counts."""
        settings = {**EPOCHS, "nodes": 5, "topology": "complete", "protocol": "relay"}
        whole, without = drive(engine, rounds=2, **settings), drive(engine, rounds=2, **settings, leaves={2: 2})
        assert (turns(whole), turns(without)) == (10, 9)
        assert without.counters[0]["epochs"] == 9
        assert holders(without) == [0]
        torch.testing.assert_close(without.models[1], whole.models[1])
        assert not torch.allclose(without.models[3], whole.models[3])

    @pytest.mark.parametrize("engine", ["loop", "memory"])
    def test_where_no_link_leads_past_the_gap_the_walk_stays(self, engine: str) -> None:
        """On a ring node 1 cannot reach node 3: it keeps the model, and says so in all rounds to come."""
        settings = {**EPOCHS, "nodes": 5, "topology": "ring", "protocol": "relay", "leaves": {2: 2}}
        found = drive(engine, rounds=3, **settings)
        assert holders(found) == [1]
        assert turns(found) == 7
        np.testing.assert_array_equal(found.ledger["batches"] > 0, True)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no path": ({"topology": "star", "protocol": "relay"}, "no ring through all nodes was found.*--topology ring"),
    "a path that is none": (
        {"topology": "line", "protocol": {"name": "relay", "path": [0, 2, 1], "ring": False}},
        "a link between nodes 0 and 2",
    ),
    "a node twice": ({"protocol": {"name": "relay", "path": [0, 1, 0]}}, "path names a node twice"),
    "no such node": ({"protocol": {"name": "relay", "path": [0, 9]}}, "nodes 0 to 5, got 9"),
    "nobody trains": ({"protocol": {"name": "relay", "proxy": [0, 1, 2, 3, 4, 5]}}, "no node trains"),
    "idle on the path": ({"protocol": {"name": "relay", "path": [0, 1], "idle": [1]}}, "node 1 is idle"),
    "names of peers": (
        {"protocol": {"name": "relay", "names": ["alice", "bob"]}},
        "got 6 nodes of one run.*protocol.path",
    ),
    "a first that leaves": ({"protocol": "relay", "leaves": {0: 2}, "topology": "ring"}, "always there"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_makes_no_sense_is_refused(case: str) -> None:
    settings, words = BAD[case]
    with pytest.raises(ConfigError, match=words):
        job(**settings)


class TestBudget:
    def epochs(self, **settings: Any) -> dict[str, int | None]:
        methods = ["continuous-linear", "aggregate-ring", "star", "mesh", "centralised"]
        made = Experiment(**{"methods": methods, "nodes": 5, "rounds": 10, **settings})
        return {name: method.epochs for name, method in made.resolved.items()}

    def test_it_is_shared_out(self) -> None:
        found = self.epochs(budget=500)
        assert list(found.values()) == [100, 50, 100, 100, 50]
        assert list(self.epochs(budget=503).values()) == [100, 50, 100, 100, 50]

    def test_less_than_an_epoch_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"at least 10, an epoch for each of 10 turns.*got 9.*--budget 10"):
            self.epochs(budget=9, methods=["aggregate-ring"])

    def test_it_excludes_epochs(self) -> None:
        with pytest.raises(ConfigError, match="epochs and budget exclude each other"):
            Experiment(epochs=3, budget=5)


def test_a_path_is_found_where_there_is_one() -> None:
    """A grid of 2 × 3 nodes is a ring, but not in the order of its nodes."""
    found = drive("loop", rounds=1, **EPOCHS, topology="grid", nodes=6, protocol="relay")
    assert turns(found) == 6
    assert len({tuple(row.tolist()) for row in found.models.values()}) == 5  # the first has the last one's model

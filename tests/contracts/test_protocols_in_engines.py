"""Every protocol in every engine; and that the contract is wide enough for answers, relays, lessons, mixed models."""

import functools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.errors import ConfigError, DivergedError
from coterie.parts import names
from coterie.runs.experiment import Experiment
from driving import LIGHT, Outcome, agree, drive, job, light, outcome, own, session

NETWORKS: dict[str, dict[str, Any]] = {
    "connected": {},
    "ring": {"topology": "ring"},
    "failing": {"links": 0.6, "presence": 0.8, "merge_first": True},
    "bursts": {"links": 0.6, "outage": 3.0, "presence": 0.8, "absence": 2.0, "merge_first": True},
    "churn": {"joins": {4: 2, 5: 3}, "leaves": {1: 3}, "links": 0.8, "merge_first": True},
    "directed": {"topology": {"name": "er", "p": 0.5, "directed": True, "connect": True}, "merge_first": True},
}
MIXED = [{"name": "mlp", "sizes": [16]}, {"name": "mlp", "sizes": [32]}]
PROTOCOLS = [*names("protocols"), own("Twice"), own("Meme")]


def ids(name: str) -> str:
    return name.rpartition(":")[2]


@functools.cache
def ran(engine: str, protocol: str, network: str) -> Outcome:
    return drive(engine, protocol=light(protocol), **NETWORKS[network])


@pytest.mark.parametrize(
    ("engine", "network"), [*(("loop", n) for n in NETWORKS), ("stack", "connected"), ("stack", "failing")]
)
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=ids)
def test_same_numbers(engine: str, protocol: str, network: str) -> None:
    agree(ran(engine, protocol, network), ran("memory", protocol, network))


@pytest.mark.parametrize("engine", ["workers", "cluster"])
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=ids)
def test_same_numbers_with_worker_processes(protocol: str, engine: str) -> None:
    agree(ran(engine, protocol, "failing"), ran("memory", protocol, "failing"))


@pytest.mark.parametrize("engine", ["loop", "cluster", "memory"])
def test_a_protocols_counters_are_kept_in_snapshots(engine: str) -> None:
    running, made = session(engine), job(protocol=own("Twice"))
    running.begin(made)
    running.round(1, False)
    middle = {k: v.clone() for k, v in running.snapshot().items()}
    assert {int(v) for k, v in middle.items() if k.startswith("counters/")} == {1}
    running.round(2, True)
    straight = outcome(running, made)
    running.begin(made)
    running.restore(middle)
    running.round(2, True)
    resumed = outcome(running, made)
    agree(resumed, straight, 0)
    counters = [int(v) for k, v in running.snapshot().items() if k.startswith("counters/")]
    assert counters == [2] * 6


class TestExercises:
    """What a node makes of its own data and of what it heard: notes, messages and a loss of its own."""

    @pytest.mark.parametrize("engine", ["loop", "workers", "cluster", "memory"])
    @pytest.mark.parametrize("protocol", [LIGHT["desa"], own("Meme")], ids=["desa", "meme"])
    def test_notes_are_kept_in_snapshots(self, engine: str, protocol: Any) -> None:
        running, made = session(engine), job(protocol=protocol, links=0.7)
        running.begin(made)
        running.round(1, False)
        middle = {k: v.clone() for k, v in running.snapshot().items()}
        assert sum("notes/" in name for name in middle) >= made.graph(1).nodes
        running.round(2, True)
        straight, whole = outcome(running, made), running.snapshot()
        whole = {k: v.clone() for k, v in whole.items() if "seconds" not in k}
        running.begin(made)
        running.restore(middle)
        running.round(2, True)
        agree(outcome(running, made), straight, 0)
        again = running.snapshot()
        assert {k for k in again if "seconds" not in k} == whole.keys()
        assert all(torch.equal(again[k], v) or v.isnan().any() for k, v in whole.items())

    @pytest.mark.parametrize("engine", ["loop", "workers", "cluster"])
    @pytest.mark.parametrize("protocol", [LIGHT["desa"], own("Meme")], ids=["desa", "meme"])
    def test_models_of_two_kinds(self, engine: str, protocol: Any) -> None:
        settings = {"protocol": protocol, "model": MIXED, "topology": "complete"}
        agree(drive(engine, **settings), drive("memory", **settings))

    @pytest.mark.parametrize("engine", ["loop", "memory"])
    def test_an_exercise_that_leaves_the_finite_numbers_is_named(self, engine: str) -> None:
        with pytest.raises(DivergedError, match=r"node \d"):
            drive(engine, protocol=own("Meme"), lr=1e30)


class TestAnswers:
    """CFA with gradient exchange: a message that differs for each neighbour."""

    def test_gradients_are_applied_a_round_later(self) -> None:
        """The rule itself in an engine: round 1 is CFA's, and round 2 differs by what was answered in round 1."""
        first = drive("memory", rule="cfa_ge", rounds=1)
        plain = drive("memory", rule="cfa", rounds=1)
        for node, row in first.models.items():
            torch.testing.assert_close(row, plain.models[node])
            assert first.state["g"][node].norm() > 0
        second = drive("memory", rule={"name": "cfa_ge", "step": 0.5}, rounds=2)
        assert not torch.allclose(second.models[0], drive("memory", rule="cfa", rounds=2).models[0], atol=1e-3)

    def test_gradient_is_of_the_neighbours_data_at_my_model(self) -> None:
        made = job(rule="cfa_ge")
        running = session("loop")
        running.begin(made)
        running.round(1, False)
        sums = running.snapshot()["0/state/g"] / 0.99
        trained = drive("loop", rule="isolation", rounds=1)
        (settings,) = Experiment(model={"name": "mlp", "sizes": [8]}).resolved.values()
        module = _module(settings)
        for node in range(made.graph(1).nodes):
            torch.nn.utils.vector_to_parameters(trained.models[node], module.parameters())
            wanted = torch.zeros_like(sums[node])
            for j in made.graph(1).neighbours(node).tolist():
                where = torch.as_tensor(made.roster.train[j][:100])
                loss = F.cross_entropy(module(made.samples.inputs(where)), made.samples.targets(where))
                wanted += torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(module.parameters()))])
            torch.testing.assert_close(sums[node], wanted, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("rule", ["cfa_ge", own("SilentAnswers"), own("BrokenAnswers")], ids=ids)
    @pytest.mark.parametrize("network", ["connected", "failing", "directed"])
    def test_same_numbers(self, rule: str, network: str) -> None:
        settings = {**NETWORKS[network], "rule": {"name": rule, "step": 0.1}}
        agree(drive("loop", **settings), drive("memory", **settings))

    @pytest.mark.parametrize("engine", ["stack", "workers", "cluster"])
    def test_same_numbers_stacked(self, engine: str) -> None:
        settings = {**NETWORKS["failing"], "rule": {"name": "cfa_ge", "step": 0.1}}
        agree(drive(engine, **settings), drive("memory", **settings))

    def test_answers_double_the_bytes(self) -> None:
        plain, answered = drive("loop", rule="cfa"), drive("loop", rule="cfa_ge")
        np.testing.assert_array_equal(answered.ledger["sent_bytes"], 2 * plain.ledger["sent_bytes"])
        np.testing.assert_array_equal(answered.ledger["received_bytes"], 2 * plain.ledger["received_bytes"])
        silent = drive("loop", rule=own("SilentAnswers"))
        np.testing.assert_array_equal(silent.ledger["sent_bytes"], plain.ledger["sent_bytes"])

    def test_an_answer_that_is_no_number_is_refused(self) -> None:
        found = drive("loop", rule=own("BrokenAnswers"), topology="complete", rounds=1)
        torch.testing.assert_close(found.state["g"][1], torch.full_like(found.state["g"][1], 0.99 * 4))
        torch.testing.assert_close(found.state["g"][0], torch.full_like(found.state["g"][0], 0.99 * 5))

    def test_only_those_alike_answer(self) -> None:
        settings = {"model": MIXED, "rule": "cfa_ge", "topology": "complete"}
        agree(drive("loop", **settings), drive("memory", **settings))


def _module(settings: Experiment) -> torch.nn.Module:
    from coterie.config.slots import choice

    module: torch.nn.Module = choice("model", settings.model).make()((1, 8, 8), 10)
    return module


class TestRelay:
    def protocol(self, topology: str) -> dict[str, Any]:
        return {"name": "relay", "ring": topology == "ring"}

    def walk(self, topology: str, rounds: int) -> dict[int, Tensor]:
        """The walk by hand, in plain PyTorch: a module, an optimiser, and the model handed on."""
        made = job(protocol=self.protocol(topology), topology=topology)
        running = session("memory")
        running.begin(made)  # for the starting models only
        models = outcome(running, made).models
        (settings,) = Experiment(model={"name": "mlp", "sizes": [8]}).resolved.values()
        module = _module(settings)
        for number in range(1, rounds + 1 if topology == "ring" else 2):
            for node in range(6):
                if node:
                    models[node] = models[node - 1].clone()
                torch.nn.utils.vector_to_parameters(models[node], module.parameters())
                optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
                for batch in made.roster.schedule(node, number):
                    x, y = made.samples.inputs(torch.as_tensor(batch)), made.samples.targets(torch.as_tensor(batch))
                    optimiser.zero_grad()
                    F.cross_entropy(module(x), y).backward()
                    optimiser.step()
                models[node] = torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone()
            if topology == "ring":
                models[0] = models[5].clone()
        return models

    @pytest.mark.parametrize("engine", ["loop", "memory"])
    @pytest.mark.parametrize("topology", ["line", "ring"])
    def test_walk(self, engine: str, topology: str) -> None:
        found, wanted = drive(engine, protocol=self.protocol(topology), topology=topology), self.walk(topology, 3)
        for node, row in found.models.items():
            torch.testing.assert_close(row, wanted[node], rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("engine", ["loop", "cluster", "memory"])
    def test_models_of_two_kinds_cannot_walk(self, engine: str) -> None:
        with pytest.raises(ConfigError, match="node 1 is handed a model of another architecture"):
            drive(engine, protocol="relay", topology="ring", model=MIXED)


class TestAggregator:
    @pytest.mark.parametrize("lesson", ["average", own("Mutual"), own("Backwards"), own("Spoilt")])
    @pytest.mark.parametrize("merge_first", [False, True])
    def test_models_of_two_kinds(self, lesson: str, merge_first: bool) -> None:
        settings = {
            "protocol": {"name": "aggregator", "lesson": lesson, "hub": 1},
            "topology": "complete",
            "model": MIXED,
            "merge_first": merge_first,
        }
        agree(drive("loop", **settings), drive("memory", **settings))

    def test_pupils_learn_from_each_other(self) -> None:
        """The divergence between models falls in a lesson, and all models take part in it, of both kinds."""
        settings = {"protocol": {"name": "aggregator", "lesson": own("Mutual")}, "topology": "star", "model": MIXED}
        taught = drive("loop", rounds=1, **settings)
        apart = drive("loop", rule="isolation", rounds=1, topology="star", model=MIXED)
        for node, row in taught.models.items():
            assert not torch.equal(row, apart.models[node])

    def test_a_spoilt_model_is_not_taken(self) -> None:
        settings = {"protocol": {"name": "aggregator", "lesson": own("Spoilt")}, "topology": "star"}
        assert drive("loop", **settings).models[2].isfinite().all()

    @pytest.mark.parametrize("engine", ["loop", "stack", "memory"])
    def test_fedavg_is_decavg_on_the_complete_graph(self, engine: str) -> None:
        server = drive(engine, protocol="aggregator", topology="star", initialiser="common")
        mesh = drive(engine, rule="decavg", topology="complete", initialiser="common")
        for node, row in server.models.items():
            torch.testing.assert_close(row, mesh.models[node], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(row, server.models[0])
        model = 4 * server.models[0].numel()
        np.testing.assert_array_equal(server.ledger["sent_bytes"], 3 * model * np.array([5, 1, 1, 1, 1, 1]))

    @pytest.mark.parametrize("engine", ["loop", "workers", "cluster", "memory"])
    def test_a_hub_that_does_not_train_leaves_its_own_model_aside(self, engine: str) -> None:
        """One leaf is a proxy, too, and one is idle: all but that one have the average of the three who trained."""
        settings = {"topology": "star", "initialiser": "common"}
        alone = drive(engine, rounds=1, **{**settings, "protocol": "neighbourhood", "rule": "isolation"})
        found = drive(engine, rounds=1, **settings, protocol={"name": "aggregator", "roles": ["ptttpi"]})
        sizes = {node: float(len(alone.job.roster.train[node])) for node in (1, 2, 3)}
        mean = sum(size * alone.models[node] for node, size in sizes.items()) / sum(sizes.values())
        for node in range(5):
            torch.testing.assert_close(found.models[node], mean, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(found.models[5], mean)
        np.testing.assert_array_equal(found.ledger["batches"] > 0, [False, True, True, True, False, False])

    @pytest.mark.parametrize("engine", ["loop", "memory"])
    def test_deputies_cost_nothing_while_the_hub_is_there(self, engine: str) -> None:
        settings = {"topology": "complete", "initialiser": "common"}
        some, none = (drive(engine, **settings, protocol={"name": "aggregator", "deputies": count}) for count in (3, 0))
        assert all(torch.equal(row, none.models[node]) for node, row in some.models.items())
        for what in ("sent_bytes", "received_bytes"):
            np.testing.assert_array_equal(some.ledger[what], none.ledger[what])

    @pytest.mark.parametrize("engine", ["loop", "memory"])
    def test_a_new_hub_averages_when_the_hub_is_gone(self, engine: str) -> None:
        """As DecAvg among those who are left, from the last global model."""
        settings = {"topology": "complete", "initialiser": "common", "leaves": {0: 2}}
        server = drive(engine, protocol="aggregator", **settings)
        mesh = drive(engine, rule="decavg", **settings)
        alone = drive(engine, protocol="aggregator", **{**settings, "topology": "star"})
        for node in range(1, 6):
            torch.testing.assert_close(server.models[node], mesh.models[node], rtol=1e-4, atol=1e-5)
            assert not torch.allclose(alone.models[node], server.models[node])

    @pytest.mark.parametrize("faults", [{"presence": 0.5}, {"links": 0.5}, {"presence": 0.6, "absence": 2.0}])
    def test_engines_agree_on_who_is_the_hub(self, faults: dict[str, Any]) -> None:
        settings = {"protocol": {"name": "aggregator", "hub": 4}, "topology": "complete", "merge_first": True}
        agree(drive("loop", rounds=5, **settings, **faults), drive("memory", rounds=5, **settings, **faults))

    def test_the_preset_is_the_same(self) -> None:
        both = Experiment(methods={"fedavg": {"use": "fedavg"}, "mesh": {"use": "decavg", "topology": "complete"}})
        assert both.resolved["fedavg"].protocol["name"] == "aggregator"  # type: ignore[index]
        assert both.resolved["fedavg"].initialiser["name"] == both.resolved["mesh"].initialiser["name"] == "common"  # type: ignore[index]


@pytest.mark.parametrize(
    ("rule", "engine"),
    [("cfa", "loop"), ("dechw", "stack"), ("median", "loop"), ("cfa", "cluster"), ("dechw", "cluster")],
)
def test_neighbours_of_another_kind_are_not_merged(rule: str, engine: str) -> None:
    settings = {"model": MIXED, "rule": rule, "topology": "complete"}
    agree(drive(engine, **settings), drive("memory", **settings))


def test_models_listed_twice_are_of_one_kind() -> None:
    """Four of one kind and two of the other: equal models merge wherever they stand in the list."""
    settings = {"model": [MIXED[0], MIXED[1], MIXED[0]], "topology": "complete"}
    found = drive("loop", **settings)
    agree(found, drive("memory", **settings))
    for node in (2, 3, 5):
        torch.testing.assert_close(found.models[0], found.models[node])

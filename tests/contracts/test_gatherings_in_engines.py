"""Meetings around an aggregator in every engine: models of several kinds, faults, and what is kept in between."""

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from coterie.engines import Session
from coterie.network.graph import Graph
from coterie.node import node as peer
from coterie.node.evaluation import score
from coterie.parts import find, names
from driving import LIGHT, Outcome, agree, drive, job, outcome, own, session

LONER = Graph.from_edges(6, [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)])
"""Node 5 has no neighbour."""
LONE_LOWEST = Graph.from_edges(6, [(1, 2), (2, 3), (3, 4), (4, 5)])
SOURCES = Graph.from_edges(6, [(0, 1), (1, 2), (2, 1), (0, 2), (3, 2), (3, 4), (4, 5), (5, 4)], directed=True)
"""Node 0 hears nobody."""

KINDS: dict[str, dict[str, Any]] = {
    "three architectures": {"model": [{"name": "mlp", "sizes": [8]}, {"name": "mlp", "sizes": [6, 5]}, "logistic"]},
    "batch norm": {
        "model": [{"name": "cnn", "channels": [c], "kernel": 3, "norm": "batch"} for c in (3, 4)],
        "links": 0.8,
    },
    "dropout": {"model": [own("dropout"), {"name": "mlp", "sizes": [8]}], "presence": 0.8},
    "changing": {"topology": {"name": "resampled", "every": 1}, "model": ["logistic", own("scaled")]},
    "pairs of neighbours": {"topology": "matching"},
    "few samples": {"partition": {"name": "iid"}, "total": 14, "validation": 0.0, "batch_size": 4},
    "one class each": {"partition": {"name": "labels", "k": 1}, "total": 120},
    "with a loner": {"graph": LONER},
    "the lowest alone": {"graph": LONE_LOWEST, "links": 0.9},
    "with sources": {"graph": SOURCES},
    "one node": {"nodes": 1, "topology": "complete"},
    "the lowest joins late": {"joins": {0: 3, 4: 2}, "leaves": {1: 4}},
}
PROTOCOLS: dict[str, dict[str, Any]] = {
    **{name: LIGHT[name] for name in ("wandering", "meetings", "mentors", "fml")},
    "two hops": {**LIGHT["wandering"], "hops": 2, "share": 0.6},
    "fixed": {**LIGHT["wandering"], "walks": False, "share": 1.0},
    "averages": {"name": "wandering", "lesson": "average"},
    "pairs": {"name": "meetings", "lesson": "average", "senders": 1, "groups": 2},
}


@functools.cache
def ran(engine: str, protocol: str, kind: str) -> Outcome:
    return drive(engine, rounds=4, protocol=PROTOCOLS[protocol], **KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_same_numbers(protocol: str, kind: str) -> None:
    agree(ran("loop", protocol, kind), ran("memory", protocol, kind))


@pytest.mark.parametrize("kind", ["three architectures", "batch norm", "dropout", "changing"])
@pytest.mark.parametrize("protocol", ["wandering", "meetings", "fml"])
def test_same_numbers_with_worker_processes(protocol: str, kind: str) -> None:
    agree(ran("two", protocol, kind), ran("memory", protocol, kind))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_same_numbers_stacked(protocol: str) -> None:
    agree(ran("stack", protocol, "three architectures"), ran("memory", protocol, "three architectures"))


@functools.cache
def taught(engine: str, lesson: str) -> Outcome:
    """What came of a lesson where links and nodes fail; of two widths of one model, unless it wants one."""
    choice = {"name": lesson} | ({"epochs": 1} if "epochs" in find("lessons", lesson).parameters else {})
    widths = [[8, 6]] if lesson == "def_kt" else [[8, 6], [4, 3]]
    models = [{"name": "mlp", "sizes": sizes} for sizes in widths]
    protocol = {"name": "wandering", "lesson": choice, "patience": 3, "share": 0.6}
    faults = {"links": 0.8, "presence": 0.8, "topology": "complete"}
    return drive(engine, rounds=4, protocol=protocol, model=models, objective="wsm", initialiser="common", **faults)


@pytest.mark.parametrize("lesson", names("lessons"))
@pytest.mark.parametrize("engine", ["loop", "two", "stack"])
def test_every_lesson_is_the_same_where_links_and_nodes_fail(engine: str, lesson: str) -> None:
    found = taught("memory", lesson)
    agree(taught(engine, lesson), found)
    assert found.ledger["sent_bytes"].max() > 4 * min(row.numel() for row in found.models.values())  # they have met


def kept(running: Session) -> dict[str, Tensor]:
    """All that a session would write into a checkpoint, but for what it took of time."""
    return {name: tensor.clone() for name, tensor in running.snapshot().items() if "seconds" not in name}


@pytest.mark.parametrize("engine", ["loop", "workers", "memory"])
@pytest.mark.parametrize("protocol", ["wandering", "meetings", "fml", "two hops", "fixed"])
def test_a_run_that_is_resumed_in_the_middle_of_a_cycle_is_the_same(engine: str, protocol: str) -> None:
    """Models, peaks, counters and ledger, to the last bit."""
    lesson = {"name": "mutual", "epochs": 1, "period": 4, "growth": 2}
    followed = PROTOCOLS[protocol] if protocol == "fml" else {**PROTOCOLS[protocol], "lesson": lesson}
    running, made = session(engine), job(protocol=followed, links=0.8, rounds=7)
    running.begin(made)
    running.evaluate()
    for number in range(1, 4):
        running.round(number, number != 2)
    middle = {name: tensor.clone() for name, tensor in running.snapshot().items()}
    assert protocol == "meetings" or any(int(v) for k, v in middle.items() if k.endswith("/turn"))
    assert any("notes/" in name for name in middle)
    for number in range(4, 8):
        running.round(number, number != 6)
    straight = kept(running)
    running.begin(made)
    running.restore(middle)
    for number in range(4, 8):
        running.round(number, number != 6)
    resumed = kept(running)
    assert resumed.keys() == straight.keys()
    for name, tensor in straight.items():
        assert torch.equal(resumed[name].nan_to_num(-1.0), tensor.nan_to_num(-1.0)), name


@pytest.mark.parametrize("engine", ["loop", "memory"])
class TestWhoTakesPart:
    def test_those_who_meet_train_and_no_others(self, engine: str) -> None:
        """One aggregator and half of the nodes, so many as it has neighbours."""
        found = drive(engine, rounds=1, protocol=LIGHT["wandering"], topology="complete")
        assert (found.ledger["batches"] > 0).sum() == 4
        found = drive(engine, rounds=1, protocol=LIGHT["wandering"], topology="ring")
        assert (found.ledger["batches"] > 0).sum() == 3
        found = drive(engine, rounds=1, protocol={**LIGHT["wandering"], "senders": 1}, topology="ring")
        assert (found.ledger["batches"] > 0).sum() == 2
        found = drive(engine, rounds=1, protocol={**LIGHT["wandering"], "hops": 3, "share": 1.0}, topology="ring")
        assert (found.ledger["batches"] > 0).sum() == 6

    def test_bytes_of_every_hop_are_counted(self, engine: str) -> None:
        """On a line with its end as the aggregator a model travels as many links as its node is away, and back."""
        settings = {"topology": "line", "rounds": 1, "nodes": 4}
        plain = {"name": "wandering", "lesson": "average", "share": 1.0, "walks": False}
        found = drive(engine, protocol={**plain, "hops": 3}, **settings)
        model = 4 * found.models[0].numel()
        news = 6 * 8 * np.array([1, 2, 2, 1])
        calls = 4 * 8 * np.array([2, 2 * 2, 2, 0])  # the aggregator and its neighbour in both steps, the next in one
        passed = model * np.array([3, 3 + 2, 2 + 1, 1])
        np.testing.assert_array_equal(found.ledger["sent_bytes"], news + calls + passed)

    def test_mentors_send_half_of_what_a_meeting_would(self, engine: str) -> None:
        """Each model goes to both neighbours and none comes back; all have learnt then, each from what it heard."""
        found = drive(engine, rounds=1, protocol=LIGHT["mentors"], topology="ring")
        model = 4 * found.models[0].numel()
        np.testing.assert_array_equal(found.ledger["sent_bytes"], 2 * model)
        np.testing.assert_array_equal(found.ledger["received_bytes"], 2 * model)
        assert {node for node, noted in found.notes.items() if "peak" in noted} == {*range(6)}

    def test_what_is_measured_is_the_model_at_the_end_of_the_round(self, engine: str) -> None:
        """Also of those who took no part; peaks are there where a model has come home."""
        found = drive(engine, rounds=2, protocol=LIGHT["wandering"], topology="complete")
        ledger = found.ledger
        np.testing.assert_array_equal(ledger["test_accuracy"], ledger["merged_accuracy"])
        assert np.isfinite(ledger["test_accuracy"]).all()
        home = {node for node, noted in found.notes.items() if "peak" in noted}
        assert {*np.flatnonzero(np.isfinite(ledger["peak_accuracy"])).tolist()} == home
        assert 4 <= len(home) <= 6


def test_distances_of_those_who_took_no_part_are_new() -> None:
    """They move from their neighbours' mean when the neighbours move."""
    settings = {"protocol": {"name": "wandering", "lesson": "average", "senders": 1}, "topology": "complete"}
    running, made = session("loop"), job(**settings)
    running.begin(made)
    running.evaluate()
    before = outcome(running, made)
    running.round(1, True)
    after = outcome(running, made)
    still = np.flatnonzero(after.ledger["batches"] == 0)
    assert len(still) == 4
    for node in still:
        assert torch.equal(before.models[node], after.models[node])
        mean = torch.stack([row for n, row in after.models.items() if n != node]).mean(0)
        wanted = float((after.models[node] - mean).norm())
        np.testing.assert_allclose(after.ledger["neighbourhood_distance"][node], wanted, rtol=1e-4)


def test_models_that_did_not_change_are_not_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    running, made = session("memory"), job(protocol={**LIGHT["wandering"], "senders": 1}, topology="complete")
    running.begin(made)
    running.evaluate()
    judged: list[int] = []

    def noted(models: Any, rows: Any, *rest: Any) -> Any:
        judged.extend(models.nodes[rows].tolist())
        return score(models, rows, *rest)

    monkeypatch.setattr(peer, "score", noted)
    running.round(1, True)
    ledger = outcome(running, made).ledger
    assert {*judged} == {*np.flatnonzero(ledger["batches"]).tolist()}
    assert len({*judged}) == 2
    assert np.isfinite(ledger["test_accuracy"]).all()

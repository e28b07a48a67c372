"""Every rule in every engine: the same numbers, whatever the network does."""

import functools
from typing import Any

import numpy as np
import pytest
import torch

from coterie.network.graph import Graph
from coterie.parts import find, names
from driving import Outcome, agree, drive, own

LONER = Graph.from_edges(6, [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)], [0.5, 2.0, 1.0, 0.25, 1.0])
"""Weighted; node 5 has no neighbour, node 4 has one."""
SOURCES = Graph.from_edges(6, [(0, 1), (1, 2), (2, 1), (0, 2), (3, 2), (3, 4), (4, 5), (5, 4)], directed=True)
"""Nodes 0 and 3 are heard but hear nobody."""

NETWORKS: dict[str, dict[str, Any]] = {
    "failing": {"links": 0.6, "presence": 0.7, "merge_first": True},
    "churn": {"joins": {4: 2, 5: 3}, "leaves": {0: 3}, "links": 0.8, "outage": 2.0, "merge_first": True},
    "directed": {"topology": {"name": "er", "p": 0.5, "directed": True, "weights": "uniform", "connect": True}},
    "with sources": {"graph": SOURCES, "merge_first": True, "links": 0.8},
    "with a loner": {"graph": LONER, "merge_first": True},
    "pairs": {"topology": "matching", "merge_first": True, "links": 0.8, "outage": 2.0},
    "uniform, resampled": {"topology": {"name": "resampled", "every": 2, "mixing": "uniform"}},
    "own weight": {"topology": {"name": "er", "p": 0.6, "weights": "uniform", "own": 3.0}, "links": 0.8},
    "more work": {"work": {1: 3, 4: 2}, "epochs": 1, "batches": None, "merge_first": True},
    "metropolis, failing": {"topology": {"name": "ba", "mixing": "metropolis"}, "links": 0.6, "presence": 0.9},
}

MEMORIES = [own(n) for n in ("Velocity", "WholeVelocity", "RawVelocity", "Nostalgic")]
WHOLE = [n for n in names("rules") if find("rules", n).target.span == "coordinate"]  # type: ignore[attr-defined]


@functools.cache
def ran(engine: str, rule: str, network: str) -> Outcome:
    return drive(engine, rule=rule, **NETWORKS[network])


def ids(name: str) -> str:
    return name.rpartition(":")[2]


@pytest.mark.parametrize(
    ("engine", "network"), [*(("loop", n) for n in NETWORKS), ("stack", "failing"), ("stack", "directed")]
)
@pytest.mark.parametrize("rule", [*names("rules"), *MEMORIES], ids=ids)
def test_same_numbers(engine: str, rule: str, network: str) -> None:
    agree(ran(engine, rule, network), ran("memory", rule, network))


@pytest.mark.parametrize("engine", ["loop", "cluster"])
@pytest.mark.parametrize("rule", [n for n in names("rules") if find("rules", n).target.robust])  # type: ignore[attr-defined]
def test_same_statistics(engine: str, rule: str) -> None:
    """Of batch norm: rules that bear liars merge these, too."""
    world = NETWORKS["failing"] | {"model": {"name": "cnn", "channels": [4], "kernel": 3, "norm": "batch"}}
    agree(drive(engine, rule=rule, **world), drive("memory", rule=rule, **world))


@pytest.mark.parametrize("engine", ["workers", "cluster"])
@pytest.mark.parametrize("network", ["failing", "pairs", "metropolis, failing"])
@pytest.mark.parametrize("rule", [*names("rules"), *MEMORIES], ids=ids)
def test_same_numbers_with_worker_processes(rule: str, network: str, engine: str) -> None:
    agree(ran(engine, rule, network), ran("memory", rule, network))


@pytest.mark.parametrize(
    "network", ["churn", "directed", "with sources", "with a loner", "uniform, resampled", "own weight"]
)
@pytest.mark.parametrize("rule", ["decavg", "dechw", "decdiff"])
def test_same_numbers_in_a_cluster(rule: str, network: str) -> None:
    agree(ran("cluster", rule, network), ran("memory", rule, network))


@pytest.mark.parametrize("engine", ["loop", "stack", "workers", "cluster", "memory"])
def test_nodes_know_how_many_they_hear_in_this_round(engine: str) -> None:
    """Five nodes in pairs: in each round another one is alone, and everyone counts its own partners so far."""
    found = drive(engine, rule=own("Counting"), nodes=5, topology="matching", rounds=4)
    wanted = sum(found.job.graph(number).degree for number in range(1, 5))
    assert [int(found.state["met"][i]) for i in range(5)] == wanted.tolist()


@pytest.mark.parametrize("rule", [n for n in names("rules") if n not in ("isolation", "median", "trimmed_mean")])
def test_by_data_is_uniform_where_everyone_has_as_much(rule: str) -> None:
    settings: dict[str, Any] = {"rule": rule, "partition": "iid", "total": 300, "links": 0.8}
    by_data, alike = (drive("loop", **settings, topology={"name": "ring", "mixing": m}) for m in ("data", "uniform"))
    assert len({len(own) for own in by_data.job.roster.train}) == 1
    agree(alike, by_data, tolerance=1e-6)


@pytest.mark.parametrize("mixing", ["uniform", "metropolis"])
def test_mixing_is_not_by_data_where_some_have_more(mixing: str) -> None:
    by_data, other = (drive("loop", topology={"name": "ba", "mixing": m}) for m in ("data", mixing))
    assert len({len(own) for own in by_data.job.roster.train}) > 1
    assert not torch.allclose(by_data.models[0], other.models[0], rtol=1e-3)


@pytest.mark.parametrize("network", ["failing", "directed"])
@pytest.mark.parametrize("rule", WHOLE)
def test_by_rows_and_by_columns(rule: str, network: str) -> None:
    agree(ran("loop", own(f"Whole_{rule}"), network), ran("loop", rule, network))


@pytest.mark.parametrize("rule", names("rules"))
@pytest.mark.parametrize("engine", ["stack", "memory"])
def test_a_node_that_hears_nobody_only_trains(engine: str, rule: str) -> None:
    alone = ran(engine, "isolation", "with a loner")
    assert torch.equal(ran(engine, rule, "with a loner").models[5], alone.models[5])
    if rule != "isolation":
        assert not torch.equal(ran(engine, rule, "with a loner").models[0], alone.models[0])


@pytest.mark.parametrize("engine", ["loop", "stack", "workers", "cluster", "memory"])
def test_numbers_that_are_none_are_refused(engine: str) -> None:
    """Neighbours of the node that sends them merge what the others say, as if its links were down."""
    found = drive(engine, rule=own("Broken"))
    for row in found.models.values():
        assert row.isfinite().all()
    graph = found.job.graph(1)
    model = 4 * (64 * 8 + 8 + 8 * 10 + 10)
    sends = np.array([0 if i == 0 else len(graph.audience(i)) for i in range(6)])
    np.testing.assert_array_equal(found.ledger["sent_bytes"], 3 * model * sends)
    hears = np.array([(graph.neighbours(i) != 0).sum() for i in range(6)])
    np.testing.assert_array_equal(found.ledger["received_bytes"], 3 * model * hears)
    agree(found, drive("memory", rule=own("Broken")))


@pytest.mark.parametrize("rule", ["decavg", "dechw"])
def test_seeds_differ_and_repeat(rule: str) -> None:
    first = drive("loop", rule=rule, rounds=1)
    again, other = drive("loop", rule=rule, rounds=1), drive("loop", rule=rule, rounds=1, seed=1)
    for node, row in first.models.items():
        assert torch.equal(row, again.models[node])
        assert not torch.equal(row, other.models[node])


def test_links_that_are_up_carry_models_both_ways() -> None:
    """What is sent is what the graph's own account of the faults says."""
    found, rounds = ran("loop", "decavg", "failing"), 3
    job = found.job
    model = 4 * found.models[0].numel()
    sent = np.zeros(6)
    for number in range(1, rounds + 1):
        up = job.graph(1).active(0, number, 0.6, 0.7)
        sent += np.bincount(job.graph(1).sources[up], minlength=6) * (2 if number == 1 else 1)  # two exchanges at first
    np.testing.assert_array_equal(found.ledger["sent_bytes"], model * sent)

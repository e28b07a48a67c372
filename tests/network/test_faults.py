"""Failing networks: bursts as theory has them, nodes that come and go, and what records say of it."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from coterie.app.cli import main
from coterie.config.configuration import read
from coterie.errors import ConfigError
from coterie.network.estimates import under_outages
from coterie.network.faults import Faults
from coterie.network.graph import Graph
from coterie.report.statistics import summary
from coterie.runs import runner
from coterie.runs.experiment import Experiment
from coterie.runs.gossip import estimates, survey
from driving import drive, job, session
from small import assert_same, interrupted, small

RING = Graph.from_edges(400, [(i, (i + 1) % 400) for i in range(400)])
CHURN: dict[str, Any] = {"joins": {4: 3, 5: 2}, "leaves": {0: 4}}


@pytest.mark.parametrize(("chance", "length"), [(0.7, 5.0), (0.5, 2.0), (0.9, 20.0)])
def test_bursts_have_their_availability_and_length(chance: float, length: float) -> None:
    faults = Faults(3, links=chance, outage=length)
    up = np.array([faults.active(RING, t) for t in range(600)])[:, RING.sources < RING.targets]
    # 400 chains of 600 rounds, correlated over about `length` of them
    assert up.mean() == pytest.approx(chance, abs=4 * np.sqrt(length * chance * (1 - chance) / up.size * 2))
    ended = up[1:][~up[:-1]]  # of those that were down in a round, in the next
    assert 1 / ended.mean() == pytest.approx(length, rel=4 / np.sqrt(ended.sum()))
    began = ~up[1:][up[:-1]]
    assert began.mean() == pytest.approx((1 / chance - 1) / length, rel=4 / np.sqrt(began.sum()))


def test_a_round_can_be_asked_for_in_any_order() -> None:
    straight = Faults(1, links=0.6, presence=0.8, outage=6, absence=9)
    wanted = [straight.active(RING, t) for t in range(50)]
    for t in (49, 7, 8, 30):
        assert np.array_equal(RING.active(1, t, 0.6, 0.8, 6, 9), wanted[t])
        assert np.array_equal(straight.active(RING, t), wanted[t])


def test_the_state_of_a_link_depends_on_its_ends_alone() -> None:
    """A link's state depends on its ends alone, not on what else is in the network."""
    whole = Faults(2, links=0.5, outage=4).active(RING, 40)
    pair = Graph.from_edges(400, [(7, 8)])
    state = {(int(a), int(b)): bool(u) for a, b, u in zip(RING.sources, RING.targets, whole, strict=True)}
    assert Faults(2, links=0.5, outage=4).active(pair, 40).tolist() == [state[7, 8], state[8, 7]]
    assert state[7, 8] == state[8, 7]


def test_shortest_bursts_are_independent_rounds() -> None:
    up = np.array([Faults(0, links=0.5, outage=2).active(RING, t) for t in range(200)])
    assert np.corrcoef(up[:-1].ravel(), up[1:].ravel())[0, 1] == pytest.approx(0, abs=0.02)


def test_the_gain_under_bursts_can_be_measured() -> None:
    graph = Graph.from_edges(30, [(i, (i + d) % 30) for i in range(30) for d in (1, 2, 3)])
    plain, doubt = under_outages(graph, 0.5, rounds=3000)
    bursts, more = under_outages(graph, 0.5, outage=20, rounds=3000)
    assert bursts != plain
    assert bursts == pytest.approx(plain, rel=0.02)
    assert bursts + 3 * more < graph.gain(links=0.5)  # which counts no fluctuations
    assert more > doubt  # rounds that depend on one another tell less


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"links": 0.5, "outage": 1.5}, ["outage", "at least 2 rounds", "1.5"]),
        ({"presence": 0.25, "absence": 3}, ["absence", "at least 4 rounds"]),
        ({"outage": 3}, ["outage: nothing fails", "links below 1"]),
        ({"outage": 0.5}, ["outage", "greater than or equal to 1"]),
        ({"joins": {20: 3}}, ["joins", "0 to 5", "got 20"]),
        ({"leaves": "3-7:4"}, ["leaves", "0 to 5", "got 6"]),
        ({"joins": {1: 0}}, ["node 1", "at least 1"]),
        ({"joins": {1: 5}, "leaves": {1: 5}}, ["node 1 leaves before", "round 6 or later"]),
        ({"leaves": {1: 1}}, ["node 1 leaves before"]),
        ({"joins": "0-5:3"}, ["nobody is there in round 1"]),
        ({"leaves": "0-5:3"}, ["nobody is there in round 3"]),
        ({"joins": "2"}, ["joins", "18:10,19:30"]),
        ({"joins": "x:2"}, ["joins"]),
    ],
)
def test_impossible_outages_joins_and_leaves_are_refused(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        small(**settings)
    for word in words:
        assert word in str(error.value)


def test_joins_and_leaves_from_text_tables_files_and_methods(tmp_path: Path) -> None:
    by_table = small(joins={4: 3, 5: 3}, leaves={0: 4}, links=0.5, outage=4)
    assert small(joins="4-5:3", leaves="0:4", links=0.5, outage=4).joins == by_table.joins
    (tmp_path / "x.toml").write_text(by_table.to_toml())
    assert Experiment(**read(tmp_path / "x.toml")) == by_table
    mixed = small(joins={4: 3}, methods={"one": {"joins": {5: 2}}, "two": {"use": "decavg", "joins": {}}})
    assert mixed.resolved["one"].joins == {5: 2}
    assert mixed.run(tmp_path / "mixed").records.height == runner.resume(tmp_path / "mixed").records.height


def test_joins_leaves_and_outages_by_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--nodes 4 --rounds 3 --batches 1 --total 80 --seeds 0 --rule decavg --engine memory --links 0.8 --outage 3"
    assert main(["run", *flags.split(), "--joins", "3:2", "--leaves", "0:3", "--out", str(tmp_path / "x")]) == 0
    rows = pl.read_parquet(tmp_path / "x" / "records.parquet")
    assert rows.filter(pl.col("round") == 3)["node"].to_list() == [1, 2, 3]
    assert main(["run", *flags.split(), "--joins", "7:2", "--out", str(tmp_path / "y")]) == 2
    assert "joins names a node that does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["loop", "memory"])
def test_who_is_away_stands_still(engine: str) -> None:
    made, running = job(**CHURN, topology="complete"), session(engine)
    running.begin(made)
    fresh = {k: v.clone() for k, v in running.snapshot().items()}["0/matrix"]
    models = [fresh]
    for number in range(1, 5):
        running.round(number, True)
        models.append(running.snapshot()["0/matrix"].clone())
    assert torch.equal(models[2][4], fresh[4])  # joins in round 3, with its own draw
    assert torch.equal(models[1][5], fresh[5])
    assert not torch.equal(models[3][4], fresh[4])
    assert not torch.equal(models[3][0], models[2][0])
    assert torch.equal(models[4][0], models[3][0])  # left: neither trains nor hears
    steps = made.roster.steps(0)
    assert running.ledger.totals["batches"].tolist() == [
        3 * steps,
        4 * steps,
        4 * steps,
        4 * steps,
        2 * steps,
        3 * steps,
    ]
    one = fresh.shape[1] * 4
    assert running.ledger.totals["sent_bytes"].tolist() == [one * n for n in (12, 16, 16, 16, 9, 13)]


def test_rows_are_of_those_who_are_there() -> None:
    frame = small(**CHURN, topology="complete").run().records
    there = {r: frame.filter(pl.col("round") == r)["node"].to_list() for r in range(7)}
    assert there[0] == there[1] == [0, 1, 2, 3]
    assert there[2] == [0, 1, 2, 3, 5]
    assert there[3] == [0, 1, 2, 3, 4, 5]
    assert there[4] == there[6] == [1, 2, 3, 4, 5]
    assert frame["test_accuracy"].null_count() == 0
    table = summary(frame)
    ends = frame.group_by("node").agg(pl.col("sent_bytes").last())
    assert table["sent_bytes_total"][0] == ends["sent_bytes"].sum()  # what the node sent that has left, too
    assert table["accuracy"][0] == pytest.approx(frame.filter(pl.col("round") == 6)["test_accuracy"].mean())


def test_distances_are_among_those_who_are_there() -> None:
    found = drive("loop", rounds=2, rule="isolation", joins={4: 9, 5: 9}, topology="complete")
    models = torch.stack([found.models[i] for i in range(4)])
    # distances are measured before the merge, which isolation does not do
    wanted = (models - models.mean(0)).norm(dim=1)
    np.testing.assert_allclose(found.ledger["consensus_distance"][:4], wanted, rtol=1e-4)
    others = (models.sum(0) - models) / 3
    np.testing.assert_allclose(found.ledger["neighbourhood_distance"][:4], (models - others).norm(dim=1), rtol=1e-4)


@pytest.mark.parametrize("engine", [{"name": "local", "workers": 1, "mode": "loop"}, "memory"])
@pytest.mark.parametrize("round", [1, 2, 3, 4])
def test_resume_in_the_middle_of_it(engine: Any, round: int, tmp_path: Path) -> None:
    experiment = small(**CHURN, links=0.7, outage=3, presence=0.8, absence=4, engine=engine, keep_optimiser=True)
    interrupted(experiment, tmp_path / "x", round)
    assert_same(runner.resume(tmp_path / "x").records, experiment.run().records)


class TestGain:
    def test_gain_is_of_the_nodes_that_are_there_at_first(self) -> None:
        made = job(nodes=6, topology="complete", partition="iid", joins={4: 2, 5: 3}, leaves={0: 2})
        np.testing.assert_allclose(made.gains[:4], 2.0, rtol=0.01)
        assert made.gains[4:].tolist() == [1.0, 1.0]

    def test_gain_of_parts_that_are_joined_later(self) -> None:
        made = job(nodes=5, topology="line", partition="iid", joins={2: 2})
        np.testing.assert_allclose(made.gains, [2**0.5, 2**0.5, 1, 2**0.5, 2**0.5], rtol=0.01)

    def test_gain_by_gossip_of_the_nodes_that_are_there(self) -> None:
        made = job(nodes=6, topology="complete", partition="iid", joins={4: 2, 5: 3})
        *_, last = survey(made, 4000, 4)
        assert np.isnan(last[4:]).all()
        np.testing.assert_allclose(last[:4], 2.0, rtol=0.1)
        assert estimates(made, 500, 4)[4:].tolist() == [1.0, 1.0]

    def test_estimates_are_of_the_nodes_that_are_there(self) -> None:
        def gains(**settings: Any) -> np.ndarray:
            network = {"topology": "complete", "partition": "iid", "total": 400, "nodes": 16}
            return job(**network, initialiser={"name": "gain", **settings}).gains

        np.testing.assert_allclose(gains(), 4, rtol=0.01)
        np.testing.assert_allclose(gains(estimate="size"), 4)
        np.testing.assert_allclose(gains(estimate="size", assumed_nodes=64), 8)
        np.testing.assert_allclose(gains(estimate="size", exponent=0.25), 2)
        np.testing.assert_allclose(gains(estimate="degrees"), 4)
        np.testing.assert_allclose(gains(estimate="degrees", assumed_nodes=4), 2)
        with pytest.raises(ConfigError, match="assumed_nodes"):
            gains(estimate="size", assumed_nodes=0)

    def test_degrees_that_a_walk_met(self) -> None:
        settings = {"nodes": 60, "total": 600, "topology": {"name": "ba", "m": 3}, "partition": "iid"}
        made = job(**settings, initialiser={"name": "gain", "estimate": "degrees", "degree_samples": 200})
        assert np.abs(made.gains / made.graph(1).gain() - 1).max() < 0.15
        assert len(set(made.gains.tolist())) > 1  # each node walks for itself

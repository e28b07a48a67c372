"""Measures: the same in every engine, and what theory says of merging without training."""

import functools
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from coterie import records
from coterie.network.dynamics import simulate
from coterie.node.measures import CONFUSION, EPOCHS, KINDS, SPREADS, STEPS
from driving import LIGHT, job, narrow_blocks, own, session

MIXED = [{"name": "mlp", "sizes": [8]}, {"name": "mlp", "sizes": [12]}]
WORLDS: dict[str, dict[str, Any]] = {
    "plain": {"rule": "dechw"},
    "merged first, failing": {"rule": "dechw", "merge_first": True, "links": 0.6, "presence": 0.8},
    "whole rows": {"rule": "decdiff", "topology": "ring"},
    "alone": {"rule": "isolation"},
    "relay": {"protocol": "relay", "topology": "ring"},
    "aggregator": {"protocol": "aggregator", "topology": "star", "merge_first": True},
    "two exchanges before training": {"protocol": own("Twice"), "links": 0.7},
    "exercises": {"protocol": LIGHT["desa"], "rule": "isolation"},
    "exercises, in turn with training": {"protocol": own("Meme"), "links": 0.7},
    "nodes that come and go": {"joins": {4: 2}, "leaves": {0: 2}, "merge_first": True},
    "two kinds of model": {"rule": "dechw", "model": MIXED, "topology": "complete"},
    "batch norm": {"model": {"name": "cnn", "channels": [4], "kernel": 3, "norm": "batch"}},
    "a parameter without dimension": {"model": own("scaled")},
}
BUFFERED = ("batch norm", "a parameter without dimension")
"""Models that cannot be stacked."""
KEYS = ["round", "node", "layer", "epoch", "measure"]


@functools.cache
def measured(engine: str, name: str) -> pl.DataFrame:
    """The measures of rounds 0, 1 and 3."""
    running, made = session(engine), job(**WORLDS[name], measures=KINDS)
    with narrow_blocks():
        running.begin(made)
        running.evaluate()
        frames = [records.measured("m", 0, 0, running.ledger, made.members(0))]
        for number in (1, 2, 3):
            running.round(number, number != 2)
            frames.append(records.measured("m", 0, number, running.ledger, made.members(number)))
    return pl.concat(frames)


@pytest.mark.parametrize(
    ("engine", "name"), [*(("loop", n) for n in WORLDS), *(("workers", n) for n in WORLDS if n not in BUFFERED)]
)
def test_same_numbers(engine: str, name: str) -> None:
    """But for σ_an, which a peer cannot know."""
    noise = (pl.col("layer") == "0.bias") & (pl.col("measure") == "step_cosine") & (name == "batch norm")
    known = pl.col("node").is_not_null() & ~noise.fill_null(False)  # a bias that batch norm takes away has no gradient
    local, alone = (measured(e, name).filter(known) for e in (engine, "memory"))
    assert_frame_equal(local, alone, check_exact=False, rel_tol=2e-3, abs_tol=2e-4)


@pytest.mark.parametrize("name", WORLDS)
def test_the_table(name: str) -> None:
    """Every node and tensor once a round; steps and what the rule tells from round 1 on, and in no other round."""
    found = measured("loop", name)
    assert dict(found.schema) == records.MEASURES
    assert found.select(KEYS).is_duplicated().sum() == 0
    assert found["value"].is_finite().all()
    assert set(found["round"]) == {0, 1, 3}
    told = {"h_norm", "h_element"} if "dechw" in str(WORLDS[name]) else set()
    network = set() if name == "two kinds of model" else {"sigma_an"}
    cosine = set() if name in ("alone", "exercises") else {"step_cosine"}
    assert found["epoch"].is_not_null().equals(found["measure"] == EPOCHS[0])
    others = found.filter(pl.col("epoch").is_null())  # an epoch may last longer than a round
    at = {r: set(others.filter(pl.col("round") == r)["measure"]) for r in (0, 1, 3)}
    assert at[0] == {*SPREADS[:2], CONFUSION} | network
    assert at[1] == at[3] == at[0] | set(STEPS[:3]) | cosine | told
    assert set(found.filter(pl.col("node").is_null())["measure"]) == network
    assert set(found.filter(pl.col("measure") == "train_step", pl.col("layer").is_null())["node"]) == set(range(6))


@pytest.mark.parametrize("engine", ["memory", "loop", "stack", "workers"])
def test_losses_by_epoch_are_those_of_the_objective_on_validation_data(engine: str) -> None:
    """At the beginning of a round and after each of its epochs; the last is of the model after its training."""
    objective = {"name": "virtual_teacher", "beta": 0.8}
    made = job(rule="isolation", objective=objective, epochs=2, batches=None, measures=("epochs",))
    running = session(engine)
    running.begin(made)
    frames = []
    for number in (1, 2):
        running.round(number, True)
        frames.append(records.measured("m", 0, number, running.ledger).filter(pl.col("node") == 3))
    assert [f["epoch"].to_list() for f in frames] == [[0, 1, 2], [2, 3, 4]]
    assert frames[0]["value"][2] == pytest.approx(frames[1]["value"][0], rel=1e-6)
    module = made.roster.models[0].make()((1, 8, 8), 10)
    matrix = running.snapshot().get("0/matrix")
    if matrix is not None:
        torch.nn.utils.vector_to_parameters(matrix[3], module.parameters())
        where, me = torch.as_tensor(made.roster.validation[3]), made.roster.me(np.array([3]), 0, None)  # type: ignore[arg-type]
        wanted = made.roster.objective.make()(module(made.samples.inputs(where)), made.samples.targets(where), me)
        assert frames[1]["value"][2] == pytest.approx(wanted.mean().item(), rel=1e-5)


def test_who_validates_on_nothing_has_no_losses_by_epoch() -> None:
    running, made = session("loop"), job(validation=0.0, epochs=1, batches=None, measures=("epochs",))
    running.begin(made)
    running.round(1, True)
    assert records.measured("m", 0, 1, running.ledger).is_empty()


def test_steps_are_those_of_the_models() -> None:
    """By hand from the models: before the round, after its training (the same node alone), and at its end."""
    made = job(merge_first=True, measures=("steps",))
    running = session("loop")
    running.begin(made)
    running.round(1, False)
    before, kept = running.snapshot()["0/matrix"].clone(), {k: v.clone() for k, v in running.snapshot().items()}
    running.round(2, True)
    after, found = running.snapshot()["0/matrix"].clone(), records.measured("m", 0, 2, running.ledger)
    running.begin(job(rule="isolation"))
    running.restore(kept)
    running.round(2, False)
    trained = running.snapshot()["0/matrix"]
    train, merge = trained - before, after - trained
    wanted = {
        "train_step": train.norm(dim=1),
        "merge_step": merge.norm(dim=1),
        "total_step": (after - before).norm(dim=1),
        "step_cosine": torch.cosine_similarity(train, merge, dim=1),
    }
    for name, values in wanted.items():
        whole = found.filter(pl.col("measure") == name, pl.col("layer").is_null())
        np.testing.assert_allclose(whole["value"], values, rtol=1e-4, atol=1e-5)
    first = found.filter(pl.col("measure") == "train_step", pl.col("layer") == "1.weight")
    np.testing.assert_allclose(first["value"], train[:, : 64 * 8].norm(dim=1), rtol=1e-4)


def test_a_merge_before_the_first_training_is_aggregation() -> None:
    made = job(merge_first=True, lr=1e-30, measures=("steps",))
    running = session("loop")
    running.begin(made)
    before = running.snapshot()["0/matrix"].clone()
    running.round(1, True)
    moved = (running.snapshot()["0/matrix"] - before).norm(dim=1)
    whole = records.measured("m", 0, 1, running.ledger).filter(pl.col("layer").is_null())
    values = {name: whole.filter(pl.col("measure") == name)["value"].to_numpy() for name in STEPS}
    np.testing.assert_array_equal(values["train_step"], 0)
    np.testing.assert_allclose(values["merge_step"], moved, rtol=1e-5)
    np.testing.assert_array_equal(values["total_step"], values["merge_step"])
    assert not len(values["step_cosine"])


def test_without_training_spreads_are_those_of_the_theory() -> None:
    """DecAvg alone: W_t = M^t W_0 exactly; σ_ap comes to rest at σ_init·‖v_steady‖, as in the early-stage model."""
    made = job(
        nodes=12,
        model={"name": "mlp", "sizes": [128]},
        topology={"name": "ba", "m": 2},
        lr=1e-30,
        measures=("spread",),
    )
    running, rounds, width = session("loop"), 25, 64 * 128
    running.begin(made)
    running.evaluate()
    frames = [records.measured("m", 0, 0, running.ledger)]
    weights = running.snapshot()["0/matrix"][:, :width].double()
    for number in range(1, rounds + 1):
        running.round(number, True)
        frames.append(records.measured("m", 0, number, running.ledger))
    found = pl.concat(frames).filter(pl.col("layer") == "1.weight")
    within, merged, apart = (dict(_means(found, name)) for name in ("sigma_ap", "sigma_ap_merged", "sigma_an"))
    sizes = [len(own) for own in made.roster.train]
    matrix = torch.from_numpy(made.graph(1).merge_matrix(sizes).toarray())
    for number in range(1, rounds + 1):
        assert within[number] == pytest.approx(float(weights.std(dim=1, correction=0).mean()), rel=1e-4)
        assert apart[number] == pytest.approx(float(weights.std(dim=0, correction=0).mean()), rel=1e-3)
        weights = matrix @ weights
        assert merged[number] == pytest.approx(float(weights.std(dim=1, correction=0).mean()), rel=1e-4)
    model = simulate(made.graph(1), width, rounds, noise=0, init=within[0], sizes=sizes)
    error = 5 / np.sqrt(2 * width)
    np.testing.assert_allclose([merged[r] for r in range(rounds + 1)], model.across_parameters, rtol=error)
    assert merged[rounds] == pytest.approx(within[0] / made.graph(1).gain(sizes), rel=error)
    assert merged[rounds] < 0.5 * within[0]


def _means(found: pl.DataFrame, measure: str) -> list[tuple[int, float]]:
    mine = found.filter(pl.col("measure") == measure)
    return mine.group_by("round", maintain_order=True).agg(pl.col("value").mean()).rows()

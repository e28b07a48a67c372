"""Whatever neighbours say: what a peer lets through neither ends it nor leaves it with numbers that are not finite.

Over all rules, objectives and protocols there are, in all rounds, synchronous or asynchronous, from one or all.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie.job import Job
from coterie.node.gossip import GossipGain, gossip_job, own_estimate
from coterie.node.limits import Limits
from coterie.parts import chosen, names
from driving import light
from hostile import Said, Victim

ROUNDS = 3
BATCH_NORM = {"name": "cnn", "channels": [4], "kernel": 3, "norm": "batch"}
NUMBERS = {
    "dataset": f"{Path(__file__).parent / 'own_data.py'}:numbers",
    "model": "logistic",
    "partition": "iid",
    "metrics": "error",
    "total": None,
    "items": 60,
}
MIXED = [{"name": "mlp", "sizes": [8]}, {"name": "mlp", "sizes": [5]}]

SCALES = st.sampled_from([0.0, 1.0, -1.0, 3.0, 90.0, -900.0, 1e4, 1e10, 1e18, 1e25, -3e38, 1e-40])
EDGES = [5, 12345, 2**31, 2**40, 2**63 - 2, 2**63 - 1, -(2**31), -(2**63)]
"""Whole numbers that nobody means, up to the edges of what can be sent."""
KINDS = st.sampled_from(["own", "noise", "constant", "spike"])
WORDS = st.fixed_dictionaries(
    {
        "scale": SCALES,
        "kind": KINDS,
        "scales": st.dictionaries(st.sampled_from(["h", "r", "buffers", "gradient", "minima"]), SCALES, max_size=2),
        "missing": st.sampled_from(["", "", "", "h", "buffers", "labels", "mine 0", "0"]),
        "size": st.sampled_from([None, None, None, 0.0, 1.0, 9.99e11]),
        "age": st.integers(0, ROUNDS),
        "numbers": st.lists(st.integers(-1, 4) | st.sampled_from(EDGES), min_size=8, max_size=8),
        "silent": st.booleans(),
    }
)
TALK = st.lists(st.lists(WORDS, min_size=1, max_size=3), min_size=1, max_size=ROUNDS)
"""What neighbours say in each round, the same over again if there are fewer words than rounds or neighbours."""


def spoken(victim: Victim, words: dict[str, Any], tag: str, round: int, sender: int) -> Said | None:
    """A message out of what can be said under this tag."""
    if count := victim.expected.numbers(tag):
        return {"numbers": tuple(words["numbers"][:count])}
    if words["silent"] and sender > 1:
        return None
    draw, own, fields = torch.Generator().manual_seed(round), victim.honest(round=round), {}
    for name, length in victim.fields(tag).items():
        if name == words["missing"]:
            continue
        value = torch.randn(length, generator=draw) * 0.1
        if words["kind"] == "own" and name in own:
            value = own[name]
        elif words["kind"] == "constant":
            value = torch.ones(length)
        elif words["kind"] == "spike":
            value = torch.zeros(length)
            value[length // 2] = 1.0
        scaled = value.double() * words["scales"].get(name, words["scale"])
        fields[name] = scaled.clamp(-3.4e38, 3.4e38).float()
    size = victim.sizes[sender] if words["size"] is None else words["size"]
    age = words["age"] if victim.pace.timing.mode == "async" else 0
    return {"fields": fields, "size": size, "round": max(round - age, 1)}


def suffer(talk: list[list[dict[str, Any]]], mode: str = "sync", **given: Any) -> Victim:
    for node in (0, 2):  # some protocols have a part for the first node alone
        victim = Victim(mode, rounds=ROUNDS + 2, node=node, **given)

        def says(sender: int, tag: str, round: int, victim: Victim = victim) -> Said | None:
            words = talk[(round - 1) % len(talk)]
            return spoken(victim, words[sender % len(words)], tag, round, sender)

        victim.live(ROUNDS, says)
        assert victim.sound, victim.blamed
    return victim


def hypothetically(examples: int) -> Any:
    return settings(max_examples=examples, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("known", [True, False], ids=["sizes known", "sizes told"])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("rule", names("rules"))
@hypothetically(12)
@given(talk=TALK)
def test_any_rule(rule: str, mode: str, known: bool, talk: list[list[dict[str, Any]]]) -> None:
    if mode == "async" and rule == "cfa_ge":  # which does not run so
        mode = "sync"
    theta = {"theta": 2} if rule.startswith("dechw") else {}
    suffer(talk, mode, known=known, rule={"name": rule, **theta}, merge_first=mode == "sync")


@pytest.mark.parametrize("rule", names("rules"))
@hypothetically(8)
@given(talk=TALK)
def test_any_rule_where_models_of_any_size_are_taken(rule: str, talk: list[list[dict[str, Any]]]) -> None:
    """Without the first line of defence, the others hold."""
    suffer(talk, limits=Limits(factor=0), rule=rule)


OF_NUMBERS = ("squared_error", "absolute_error", "binary_cross_entropy")


@pytest.mark.parametrize("objective", names("objectives"))
@hypothetically(8)
@given(talk=TALK)
def test_any_objective(objective: str, talk: list[list[dict[str, Any]]]) -> None:
    suffer(talk, objective=objective, **(NUMBERS if objective in OF_NUMBERS else {}))


def told(protocol: str) -> bool:
    """Whether its nodes say whole numbers."""
    return bool(chosen("protocols", light(protocol)).make().tells(4))


def modes(protocol: str) -> list[str]:
    """In which a peer agrees to run it."""
    made = chosen("protocols", light(protocol)).make()
    return ["sync"] if made.in_step or made.says((1, 8, 8), 10) or made.tells(3) else ["sync", "async"]


@pytest.mark.parametrize("world", ["plain", "batch norm", "mixed"])
@pytest.mark.parametrize(("protocol", "mode"), [(name, mode) for name in names("protocols") for mode in modes(name)])
@hypothetically(6)
@given(talk=TALK)
def test_any_protocol(protocol: str, mode: str, world: str, talk: list[list[dict[str, Any]]]) -> None:
    model = {"plain": {}, "batch norm": {"model": BATCH_NORM}, "mixed": {"model": MIXED}}[world]
    rule = {"rule": "isolation"} if protocol in ("wandering", "meetings", "fml") else {}
    suffer(talk, mode, protocol=light(protocol), **model, **rule)


@pytest.mark.parametrize("protocol", [name for name in names("protocols") if told(name)])
def test_any_whole_number(protocol: str) -> None:
    """Beside models that are as they should be, and small numbers or none that are."""
    plain = {"scale": 1.0, "kind": "own", "scales": {}, "missing": "", "size": None, "age": 0, "silent": False}
    for edge in EDGES:
        for numbers in ([edge] * 8, [1, *[edge] * 7], [edge, 1, 1, 1, 1, 1, 1, 1]):
            suffer([[{**plain, "numbers": numbers}]], protocol=light(protocol), rule="isolation")


@pytest.mark.parametrize("known", [True, False], ids=["sizes known", "sizes told"])
@hypothetically(25)
@given(talk=TALK)
def test_the_gossip_before_the_first_round(known: bool, talk: list[list[dict[str, Any]]]) -> None:
    def before(job: Job) -> Job:
        return gossip_job(job, 40)

    victim = suffer(talk, known=known, before=before)
    rule = victim.node.job.rule
    assert isinstance(rule, GossipGain)
    assert 0.9 <= own_estimate(rule, victim.node.state["minima"], nodes=4) <= 2.21

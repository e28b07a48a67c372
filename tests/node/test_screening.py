"""Neighbours' numbers: what no honest one says is refused, and what does harm all the same is undone."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from coterie.contract import Me, Message, Rule, Term
from coterie.errors import ConfigError, DivergedError
from coterie.node.gossip import GossipGain, gossip_job, greatest, own_estimate
from coterie.node.limits import Limits
from coterie.node.sums import Packet
from coterie.parts import chosen, names
from coterie.peers.settings import PeerSettings
from hostile import Said, Victim

BATCH_NORM = {"name": "cnn", "channels": [4], "kernel": 3, "norm": "batch"}


def everyone(fields: dict[str, Tensor], **more: Any) -> Any:
    return lambda sender, tag, round: {"fields": fields, **more}


def test_a_late_curvature_is_borne_by_who_sends_none_any_more() -> None:
    """Asynchronous: a message of round 1 comes when my own have no curvature left, and sums lack one's own term."""
    for rule in ({"name": "dechw", "theta": 1}, {"name": "aligned", "base": {"name": "dechw", "theta": 1}}):
        victim = Victim("async", rule=rule)
        late = victim.honest()
        assert "h" in late
        late["h"] += 0.01
        victim.live(3, lambda sender, tag, round, late=late: {"fields": late, "round": 1} if round == 3 else None)
        assert not victim.refused
        assert not victim.blamed
        assert victim.sound


def test_who_is_slow_bears_that_others_send_no_curvature_any_more() -> None:
    for rule in ({"name": "dechw", "theta": 4}, {"name": "aligned", "base": {"name": "dechw", "theta": 4}}):
        victim = Victim("async", rule=rule)
        w = {"w": victim.node.params.clone()}

        def says(sender: int, tag: str, round: int, victim: Victim = victim, w: dict[str, Tensor] = w) -> Said:
            return {"fields": w, "round": 5} if sender == 1 else {"fields": victim.honest(round=round), "round": round}

        victim.live(1, says)
        assert not victim.refused
        assert not victim.blamed


def test_fields_are_judged_by_the_round_of_the_message() -> None:
    victim = Victim(rule={"name": "dechw", "theta": 1})
    whole, bare = victim.honest(), {"w": victim.node.params.clone()}
    victim.live(2, lambda sender, tag, round: {"fields": bare if round == 1 else whole})
    assert victim.refused == {"fields": 6}


@pytest.mark.parametrize("value", [3e38, 1e25, 1e7, -1e7])
@pytest.mark.parametrize("rule", ["decavg", "dechw", "cfa", "decdiff", "median", "variance_corrected"])
def test_a_model_of_enormous_numbers_is_refused(rule: str, value: float) -> None:
    victim, calm = Victim(rule=rule), Victim(rule=rule)

    def says(sender: int, tag: str, round: int) -> Said:
        fields = victim.honest(round=round)
        return {"fields": {**fields, "w": torch.full_like(fields["w"], value)}}

    victim.live(3, says)
    calm.live(3, lambda sender, tag, round: None)
    assert victim.refused == {"too-large": 9}
    assert torch.equal(victim.node.params, calm.node.params)


def test_one_tensor_is_enough_to_be_too_large_and_rounds_at_the_start_are_wider() -> None:
    victim = Victim(rounds=20)
    a, b = victim.node.trainer.architecture.layout.spans[1]

    def says(sender: int, tag: str, round: int) -> Said | None:
        fields = victim.honest(round=round)
        fields["w"][a:b] = 50.0  # of one's own biases, and of what they are compared with, some hundred times
        return {"fields": fields} if sender == 1 and round in (1, 12) else None

    victim.live(1, says)
    assert not victim.refused
    victim.screen.limits = Limits(factor=0)
    victim.live(10, says)
    victim.screen.limits = Limits()
    victim.node.params[a:b] = 0.0
    victim.live(1, says)
    assert victim.refused == {"too-large": 1}


def test_who_says_something_where_nobody_does_is_refused() -> None:
    """By `isolation` there is nothing to say, but a model with statistics has a field that could be."""
    victim = Victim(rule="isolation", model=BATCH_NORM)
    buffers = victim.node.trainer.buffers[victim.node.row].clone()
    victim.live(2, everyone({"buffers": buffers}))
    assert victim.refused == Counter(fields=6)
    assert victim.sound


def test_a_curvature_that_cannot_be_is_refused() -> None:
    victim = Victim(rule="dechw")

    def says(sender: int, tag: str, round: int) -> Said:
        fields = victim.honest(round=round)
        fields["h"] = torch.full_like(fields["h"], {1: -0.1, 2: 1e25, 3: 1.0}[sender])
        return {"fields": fields}

    victim.live(2, says)
    assert victim.refused == {"range": 6}
    assert (victim.node.state["h"] >= 0).all()


@pytest.mark.parametrize("rule", ["median", "trimmed_mean"])
def test_rules_that_bear_liars_bear_their_statistics_too(rule: str) -> None:
    victim = Victim(rule=rule, model=BATCH_NORM, batches=1)
    seen: list[Tensor] = []

    def says(sender: int, tag: str, round: int) -> Said:
        fields = victim.honest(round=round)
        seen.append(fields["buffers"].clone())
        return {"fields": {**fields, "buffers": fields["buffers"] * 50.0} if sender == 1 else fields}

    victim.live(1, says)
    assert not victim.refused
    assert torch.equal(victim.node.trainer.buffers[victim.node.row], seen[0])


@pytest.mark.parametrize("rule", names("rules"))
def test_there_is_a_bound_for_all_that_a_rule_says(rule: str) -> None:
    """A field that may be as large as any is one by which a neighbour takes the merge over."""
    made = chosen("rules", rule).make()
    ranges = made.ranges(1)
    for name in Victim(rule=rule).honest():
        assert ranges[name].norm < math.inf or ranges[name].scale, name


@pytest.mark.parametrize("value", [-1.0, 2.0, 1e6, 3e38])
def test_who_says_to_have_begun_many_times_is_refused(value: float) -> None:
    victim = Victim(rule="consensus_start")
    victim.live(2, lambda sender, tag, round: {"fields": {**victim.honest(), "begun": torch.tensor([value])}})
    assert victim.refused == {"range": 6}


def test_a_spread_that_no_model_has_is_refused() -> None:
    """By its factor all of one's own model would grow, in one round and without a bound."""
    victim = Victim(rule="variance_restored")

    def says(sender: int, tag: str, round: int) -> Said:
        fields = victim.honest()
        return {"fields": {**fields, "deviation": torch.full_like(fields["deviation"], 1e4)}}

    victim.live(2, says)
    assert victim.refused == {"too-large": 6}
    assert not victim.blamed


def test_statistics_are_required_and_variances_are_not_negative() -> None:
    victim = Victim(model=BATCH_NORM)
    start = victim.node.trainer.buffers.clone()

    def says(sender: int, tag: str, round: int) -> Said:
        fields = victim.honest(round=round)
        if sender == 1:
            del fields["buffers"]
        elif sender == 2:
            fields["buffers"] = -fields["buffers"]
        else:
            fields["buffers"] = fields["buffers"] * 1e9
        return {"fields": fields}

    victim.live(1, says)
    assert victim.refused == {"fields": 1, "range": 1, "too-large": 1}
    assert not torch.equal(victim.node.trainer.buffers, start)
    assert victim.sound


def test_a_lie_about_the_data_size_is_refused_where_sizes_are_known() -> None:
    victim, calm = Victim(), Victim()
    victim.live(1, lambda sender, tag, round: {"fields": victim.honest(), "size": 9.99e11})
    calm.live(1, lambda sender, tag, round: None)
    assert victim.refused == {"size": 3}
    assert torch.equal(victim.node.params, calm.node.params)


def test_sizes_that_change_are_told() -> None:
    victim = Victim(known=False, limits=Limits(share=1.0))
    sizes = {1: [50, 50, 9.99e11], 2: [50, 50, 50], 3: [50, 10, 10]}
    victim.live(3, lambda sender, tag, round: {"fields": victim.honest(round=round), "size": sizes[sender][round - 1]})
    assert not victim.refused
    assert victim.strange == [
        (3, "had 50 samples, and now says 10"),
        (1, "had 50 samples, and now says 9.99e+11"),
    ]


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("heard", [(1,), (1, 2), (1, 2, 3)])
def test_nobody_weighs_more_than_its_share(share: float, heard: tuple[int, ...]) -> None:
    """A liar from the first round on, alone or among others with little data: its model weighs the share, not all."""
    victim = Victim(known=False, limits=Limits(share=share), batches=1, lr=1e-9, model="logistic")
    own = victim.node.params.clone()

    def says(sender: int, tag: str, round: int) -> Said | None:
        lie = {"fields": {"w": own + 1.0}, "size": 9.99e11}
        return None if sender not in heard else lie if sender == 1 else {"fields": {"w": own}, "size": 10.0}

    victim.live(1, says)
    moved = (victim.node.params - own).mean()
    assert moved <= share + 1e-4
    assert moved > 0.9 * share or len(heard) > 1
    assert "engine.share" in victim.strange[0][1]


def test_no_liars_together_take_the_average_over() -> None:
    victim = Victim(known=False, batches=1, lr=1e-9)
    own = victim.node.params.clone()
    victim.live(1, lambda sender, tag, round: {"fields": {"w": own + 1.0}, "size": 9.99e11})
    assert (victim.node.params - own).mean() < 0.91  # three, of which each counts for three times one's own data


def test_data_sizes_that_differ_as_they_do_count_as_they_are() -> None:
    """No neighbour has more than all others together: weights are those of the simulator."""
    one, other = Victim(known=False), Victim(known=True)
    for victim in (one, other):
        victim.live(2, lambda sender, tag, round, v=victim: {"fields": {"w": v.node.params + sender}})
    assert len(set(one.sizes.values())) > 2
    assert torch.equal(one.node.params, other.node.params)
    assert not one.strange


def test_what_diverges_in_training_is_undone_and_done_again() -> None:
    """The message is fair to look at where anything is taken, but no model bears it."""
    victim, calm = (Victim(limits=Limits(factor=0), lr=0.5, batches=20) for _ in range(2))

    def says(sender: int, tag: str, round: int) -> Said | None:
        return {"fields": {"w": 1e15 * torch.randn(victim.node.params.shape)}} if round == 1 else None

    victim.live(2, says)
    calm.live(2, lambda sender, tag, round: None)
    ((senders, _),) = victim.blamed
    assert senders == [1, 2, 3]
    assert torch.equal(victim.node.params, calm.node.params)


def test_nobody_is_led_away_step_by_step() -> None:
    """A model that is not too large beside one's own, every round: one's own grows by it, but not for ever."""
    victim = Victim(rounds=40)
    start = victim.node.params.abs().max()
    victim.live(40, lambda sender, tag, round: {"fields": {"w": 90 * victim.node.params}})
    assert victim.refused["too-large"] > 0
    assert victim.node.params.abs().max() < 1e6 * start
    assert victim.sound


def test_training_that_diverges_for_what_was_heard_long_ago_does_not_end_a_peer() -> None:
    victim = Victim(lr=0.5)
    victim.live(2, lambda sender, tag, round: {"fields": victim.honest()} if round == 1 else None)
    victim.node.params.mul_(1e30)
    brittle = victim.node.params.clone()
    victim.live(2, lambda sender, tag, round: None)
    assert torch.equal(victim.node.params, brittle)
    assert [senders for senders, _ in victim.blamed][-1] == []


def test_training_that_diverges_by_itself_is_an_error() -> None:
    victim = Victim(lr=1e30)
    with pytest.raises(DivergedError, match="node 0"):
        victim.live(2, lambda sender, tag, round: None)


@pytest.mark.parametrize("lie", [1e-30, 1e-40, 0.0, 1e30])
def test_no_lie_makes_the_gossiped_gain_other_than_a_gain_can_be(lie: float) -> None:
    victim = Victim(known=False, before=lambda job: gossip_job(job, 40))

    def says(sender: int, tag: str, round: int) -> Said:
        minima = torch.full((80,), lie)
        minima[:40] *= 1e-3
        return {"fields": {"data": torch.tensor([50.0])} if round == 1 else {"minima": minima}}

    victim.live(4, says)
    assert isinstance(victim.node.job.rule, GossipGain)
    minima = victim.node.state["minima"]
    assert 0.9 <= own_estimate(victim.node.job.rule, minima) <= greatest()
    assert 0.9 <= own_estimate(victim.node.job.rule, minima, nodes=4) <= greatest(4)
    assert greatest(4) == pytest.approx(2.2)


@pytest.mark.parametrize("fails", [lambda params: params / 0, lambda params: params[:, None, 7]])
def test_a_merge_that_fails_is_discarded(fails: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, calm = Victim(), Victim()
    monkeypatch.setattr(Rule, "merge", lambda self, me, params, state, inbox: (fails(params), state))
    victim.live(2, lambda sender, tag, round: {"fields": victim.honest()})
    calm.live(2, lambda sender, tag, round: None)
    assert [senders for senders, _ in victim.blamed] == [[1, 2, 3], [1, 2, 3]]
    assert torch.equal(victim.node.params, calm.node.params)


def test_a_message_that_cannot_be_lifted_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for rule in ("decavg", "cfa_ge"):  # added up as it comes, and kept until the merge
        victim = Victim(rule=rule)
        lift, marked = type(victim.node.job.rule).lift, victim.node.params + 1

        def lifted(self: Rule, message: Message, lift: Any = lift, marked: Tensor = marked) -> dict[str, Term]:
            if "w" in message and torch.equal(message["w"], marked):
                raise ValueError("no")
            found: dict[str, Term] = lift(self, message)
            return found

        monkeypatch.setattr(type(victim.node.job.rule), "lift", lifted)
        others = {"w": victim.node.params.clone()}
        victim.live(
            1,
            lambda sender, tag, round, marked=marked, others=others: (
                None if tag.endswith("answer") else {"fields": {"w": marked} if sender == 2 else others}
            ),
        )
        assert victim.refused["fields"] + len(victim.blamed) == 1
        assert victim.blamed in ([], [([2], "ValueError: no")])
        monkeypatch.undo()


@pytest.mark.parametrize("setting", [{"limit": -1}, {"share": 0}, {"share": 1.5}])
def test_settings_are_checked(setting: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"engine\.(limit|share)"):
        PeerSettings(**setting)


DESA = {"name": "desa", "ipc": 2, "steps": 3, "width": 4}


def anchors(victim: Victim, value: float) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return {name: value * torch.randn(n, generator=draw) for name, n in victim.fields("anchors").items()}


def test_made_up_samples_that_are_far_from_ones_own_are_refused() -> None:
    victim = Victim(protocol=DESA, rule="isolation")
    large = anchors(victim, 9000.0)
    victim.live(2, lambda sender, tag, round: {"fields": large} if tag == "anchors" else None)
    assert victim.refused == {"range": 6}
    assert not victim.blamed
    assert not any(name in victim.node.notes for name in ("anchors 1", "anchors 2", "anchors 3"))


def test_samples_that_spoil_a_lesson_are_dropped_and_those_who_sent_them_blamed() -> None:
    """They came in round 1; afterwards their owner is silent, and another tells what is sound."""
    victim = Victim(protocol=DESA, rule="isolation", limits=Limits(factor=0))
    large, small = anchors(victim, 3e18), anchors(victim, 0.3)

    def says(sender: int, tag: str, round: int) -> Said | None:
        if tag == "anchors":
            return {"fields": large if sender == 1 else small} if round == 1 and sender < 3 else None
        return {"fields": {n: torch.zeros(k) for n, k in victim.fields(tag).items()}} if sender == 2 else None

    victim.live(4, says)
    assert victim.blamed
    assert [senders for senders, _ in victim.blamed] == [[1, 2]]
    assert "anchors 1" not in victim.node.notes
    assert victim.sound


def test_what_is_known_of_rounds_does_not_grow_with_them() -> None:
    """Asynchronous: in thousands of rounds, what may be said in one is not kept for all of them."""
    victim, sent = Victim("async", rounds=400), Counter[int]()
    send = type(victim.node.job.rule).send

    def counted(rule: Rule, me: Me, *about: Any) -> Any:
        sent[me.round] += 1
        return send(rule, me, *about)

    honest = Packet(1, victim.signature, Message(victim.honest(), torch.tensor([victim.sizes[1]]), 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(victim.node.job.rule), "send", counted)
        for round in (1, *range(1, 400), 1):
            victim.screen(replace(honest, message=replace(honest.message, round=round)), "model")
    assert sent[1] == 2  # the second time it was forgotten, and made again

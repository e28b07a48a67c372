"""Mutual learning on numbers small enough to check by hand: losses, weights of distillation, peaks, and its kin."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from coterie.contract import Layout
from coterie.lessons import Classroom, Homecoming, Lesson, Losses, Pupil
from coterie.lessons.corrected import Corrected
from coterie.lessons.def_kt import DefKT
from coterie.lessons.mutual import Mutual
from coterie.lessons.united import United
from coterie.lessons.witnessed import Witnessed

ANSWERS = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]])
SIZES = (100, 300, 600)
OUTPUTS = ANSWERS.log()[:, None]
"""Three models, one sample, three classes."""


def pupil(size: int = 1, value: float = 0.0, kind: str = "", samples: float = 10, labels: Any = None) -> Pupil:
    shares = None if labels is None else torch.tensor(labels)
    layout = Layout(("w",), ((size,),))
    return Pupil(kind or str(size), torch.full((size,), value), samples, lambda p, x: x, layout, labels=shares)


PUPILS = {node: pupil(size) for node, size in enumerate(SIZES)}


class Class:
    """A classroom of node 0 that keeps what a lesson wants of it, and says models are ten more than they were."""

    def __init__(self, turn: int = 0, rounds: int = 100, supervision: float = 0.0) -> None:
        self.losses: Losses = lambda outputs, targets: outputs
        self.epochs, self.taught, self.learners = 0, dict[int, Pupil](), set[int]()
        self.room = Classroom(
            torch.zeros(1),
            torch.zeros(1, dtype=torch.int64),
            seed=0,
            round=1,
            node=0,
            turn=turn,
            rounds=rounds,
            supervise=lambda outputs, targets: torch.full(outputs.shape[:-1], supervision),
            learn=self._learn,
        )

    def _learn(
        self, pupils: Mapping[int, Pupil], losses: Losses, epochs: int, learners: Collection[int] | None = None
    ) -> dict[int, Tensor]:
        self.losses, self.epochs, self.taught = losses, epochs, dict(pupils)
        self.learners = {*pupils} if learners is None else {*learners}
        return {n: p.params + 10 for n, p in pupils.items() if n in self.learners}

    def loss(self, lesson: Lesson, outputs: Tensor = OUTPUTS, target: int = 0, pupils: Any = PUPILS) -> Tensor:
        """What each model is to make small."""
        lesson.teach(pupils, self.room)
        return self.losses(outputs, torch.tensor([target]))


def divergences(loss: Tensor, lesson: Mutual) -> list[float]:
    """A loss without supervision as a weighted divergence: cross-entropies less the entropies of those who teach."""
    spread = (ANSWERS * ANSWERS.log()).sum(-1)
    return [round(float(x), 6) for x in loss + lesson.trust(PUPILS) @ spread]


ONLY = {"schedule": "fixed", "high": 1.0}


class TestDivergence:
    @pytest.mark.parametrize(
        ("weights", "wanted"),
        [("size", [0.388795, 0.178270, 0.313807]), ("equal", [0.314605, 0.139459, 0.403810])],
    )
    def test_teachers_count_by_size_or_alike(self, weights: Any, wanted: list[float]) -> None:
        lesson = Mutual(weights=weights, **ONLY)  # type: ignore[arg-type]
        assert divergences(Class().loss(lesson), lesson) == pytest.approx(wanted, abs=2e-6)

    def test_the_pull_is_towards_one_mixed_answer_and_teachers_feel_none(self) -> None:
        """∂/∂z_n = p_n − Σ_q w_q p_q."""
        lesson, outputs = Mutual(**ONLY), OUTPUTS.clone().requires_grad_()  # type: ignore[arg-type]
        (pull,) = torch.autograd.grad(Class().loss(lesson, outputs).sum(), outputs)
        torch.testing.assert_close(pull[:, 0], ANSWERS - lesson.trust(PUPILS) @ ANSWERS)

    def test_a_batch_counts_by_its_mean(self) -> None:
        twice = OUTPUTS.repeat(1, 2, 1)
        lesson = Mutual(**ONLY)  # type: ignore[arg-type]
        torch.testing.assert_close(Class().loss(lesson, twice), Class().loss(lesson))

    def test_a_teacher_counts_for_less_where_it_is_worse(self) -> None:
        """WSL: times 1 − exp(−CE_n / CE_q), of which no gradient is taken."""
        outputs = OUTPUTS.clone().requires_grad_()
        lesson = Mutual(weights="equal", samples="wsl", **ONLY)  # type: ignore[arg-type]
        errors = -ANSWERS[:, 0].log()
        wanted = []
        for n in range(3):
            share = [0.0 if q == n else 0.5 * (1 - math.exp(-float(errors[n] / errors[q]))) for q in range(3)]
            wanted.append(sum(s * ANSWERS[n] - s * ANSWERS[q] for q, s in enumerate(share)))
        (pull,) = torch.autograd.grad(Class().loss(lesson, outputs).sum(), outputs)
        torch.testing.assert_close(pull[:, 0], torch.stack(wanted))

    def test_one_model_alone_is_only_supervised(self) -> None:
        found = Class(supervision=3.0).loss(Mutual(**ONLY), OUTPUTS[:1], pupils={0: PUPILS[0]})  # type: ignore[arg-type]
        assert found.tolist() == [0.0]


def shares(turn: int, rounds: int = 100, **settings: Any) -> tuple[float, float]:
    """The weights of supervision and distillation in a turn."""
    lesson = Mutual(**settings)
    with_, without = (Class(turn, rounds, s).loss(lesson) for s in (1.0, 0.0))
    whole = Class().loss(Mutual(schedule="fixed", high=1.0, weights=lesson.weights))
    return round(float((with_ - without)[0]), 5), round(float((without / whole)[0]), 5)


def maxima(last: int, **settings: Any) -> list[int]:
    """The turns in which distillation weighs as much as it can."""
    lesson = Mutual(**settings)
    return [turn for turn in range(last) if shares(turn, **settings)[1] == pytest.approx(lesson.high, abs=1e-5)]


class TestSchedule:
    def test_cycles_begin_with_supervision_and_grow(self) -> None:
        assert [shares(t)[1] for t in (0, 10, 30)] == [0.0] * 3
        assert maxima(61) == [5, 20, 45]
        assert maxima(30, growth=0) == [5, 15, 25]
        assert shares(2)[1] == pytest.approx(0.45 * (1 - math.cos(0.4 * math.pi)), abs=1e-5)
        assert shares(0, low=0.3)[1] == pytest.approx(0.3)

    def test_half_cycles_need_a_turn_more(self) -> None:
        assert maxima(70, schedule="half") == [10, 31, 62]
        assert shares(11, schedule="half")[1] == 0

    def test_it_is_told_where_cycles_begin(self) -> None:
        assert Mutual().cycles(61) == [1, 11, 31, 61]
        assert Mutual(growth=0).cycles(20) == [1, 11]
        assert Mutual(schedule="half").cycles(70) == [1, 12, 33, 64]
        assert Mutual(schedule="fixed").cycles(70) == []

    def test_fixed_and_falling(self) -> None:
        assert [shares(t, schedule="fixed", high=0.5) for t in (0, 7)] == [(0.5, 0.5)] * 2
        assert [shares(t, schedule="falling", high=1.0)[1] for t in (0, 50, 100)] == pytest.approx([1, 0.5, 0])

    @pytest.mark.parametrize(
        ("varies", "wanted"),
        [
            ("between", (0.2, 0.8)),
            ("supervision", (0.2, 1.0)),
            ("distillation", (1.0, 0.8)),
            ("both", (0.8, 0.8)),
        ],
    )
    def test_what_the_weight_is_of(self, varies: str, wanted: tuple[float, float]) -> None:
        assert shares(3, schedule="fixed", high=0.8, varies=varies) == pytest.approx(wanted)

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"high": 1.2}, "from 0 to 1"),
            ({"low": -0.1}, "from 0 to 1"),
            ({"low": 0.9, "high": 0.5}, "low is not above high"),
            ({"period": 11}, "even"),
            ({"growth": 5}, "even"),
            ({"period": 1}, "at least 2"),
            ({"epochs": 0}, "at least 1"),
            ({"top": 0}, "at least 1"),
        ],
    )
    def test_what_cannot_be_is_refused(self, settings: dict[str, Any], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            Mutual(**settings)


def test_who_learns() -> None:
    everyone, alone = Class(), Class()
    taught = Mutual(epochs=3).teach(PUPILS, everyone.room)
    assert (taught.keys(), everyone.learners, everyone.epochs) == ({0, 1, 2}, {0, 1, 2}, 3)
    assert Mutual(learners="own").teach(PUPILS, alone.room).keys() == {0}
    assert alone.taught.keys() == {0, 1, 2}  # the others teach


class TestPeaks:
    """Which of the models that come home are kept: those of turns, by their numbers."""

    def kept(self, lesson: Mutual, turns: Collection[int]) -> list[int]:
        notes: dict[str, Tensor] = {}
        found = []
        for turn in turns:
            lesson.home(Homecoming(torch.tensor([float(turn)]), notes, turn, 100))
            found.append(int(notes["peak"]))
        return found

    def test_by_the_rule_up_to_the_first_maximum_and_then_at_each(self) -> None:
        lesson = Mutual()
        assert self.kept(lesson, range(6)) == [0, 1, 2, 3, 4, 5]
        assert self.kept(lesson, [3, 5, 6, 12, 19, 20, 21, 45]) == [3, 5, 5, 5, 5, 20, 20, 45]

    def test_by_the_rule_who_missed_a_maximum_keeps_what_is_as_high(self) -> None:
        """The weight it is measured by is that of the model kept, not the last one seen."""
        assert self.kept(Mutual(), [4, 10, 14, 18, 15]) == [4, 4, 4, 18, 18]

    def test_by_the_highest_of_each_cycle(self) -> None:
        lesson = Mutual(peaks="top", top=3)
        assert self.kept(lesson, [5, 6, 18, 19, 20, 21, 22, 43, 44, 46]) == [5, 6, 6, 19, 20, 21, 21, 21, 44, 46]

    def test_a_copy_is_kept(self) -> None:
        row, notes = torch.ones(1), dict[str, Tensor]()
        Mutual().home(Homecoming(row, notes, 0, 100))
        row += 1
        assert float(notes["peak"]) == 1

    def test_none_are_if_none_is_asked_for(self) -> None:
        assert Mutual().keeps
        assert not Mutual(peaks="none").keeps


class TestDefKT:
    def test_the_receiver_goes_on_with_the_model_that_came(self) -> None:
        pair, room = {0: pupil(1, 1.0), 3: pupil(1, 5.0)}, Class()
        assert {n: float(w) for n, w in DefKT().teach(pair, room.room).items()} == {0: 15.0}
        assert room.learners == {0, 3}

    def test_both_learn_from_the_labels_and_each_other(self) -> None:
        two, room = OUTPUTS[:2], Class(supervision=2.0)
        found = room.loss(DefKT(), two, pupils={0: pupil(), 3: pupil()})
        crossed = torch.stack([-(ANSWERS[1] * ANSWERS[0].log()).sum(), -(ANSWERS[0] * ANSWERS[1].log()).sum()])
        torch.testing.assert_close(found, 2 + crossed)


# Lessons of our own.


def test_only_witnesses_teach() -> None:
    """Of class 0 node 1 has 6 samples and node 2 has 2; of class 2 nobody has any."""
    seen = {
        0: pupil(samples=10, labels=[0.5, 0.5, 0.0]),
        1: pupil(samples=12, labels=[0.5, 0.5, 0.0]),
        2: pupil(samples=4, labels=[0.5, 0.5, 0.0]),
    }
    lesson = Witnessed(alpha=0.5)
    mixed = 0.75 * ANSWERS[1] + 0.25 * ANSWERS[2]
    found = Class(supervision=3.0).loss(lesson, pupils=seen)
    assert float(found[0]) == pytest.approx(0.5 * 3 - 0.5 * float((mixed * ANSWERS[0].log()).sum()))
    assert Class(supervision=3.0).loss(lesson, target=2, pupils=seen).tolist() == [3.0] * 3


def told(labels: list[list[float]]) -> dict[int, Pupil]:
    return {node: pupil(labels=row) for node, row in enumerate(labels)}


class TestCorrected:
    def test_without_strength_or_with_equal_shares_it_is_mutual_learning(self) -> None:
        plain = Class().loss(Mutual(weights="equal", **ONLY))  # type: ignore[arg-type]
        skewed = told([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [0.0, 0.5, 0.5]])
        for lesson, pupils in (
            (Corrected(strength=0.0, weights="equal", **ONLY), skewed),  # type: ignore[arg-type]
            (Corrected(weights="equal", **ONLY), told([[1 / 3] * 3] * 3)),  # type: ignore[arg-type]
        ):
            torch.testing.assert_close(Class().loss(lesson, pupils=pupils), plain)

    @pytest.mark.parametrize("strength", [1.0, -0.5])
    def test_a_teacher_s_prior_is_taken_off_or_put_on(self, strength: float) -> None:
        """p_q ∝ p_q β_q^(−strength), with a floor under β for classes that are not there."""
        labels = [[0.5, 0.3, 0.2], [0.9, 0.1, 0.0], [0.2, 0.2, 0.6]]
        lesson = Corrected(strength=strength, floor=0.3, weights="equal", **ONLY)  # type: ignore[arg-type]
        prior = 0.7 * torch.tensor(labels) + 0.1
        said = ANSWERS * prior**-strength
        said = said / said.sum(-1, keepdim=True)
        outputs = OUTPUTS.clone().requires_grad_()
        (pull,) = torch.autograd.grad(Class().loss(lesson, outputs, pupils=told(labels)).sum(), outputs)
        wanted = ANSWERS - torch.stack([(said.sum(0) - said[n]) / 2 for n in range(3)])
        torch.testing.assert_close(pull[:, 0], wanted)

    def test_a_floor_is_needed(self) -> None:
        with pytest.raises(ValueError, match="floor is above 0"):
            Corrected(floor=0.0)


class TestUnited:
    PUPILS = {  # noqa: RUF012
        0: pupil(2, 1.0, "a", 10),
        1: pupil(3, 7.0, "b", 10),
        2: pupil(2, 5.0, "a", 30),
        3: pupil(3, 1.0, "b", 30),
    }

    def test_one_of_each_architecture_learns_from_the_average(self) -> None:
        room = Class()
        taught = United().teach(self.PUPILS, room.room)
        assert {n: float(p.params[0]) for n, p in room.taught.items()} == {0: 4.0, 1: 2.5}
        assert {n: float(w[0]) for n, w in taught.items()} == {0: 14.0, 1: 12.5, 2: 14.0, 3: 12.5}

    def test_where_only_the_aggregator_s_learns_others_have_their_average(self) -> None:
        taught = United(learners="own").teach(self.PUPILS, Class().room)
        assert {n: float(w[0]) for n, w in taught.items()} == {0: 14.0, 1: 2.5, 2: 14.0, 3: 2.5}


def test_lessons_that_go_by_labels_say_so() -> None:
    made: list[Callable[[], Lesson]] = [Witnessed, Corrected]
    assert all(lesson().informed for lesson in made)
    assert not Mutual().informed
    assert not United().informed

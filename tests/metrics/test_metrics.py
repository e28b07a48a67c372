"""Metrics by their numbers, and what they must have in common: neither batches nor padding nor company may show."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, top_k_accuracy_score
from torch import Tensor

from coterie.errors import ConfigError
from coterie.metrics import DEFAULT, Metric, columns, labelled, taken
from coterie.parts import Choice, find, names
from coterie.runs.experiment import Experiment

M, N, C = 3, 40, 6


def draw(seed: int = 0) -> tuple[Tensor, Tensor]:
    """What three models say of forty samples, and the truth."""
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(M, N, C, generator=rng), torch.randint(0, C, (M, N), generator=rng)


def suited(name: str) -> tuple[Tensor, Tensor]:
    """Outputs and targets that a metric can judge."""
    outputs, labels = draw()
    rng = torch.Generator().manual_seed(1)
    if name in ("strict", "lenient"):  # answers to two prompts, of three words each
        right = torch.randint(0, 4, (M, N, 2, 3), generator=rng)
        return torch.where(torch.rand(M, N, 1, 1, generator=rng) < 0.5, right, right.flip(1)), right
    if name == "labels_right":
        return outputs, torch.randint(0, 2, (M, N, C), generator=rng).float()
    return outputs, torch.randn(M, N, C, generator=rng) if name in ("error", "absolute_error") else labels


def judged(name: str, outputs: Tensor, targets: Tensor, real: Tensor | None = None, size: int = 1000, **s: Any) -> Any:
    """What a metric says, fed in batches of this size."""
    metric: Metric = find("metrics", name).make(**s)
    real = torch.ones(targets.shape[:2]) if real is None else real
    for at in range(0, targets.shape[1], size):
        part = slice(at, at + size)
        metric.add(outputs[:, part], targets[:, part], real[:, part])
    return metric.value()


@pytest.mark.parametrize("name", names("metrics"))
class TestEveryMetric:
    def test_one_number_for_each_model(self, name: str) -> None:
        found = judged(name, *suited(name))
        assert found.shape == (M,)
        assert found.dtype == np.float64
        assert np.isfinite(found).all()

    @pytest.mark.parametrize("size", [1, 7, 39])
    def test_batches_do_not_show(self, name: str, size: int) -> None:
        np.testing.assert_allclose(judged(name, *suited(name), size=size), judged(name, *suited(name)), rtol=1e-6)

    def test_alone_as_in_company(self, name: str) -> None:
        outputs, targets = suited(name)
        alone = [judged(name, outputs[[m]], targets[[m]])[0] for m in range(M)]
        np.testing.assert_allclose(judged(name, outputs, targets), alone, rtol=1e-6)

    def test_padding_does_not_count(self, name: str) -> None:
        outputs, targets = suited(name)
        real = (torch.arange(N) < torch.tensor([[N], [25], [0]])).float()
        found = judged(name, outputs, targets, real, size=16)
        np.testing.assert_allclose(found[0], judged(name, outputs[:1], targets[:1])[0], rtol=1e-6)
        np.testing.assert_allclose(found[1], judged(name, outputs[1:2, :25], targets[1:2, :25])[0], rtol=1e-6)
        assert math.isnan(found[2])  # nothing was there to be judged

    def test_a_model_in_an_experiment(self, name: str) -> None:
        assert Experiment(metrics=name).resolved["decavg"].judges[0].name == name


def test_against_scikit_learn() -> None:
    outputs, y = draw()
    for m in range(M):
        guess = outputs[m].argmax(-1)
        assert judged("accuracy", outputs, y)[m] == (guess == y[m]).double().mean().item()
        assert judged("f1", outputs, y)[m] == pytest.approx(f1_score(y[m], guess, average="macro"), abs=1e-12)
        wanted = top_k_accuracy_score(y[m], outputs[m], k=2, labels=range(C))
        assert judged("top_k", outputs, y, k=2)[m] == pytest.approx(wanted, abs=1e-12)


def test_f1_of_the_positive_one_of_two_classes() -> None:
    outputs, y = draw()
    two, y = outputs[..., :2], y.clamp(max=1)
    for m in range(M):
        wanted = f1_score(y[m], two[m].argmax(-1), average="binary")
        assert judged("f1", two, y, average="binary")[m] == pytest.approx(wanted, abs=1e-12)
    with pytest.raises(ConfigError, match=rf"average = binary: expected 2 classes, got {C}\. Leave average at macro"):
        judged("f1", outputs, y, average="binary")


def test_loss_and_perplexity() -> None:
    logits = torch.tensor([[[0.0, 0.0], [math.log(3), 0.0]]])
    wanted = (math.log(2) + math.log(4 / 3)) / 2
    assert judged("loss", logits, torch.tensor([[0, 0]]))[0] == pytest.approx(wanted, rel=1e-6)
    assert judged("perplexity", logits, torch.tensor([[0, 0]]))[0] == pytest.approx(math.exp(wanted), rel=1e-6)


def test_error() -> None:
    assert judged("error", torch.tensor([[[1.0], [2.0]]]), torch.tensor([[0.0, 4.0]]))[0] == 2.5
    vectors = torch.tensor([[[1.0, 0.0], [0.0, 3.0]]])
    assert judged("error", vectors, torch.zeros(1, 2, 2))[0] == 2.5


def test_top_k_of_few_classes_is_sure() -> None:
    assert judged("top_k", *draw(), k=50).tolist() == [1.0] * M


def test_tokens_count_one_by_one_and_ignored_ones_not() -> None:
    outputs, targets = torch.zeros(1, 2, 3, 2), torch.tensor([[[0, 0, 1], [1, -100, -100]]])
    outputs[..., 0] = 1.0  # says class 0 of everything
    assert judged("accuracy", outputs, targets)[0] == 0.5
    log = math.log(1 + math.exp(-1))
    assert judged("loss", outputs, targets)[0] == pytest.approx(log + 0.5, rel=1e-6)
    assert judged("accuracy", outputs, targets, torch.tensor([[0.0, 1.0]]))[0] == 0.0


A, BUY, END, RING, CROSS, NONE = 1, 2, 3, 7, 8, -100


@pytest.mark.parametrize(
    ("answers", "lenient", "strict"),
    [
        ([[BUY, A, RING, END], [RING, END, NONE, NONE]], 1, 1),
        ([[A, A, RING, END], [A, RING, BUY, A]], 1, 1),  # other words than objects do not matter
        ([[BUY, A, RING, END], [A, END, NONE, NONE]], 1, 0),  # the second answer does not name it
        ([[BUY, BUY, BUY, BUY], [11, 12, 13, 14]], 1, 0),  # garbage makes no error
        ([[BUY, A, RING, CROSS], [RING, END, NONE, NONE]], 0, 0),
        ([[BUY, A, CROSS, END], [RING, END, NONE, NONE]], 0, 0),
        ([[NONE] * 4, [NONE] * 4], 1, 0),
    ],
)
def test_answers_to_prompts(answers: list[list[int]], lenient: int, strict: int) -> None:
    """Two samples and two prompts, the right answers "buy a ring", "ring" and the same of a cross."""
    right = torch.tensor([[[[BUY, A, name, END], [name, END, NONE, NONE]] for name in (RING, CROSS)]])
    said = right.clone()
    said[0, 0] = torch.tensor(answers)
    assert judged("lenient", said, right)[0] == (lenient + 1) / 2
    assert judged("strict", said, right)[0] == (strict + 1) / 2
    assert judged("strict", said, right, size=1)[0] == (strict + 1) / 2


@pytest.mark.parametrize("name", ["strict", "lenient"])
@pytest.mark.parametrize("targets", [torch.zeros(1, 4, 3), torch.zeros(1, 4, dtype=torch.int64)])
def test_what_is_no_text_is_refused(name: str, targets: Tensor) -> None:
    with pytest.raises(ConfigError, match=r"expected answers and targets that are tokens.*--dataset patterns"):
        judged(name, targets.long(), targets)


@pytest.mark.parametrize("name", ["accuracy", "loss", "f1", "top_k", "perplexity"])
@pytest.mark.parametrize("targets", [torch.zeros(1, 4), torch.zeros(1, 4, 3, dtype=torch.int64)])
def test_what_is_no_class_is_refused(name: str, targets: Tensor) -> None:
    with pytest.raises(ConfigError, match=r"expected class labels or tokens.*--metrics error"):
        judged(name, torch.zeros(1, 4, 2), targets)


def test_columns_by_default_are_as_ever() -> None:
    assert columns(DEFAULT) == (
        *("test_accuracy", "test_loss", "test_f1"),
        *("validation_accuracy", "validation_loss", "merged_accuracy", "peak_accuracy"),
    )
    assert [m.name for m in taken(DEFAULT, "merged")] == ["accuracy"]


def test_the_first_metric_is_taken_after_the_merge_and_of_peaks() -> None:
    chosen = (Choice("metrics", "perplexity"), Choice("metrics", "f1"))
    both = ("merged_perplexity", "peak_perplexity")
    assert columns(chosen) == ("test_perplexity", "test_f1", "validation_perplexity", *both)


class TestConfiguration:
    @pytest.mark.parametrize("value", ["accuracy, top_k", ["accuracy", {"name": "top_k"}], ["accuracy", "top-k"]])
    def test_names_in_several_ways(self, value: Any) -> None:
        (one,) = Experiment(metrics=value).resolved.values()
        assert [m.name for m in one.judges] == ["accuracy", "top_k"]
        assert one.judges[1].make().k == 5

    def test_settings_are_kept_in_a_file(self) -> None:
        import tomllib

        (one,) = Experiment(metrics=["accuracy", {"name": "top_k", "k": 3}]).resolved.values()
        (again,) = Experiment(**tomllib.loads(one.to_toml())).resolved.values()
        assert again.judges[1].make().k == 3
        assert again.metrics == one.metrics

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            ("acuracy", "unknown metric 'acuracy'.*Did you mean 'accuracy'"),
            ([{"name": "top_k", "k": 0}], r"metrics\.k.*greater than or equal to 1"),
            ([{"name": "top_k", "m": 1}], r"unknown setting metrics\.m"),
            ([{"name": "top_k", "k": 1}, "top_k"], "two metrics would both be in the column test_top_k"),
            ([], "metrics"),
        ],
    )
    def test_refusals(self, value: Any, words: str) -> None:
        with pytest.raises(ConfigError, match=words):
            Experiment(metrics=value)

    def test_a_method_has_no_metrics_of_its_own(self) -> None:
        with pytest.raises(ConfigError, match="unknown setting of a method 'metrics'"):
            Experiment(methods={"mine": {"rule": "decavg", "metrics": "loss"}})

    def test_the_same_twice_is_once(self) -> None:
        assert Experiment(metrics="loss,loss").resolved["decavg"].metrics == ("loss",)


def test_labelled_leaves_plain_labels_as_they_are() -> None:
    outputs, y = draw()
    scores, labels, counts = labelled(find("metrics", "loss").make(), outputs, y, torch.ones(M, N))
    assert torch.equal(scores, outputs)
    assert torch.equal(labels, y)
    assert torch.equal(counts, torch.ones(M, N))


def test_numbers_that_are_off_and_labels_that_are_right() -> None:
    said, true = torch.tensor([[[1.0, -3.0], [2.0, 1.0]]]), torch.tensor([[[0.0, 1.0], [1.0, 1.0]]])
    assert judged("absolute_error", said, true)[0] == (1 + 4 + 1 + 0) / 4
    assert judged("labels_right", said, true)[0] == 2 / 4
    with pytest.raises(ConfigError, match=r"expected an output for each number.*--metrics loss"):
        judged("labels_right", said, true[..., 0])

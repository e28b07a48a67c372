"""Objectives by their numbers and by what they must have in common."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from coterie.contract import Layout, Me
from coterie.errors import ConfigError
from coterie.objectives import draws
from coterie.parts import find, names


def me(labels: Tensor) -> Me:
    """A node whose data have these shares of labels."""
    one = torch.ones(1)
    return Me(one.long(), one, one, labels, 0, 0, Layout((), ()))


def loss(
    name: str,
    logits: Tensor,
    target: Tensor,
    noise: Tensor | None = None,
    labels: Tensor | None = None,
    **settings: object,
) -> Tensor:
    """The loss of each sample at a node with these shares of labels, else equal ones.

    An objective that draws finds what is drawn here, else a quarter each.
    """
    made = find("objectives", name).make(**settings)
    drawn = (torch.full(target.shape, 0.25) if noise is None else noise,) if draws(made) else ()
    shares = torch.full((logits.shape[-1],), 1 / logits.shape[-1]) if labels is None else labels
    found: Tensor = made(logits, target, me(shares), *drawn)
    return found


Z, Y = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0])


def test_virtual_teacher() -> None:
    assert loss("virtual_teacher", Z, Y, beta=0.9).item() == pytest.approx(0.163208, abs=1e-6)


def test_virtual_teacher_is_a_divergence() -> None:
    """Zero where the model gives what the teacher gives, positive elsewhere."""
    teacher = torch.tensor([[0.05, 0.9, 0.05]])
    assert loss("virtual_teacher", teacher.log(), torch.tensor([1]), beta=0.9).item() == pytest.approx(0, abs=1e-6)
    logits = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    assert (loss("virtual_teacher", logits, torch.ones(50, dtype=torch.int64), beta=0.9) > 0).all()


def test_virtual_teacher_pulls_as_label_smoothing_does() -> None:
    """Its gradient is that of label smoothing with (1 − β) C / (C − 1)."""
    target = torch.tensor([2, 0])
    z = torch.tensor([[0.3, -1.0, 2.0, 0.1], [1.0, 1.0, 0.0, -3.0]])
    teach = grad(lambda z: loss("virtual_teacher", z, target, beta=0.9).sum())(z)
    smooth = grad(lambda z: loss("label_smoothing", z, target, smoothing=0.1 * 4 / 3).sum())(z)
    torch.testing.assert_close(teach, smooth)


def test_sure_teacher_is_cross_entropy() -> None:
    torch.testing.assert_close(loss("virtual_teacher", Z, Y, beta=1.0), loss("cross_entropy", Z, Y))


def test_random_virtual_teacher_is_as_sure_as_its_draw() -> None:
    noise = torch.tensor([0.0, 0.3, 0.5, 1.0])
    found = loss("random_virtual_teacher", Z.expand(4, -1), Y.expand(4), noise, low=0.6, high=1.0)
    betas = (0.6, 0.72, 0.8, 1.0)
    torch.testing.assert_close(found, torch.cat([loss("virtual_teacher", Z, Y, beta=b) for b in betas]))
    assert loss("random_virtual_teacher", Z, Y, torch.zeros(1)).item() == pytest.approx(0.163208, abs=1e-6)


def test_cross_entropy() -> None:
    wanted = math.log(math.exp(2) + math.exp(1) + 1) - 2
    assert loss("cross_entropy", Z, Y).item() == pytest.approx(wanted, abs=1e-6)


def test_label_smoothing() -> None:
    logp = F.log_softmax(Z[0], 0)
    wanted = -(0.8 * logp[0] + 0.2 * logp.mean())
    torch.testing.assert_close(loss("label_smoothing", Z, Y, smoothing=0.2)[0], wanted)


@pytest.mark.parametrize(("y", "plain"), [(0, 0.0), (1, 2.0), (2, 3.0)])
def test_hinge(y: int, plain: float) -> None:
    assert loss("hinge", Z, torch.tensor([y])).item() == pytest.approx(plain)
    assert loss("hinge", Z, torch.tensor([y]), squared=True).item() == pytest.approx(plain**2)


def test_squared_error() -> None:
    found = loss("squared_error", torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [3.0, 0.0]]))
    assert found.tolist() == [2.5, 4.5]
    assert loss("squared_error", torch.tensor([[1.0], [5.0]]), torch.tensor([3.0, 5.0])).tolist() == [4.0, 0.0]
    with pytest.raises(ConfigError, match=r"squared_error: expected an output for each number.*outputs \[3\]"):
        loss("squared_error", Z, torch.tensor([1.0]))


def test_squared_error_in_a_stack_as_alone() -> None:
    outputs, target = torch.randn(3, 6, 1), torch.randn(3, 6)
    pull = grad(lambda z, y: loss("squared_error", z, y).sum())
    torch.testing.assert_close(vmap(pull)(outputs, target), 2 * (outputs - target.unsqueeze(-1)))


def test_cross_entropy_of_a_sequence_is_the_mean_over_its_tokens() -> None:
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([[1, 4, 0], [2, -100, -100]])
    each = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(2, 3)
    torch.testing.assert_close(loss("cross_entropy", logits, target), torch.stack([each[0].mean(), each[1, 0]]))


HALVES = torch.tensor([0.5, 0.5, 0.0])


def slope(name: str, logits: Tensor, target: Tensor, labels: Tensor) -> Tensor:
    """The gradient of the summed loss in the scores."""
    found: Tensor = grad(lambda z: loss(name, z, target, labels=labels).sum())(logits)
    return found


def test_re_weighted_softmax() -> None:
    assert loss("wsm", Z, Y, labels=HALVES).item() == pytest.approx(-0.379885, abs=1e-6)
    assert slope("wsm", Z, Y, HALVES)[0].tolist() == pytest.approx([-0.268941, 0.268941, 0.0], abs=1e-6)


def test_re_weighted_softmax_is_cross_entropy_of_shifted_scores() -> None:
    """CE(z + log β, y) + log β_y."""
    beta, target = torch.tensor([0.2, 0.7, 0.1]), torch.tensor([2, 0, 1])
    logits = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    wanted = F.cross_entropy(logits + beta.log(), target, reduction="none") + beta.log()[target]
    torch.testing.assert_close(loss("wsm", logits, target, labels=beta), wanted)


def test_asymmetric_cross_entropy_is_that_over_the_classes_present() -> None:
    wanted = F.cross_entropy(Z[:, :2], Y)
    torch.testing.assert_close(loss("ace", Z, Y, labels=torch.tensor([0.9, 0.1, 0.0]))[0], wanted)
    torch.testing.assert_close(loss("ace", Z, Y, labels=torch.tensor([0.8, 0.1, 0.1])), loss("cross_entropy", Z, Y))


def test_re_weighting_by_equal_shares_pulls_as_cross_entropy_does() -> None:
    same = torch.full((3,), 1 / 3)
    torch.testing.assert_close(slope("wsm", Z, Y, same), slope("cross_entropy", Z, Y, same))


@pytest.mark.parametrize("name", ["wsm", "ace"])
class TestObjectivesOfTheClassesPresent:
    def test_scores_of_absent_classes_are_left_alone(self, name: str) -> None:
        logits = torch.tensor([[2.0, 1.0, 90.0]])
        assert loss(name, logits, Y, labels=HALVES).item() == pytest.approx(loss(name, Z, Y, labels=HALVES).item())
        assert slope(name, logits, Y, HALVES)[0, 2] == 0

    def test_one_class_alone_teaches_nothing(self, name: str) -> None:
        alone = torch.tensor([1.0, 0.0, 0.0])
        assert loss(name, Z, Y, labels=alone).item() == 0
        assert not slope(name, Z, Y, alone).any()

    def test_a_label_that_the_node_does_not_hold_leaves_all_finite(self, name: str) -> None:
        """Padding has some label, and counts for nothing: nothing must not be 0 times infinity."""
        stranger = torch.tensor([2])
        assert loss(name, Z, stranger, labels=HALVES).isfinite()
        assert slope(name, Z, stranger, HALVES).isfinite().all()

    def test_large_scores_stay_finite(self, name: str) -> None:
        large = 1e4 * Z
        assert loss(name, large, Y, labels=HALVES).isfinite()
        assert slope(name, large, Y, HALVES).isfinite().all()

    def test_traced_for_nodes_with_other_classes(self, name: str) -> None:
        """A stack has one trace, whatever classes its nodes hold."""
        logits = torch.randn(3, 5, 3, generator=torch.Generator().manual_seed(2))
        target = torch.zeros(3, 5, dtype=torch.int64)
        shares = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.0, 0.8]])

        def total(z: Tensor, y: Tensor, labels: Tensor) -> Tensor:
            return loss(name, z, y, labels=labels).sum()

        traced = make_fx(vmap(grad(total)))(logits, target, shares)
        there = shares.flip(0)
        found = traced(logits, target, there)
        for i in range(3):
            torch.testing.assert_close(found[i], slope(name, logits[i], target[i], there[i]))

    def test_needs_the_shares_of_all_classes(self, name: str) -> None:
        with pytest.raises(ConfigError, match=rf"objective {name}: expected the share.*0 shares for 3 scores"):
            loss(name, Z, Y, labels=torch.empty(0))


NUMBERS = ("squared_error", "absolute_error", "binary_cross_entropy")
CLASSES = [name for name in names("objectives") if name not in NUMBERS]


def test_numbers_that_are_off_and_labels_that_go_together() -> None:
    said, true = torch.tensor([[1.0, -3.0], [2.0, 0.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    assert loss("absolute_error", said, true).tolist() == [2.5, 1.0]
    p = said.sigmoid()
    expected = -(true * p.log() + (1 - true) * (1 - p).log()).mean(1)
    torch.testing.assert_close(loss("binary_cross_entropy", said, true), expected)


@pytest.mark.parametrize("name", CLASSES)
def test_numbers_are_no_classes(name: str) -> None:
    with pytest.raises(ConfigError, match=r"expected class labels.*--objective squared_error"):
        loss(name, Z, torch.tensor([0.5]))


@pytest.mark.parametrize("name", CLASSES)
class TestEveryObjectiveOfClasses:
    def test_one_loss_a_sample(self, name: str) -> None:
        logits = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
        target = torch.tensor([0, 1, 2, 3, 4, 0, 1])
        whole = loss(name, logits, target)
        assert whole.shape == (7,)
        torch.testing.assert_close(whole, torch.cat([loss(name, logits[[i]], target[[i]]) for i in range(7)]))

    def test_in_a_stack_as_alone(self, name: str) -> None:
        """The gradient of several nodes at once is that of each."""
        logits = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(1))
        target = torch.arange(18).reshape(3, 6) % 4

        def total(z: Tensor, y: Tensor) -> Tensor:
            return loss(name, z, y).sum()

        together = vmap(grad(total))(logits, target)
        for i in range(3):
            torch.testing.assert_close(together[i], grad(total)(logits[i], target[i]))

    def test_wants_the_true_class(self, name: str) -> None:
        """A step down the gradient makes the true class likelier."""
        z, y = torch.zeros(1, 4), torch.tensor([2])
        stepped = z - 0.1 * grad(lambda z: loss(name, z, y).sum())(z)
        assert stepped.argmax() == 2
        assert F.softmax(stepped, -1)[0, 2] > 0.25

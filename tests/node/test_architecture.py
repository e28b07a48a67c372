"""One module for all rows."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from coterie.contract import Layout
from coterie.node.architecture import Architecture, build
from coterie.parts import find


class Odd(nn.Module):
    """Parameters of every shape, one that is not trained, buffers of both kinds, and one that has no dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 4), nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.frozen = nn.Parameter(torch.full((4,), 3.0), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.norm(self.linear(x)) + self.frozen


@pytest.fixture
def odd() -> Architecture:
    torch.manual_seed(0)
    return Architecture("odd", Odd())


def test_layout(odd: Architecture) -> None:
    assert odd.layout.names == ("scale", "linear.weight", "linear.bias", "norm.weight", "norm.bias")
    assert odd.layout.shapes == ((), (4, 6), (4,), (4,), (4,))
    assert odd.layout.spans == [(0, 1), (1, 25), (25, 29), (29, 33), (33, 37)]
    assert odd.layout.size == 37
    assert odd.buffers.names == ("norm.running_mean", "norm.running_var")
    assert (odd.width, odd.integers) == (45, 1)


def test_what_no_state_holds_is_in_no_row() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("angles", torch.rand(5), persistent=False)
    module.register_buffer("places", torch.arange(5), persistent=False)
    made = Architecture("turned", module)
    assert (made.width, made.integers) == (6, 0)


def rows(odd: Architecture, n: int = 2) -> tuple[Tensor, Tensor]:
    matrix, integers = torch.zeros(n, odd.width), torch.zeros(n, odd.integers, dtype=torch.int64)
    for i in range(n):
        odd.read(matrix[i], integers[i])
    return matrix, integers


def test_read_and_point_are_inverse(odd: Architecture) -> None:
    matrix, integers = rows(odd)
    wanted = odd.module.eval()(torch.ones(3, 6))
    odd.point(torch.zeros(37), torch.zeros(8), torch.zeros(1, dtype=torch.int64))
    assert not torch.allclose(odd.module(torch.ones(3, 6)), wanted)
    odd.point(matrix[1, :37], matrix[1, 37:], integers[1])
    torch.testing.assert_close(odd.module(torch.ones(3, 6)), wanted)


def test_training_writes_into_the_row(odd: Architecture) -> None:
    """Nothing is copied: parameters, statistics and counts are the row itself."""
    matrix, integers = rows(odd)
    before = matrix.clone()
    odd.point(matrix[0, :37], matrix[0, 37:], integers[0])
    odd.module.train()(torch.randn(5, 6, generator=torch.Generator().manual_seed(0))).sum().backward()
    with torch.no_grad():
        for _, p in odd.parameters:
            p -= 0.1
    torch.testing.assert_close(matrix[0, :37], before[0, :37] - 0.1)
    assert (matrix[0, 37:41] != before[0, 37:41]).all()
    assert integers.tolist() == [[1], [0]]
    assert torch.equal(matrix[1], before[1])


def test_forward_at_any_parameters(odd: Architecture) -> None:
    matrix, _ = rows(odd)
    matrix[1, :37] += 0.5
    odd.module.eval()
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    stacked = vmap(odd.forward, in_dims=(0, None))(matrix[:, :37], x)
    for i in range(2):
        odd.point(matrix[i, :37])
        torch.testing.assert_close(stacked[i], odd.module(x))


def test_what_is_not_trained_stays_out(odd: Architecture) -> None:
    assert "frozen" not in odd.layout.names
    assert torch.equal(odd.module.frozen, torch.full((4,), 3.0))  # type: ignore[arg-type]


def test_signatures_tell_shapes_apart() -> None:
    made = [build("mlp", find("models", "mlp").make(sizes=s), (1, 8, 8), 10, "cpu") for s in ((8,), (9,), (8,))]
    assert made[0].signature != made[1].signature
    assert made[0].signature == made[2].signature


def test_building_leaves_global_randomness_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    build("mlp", find("models", "mlp").make(sizes=(8,)), (1, 8, 8), 10, "cpu")
    assert torch.equal(before, torch.get_rng_state())


class TestLayout:
    layout = Layout(("a", "b", "c"), ((2, 3), (), (4,)))

    def test_views_share_memory(self) -> None:
        x = torch.arange(22.0).reshape(2, 11)
        views = self.layout.views(x)
        assert {k: tuple(v.shape) for k, v in views.items()} == {"a": (2, 2, 3), "b": (2,), "c": (2, 4)}
        views["c"].zero_()
        assert not x[:, 7:].any()

    def test_map_goes_tensor_by_tensor(self) -> None:
        x = torch.arange(11.0)
        widths = []

        def formula(part: Tensor, other: Tensor) -> Tensor:
            widths.append(part.shape[-1])
            return part - other.mean(dim=-1, keepdim=True)

        found = self.layout.map(formula, x, x)
        assert widths == [6, 1, 4]
        torch.testing.assert_close(found, torch.cat([x[:6] - 2.5, x[6:7] - 6, x[7:] - 8.5]))


@pytest.mark.parametrize("name", ["mlp", "cnn", "logistic"])
def test_features_are_what_the_last_layer_is_given(name: str) -> None:
    model = build(name, find("models", name).make(), (1, 8, 8), 10, "cpu")
    x = torch.rand(3, 1, 8, 8)
    features, logits = model.look(x)
    *_, last = (m for m in model.module.modules() if isinstance(m, nn.Linear))
    torch.testing.assert_close(last(features), logits)
    torch.testing.assert_close(model.module(x), logits)
    assert not last._forward_pre_hooks
    (gradient,) = torch.autograd.grad(model.look(x)[1].sum(), last.weight)
    assert gradient.norm() > 0


def test_features_of_a_model_without_a_linear_layer_are_its_logits() -> None:
    model = Architecture("convolution", nn.Sequential(nn.Conv2d(1, 4, 8), nn.Flatten()))
    features, logits = model.look(torch.rand(3, 1, 8, 8))
    assert torch.equal(features, logits)

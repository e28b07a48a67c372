"""Every model takes a batch of samples to one score per class, with the sizes the papers give."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from coterie.errors import ConfigError
from coterie.parts import find, names

SHAPES = [(1, 28, 28), (3, 32, 32)]
ANY_SAMPLE = ("logistic", "mlp", "svm")


def build(name: str, shape: tuple[int, ...], classes: int, **settings: Any) -> nn.Module:
    module = find("models", name).make(**settings)(shape, classes)
    assert isinstance(module, nn.Module)
    return module


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def kinds(module: nn.Module) -> list[str]:
    return [type(m).__name__ for m in module.modules() if not list(m.children())]


@pytest.mark.parametrize(
    ("name", "shape"),
    [(n, s) for n in names("models") for s in SHAPES if (n, s) != ("vgg16", (1, 28, 28))],  # it halves five times
)
def test_every_model_scores_every_class_and_learns_in_every_layer(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = build(name, shape, 7).eval()
    scores = model(torch.randn(2, *shape))
    assert scores.shape == (2, 7)
    scores.square().sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.any(), key


@pytest.mark.parametrize("name", names("models"))
def test_the_seed_decides_the_start(name: str) -> None:
    def draw(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(build(name, (3, 32, 32), 10).parameters())

    first = draw(1)
    assert torch.equal(first, draw(1))
    assert not torch.equal(first, draw(2))


@pytest.mark.parametrize("name", names("models"))
def test_memory_order_of_the_input_does_not_matter(name: str) -> None:
    torch.manual_seed(0)
    model = build(name, (3, 32, 32), 10).eval()
    x = torch.randn(4, 3, 32, 32)
    last = x.to(memory_format=torch.channels_last)
    assert not last.is_contiguous()
    torch.testing.assert_close(model(last), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("logistic", (30,), 2, 62),
        ("svm", (30,), 2, 62),
        ("mlp", (1, 28, 28), 10, 567_434),
        ("cnn_mnist", (1, 28, 28), 10, 21_840),
        ("cnn_fashion", (1, 28, 28), 10, 1_199_882),
        ("cnn_emnist", (1, 28, 28), 26, 1_201_946),
        ("cnn_cifar", (3, 32, 32), 10, 356_810),
        ("cnn_so2sat", (10, 32, 32), 17, 8_456_433),
        ("vgg16", (3, 32, 32), 10, 33_638_218),
    ],
)
def test_sizes_are_those_of_the_papers(name: str, shape: tuple[int, ...], classes: int, parameters: int) -> None:
    assert size(build(name, shape, classes)) == parameters


@pytest.mark.parametrize(
    ("name", "shape", "features"),
    [("cnn_mnist", (1, 28, 28), 320), ("cnn_fashion", (1, 28, 28), 9216), ("cnn_cifar", (3, 32, 32), 2048)],
)
def test_the_dense_part_starts_with_the_papers_number_of_features(
    name: str, shape: tuple[int, ...], features: int
) -> None:
    model = build(name, shape, 10)
    assert next(m.in_features for m in model.modules() if isinstance(m, nn.Linear)) == features


@pytest.mark.parametrize("name", ANY_SAMPLE)
@pytest.mark.parametrize("shape", [(30,), (1, 8, 8), (5, 4)])
def test_dense_models_take_samples_of_any_shape(name: str, shape: tuple[int, ...]) -> None:
    assert build(name, shape, 3)(torch.randn(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize("name", ["logistic", "svm"])
def test_linear_models_are_linear(name: str) -> None:
    model = build(name, (5,), 3)
    a, b = torch.randn(2, 4, 5)
    torch.testing.assert_close(model(a + b) + model(torch.zeros(4, 5)), model(a) + model(b))


def test_hidden_layers_are_followed_by_relu_and_the_last_is_not() -> None:
    assert kinds(build("mlp", (4,), 2, sizes=(3, 3))) == ["Flatten", "Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert kinds(build("cnn_mnist", (1, 28, 28), 10)) == [
        *["Conv2d", "ReLU", "MaxPool2d"] * 2,
        *["Flatten", "Linear", "ReLU", "Linear"],
    ]
    assert kinds(build("cnn_so2sat", (10, 32, 32), 17)).count("MaxPool2d") == 0


def test_dropout_is_on_for_emnist_off_for_fashion_and_changes_no_parameter() -> None:
    plain, dropping = build("cnn_fashion", (1, 28, 28), 26), build("cnn_emnist", (1, 28, 28), 26)
    assert "Dropout" not in kinds(plain)
    assert [m.p for m in dropping.modules() if isinstance(m, nn.Dropout)] == [0.25, 0.5]
    assert size(plain) == size(dropping)


@pytest.mark.parametrize("channels", [(32, 64), (32, 64, 128, 256), (8, 16, 32, 64)])
@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_a_cnn_has_the_channels_and_norm_asked_for(channels: tuple[int, ...], norm: str) -> None:
    model = build("cnn", (3, 32, 32), 10, channels=channels, norm=norm, hidden=(20,))
    assert tuple(m.out_channels for m in model.modules() if isinstance(m, nn.Conv2d)) == channels
    assert kinds(model).count("BatchNorm2d") == (len(channels) if norm == "batch" else 0)
    assert kinds(model).count("GroupNorm") == (len(channels) if norm == "layer" else 0)
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)


def test_layer_norm_is_over_channels_and_pixels_of_each_sample_together() -> None:
    torch.manual_seed(0)
    model = build("cnn", (3, 16, 16), 10, norm="layer")
    assert isinstance(model, nn.Sequential)
    convolved = model[0](torch.randn(4, 3, 16, 16))
    torch.testing.assert_close(model[1](convolved), nn.functional.layer_norm(convolved, convolved.shape[1:]))


def test_padding_keeps_the_image_size_unless_told_otherwise() -> None:
    def features(**settings: Any) -> int:
        model = build("cnn", (1, 28, 28), 10, channels=(6,), kernel=5, **settings)
        return next(m.in_features for m in model.modules() if isinstance(m, nn.Linear))

    assert features() == 6 * 14 * 14
    assert features(padding=0) == 6 * 12 * 12


@pytest.mark.parametrize("name", [n for n in names("models") if n.startswith(("cnn", "vgg"))])
def test_an_image_that_is_too_small_or_none_at_all_says_what_to_do(name: str) -> None:
    with pytest.raises(ConfigError, match="mlp"):
        build(name, (30,), 10)
    if name != "cnn_so2sat":  # its layers keep the size of any image
        with pytest.raises(ConfigError, match=r"too few for the layers of model .* Use"):
            build(name, (3, 2, 2), 10)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mlp", {"sizes": (10, 0)}),
        ("cnn", {"channels": (0,)}),
        ("cnn", {"kernel": 0}),
        ("cnn", {"padding": -1}),
        ("cnn", {"hidden": (-3,)}),
        ("cnn", {"norm": "group"}),
        ("vgg16", {"dropout": 1.5}),
    ],
)
def test_settings_that_cannot_be_are_refused(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        build(name, (3, 32, 32), 10, **settings)


@pytest.mark.parametrize("name", names("models"))
def test_every_model_says_what_it_is(name: str) -> None:
    assert find("models", name).summary.endswith(".")

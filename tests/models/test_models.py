"""Every model takes a batch of samples to one score per class, with the sizes the papers give."""

import importlib.util
import sys
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from coterie.contract import Me
from coterie.errors import ConfigError
from coterie.parts import find, names

SHAPES = [(1, 28, 28), (3, 32, 32)]
ANY_SAMPLE = ("logistic", "mlp", "svm")
HALVES_FIVE_TIMES = ("vgg16", "efficientnet")
WITH_TRANSFORMERS = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)
OF_PICTURES = [n for n in names("models") if n != "lora" and not hasattr(find("models", n).target, "takes")]
MODELS = [pytest.param(n, marks=WITH_TRANSFORMERS) if n == "efficientnet" else n for n in OF_PICTURES]


def build(name: str, shape: tuple[int, ...], classes: int, **settings: Any) -> nn.Module:
    module = find("models", name).make(**settings)(shape, classes)
    assert isinstance(module, nn.Module)
    return module


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def kinds(module: nn.Module) -> list[str]:
    return [type(m).__name__ for m in module.modules() if not list(m.children())]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_model_scores_every_class_and_learns_in_every_layer(name: str, shape: tuple[int, ...]) -> None:
    if name in HALVES_FIVE_TIMES and shape[-1] < 32:
        with pytest.raises(ConfigError, match="too few for the layers"):
            build(name, shape, 7)
        return
    torch.manual_seed(0)
    # statistics of samples, since those that batch norm begins with let the signal of a deep net fade away
    model = build(name, shape, 7).train(name == "efficientnet")
    scores = model(torch.randn(2, *shape))
    assert scores.shape == (2, 7)
    scores.square().sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.any(), key


@pytest.mark.parametrize("name", MODELS)
def test_the_seed_decides_the_start(name: str) -> None:
    def draw(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(build(name, (3, 32, 32), 10).parameters())

    first = draw(1)
    assert torch.equal(first, draw(1))
    assert not torch.equal(first, draw(2))


@pytest.mark.parametrize("name", MODELS)
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
        ("resnet", (3, 32, 32), 10, 11_172_170),
        ("resnet18", (3, 224, 224), 1000, 11_689_512),
        ("resnet18", (1, 28, 28), 10, 11_175_370),
        pytest.param("efficientnet", (3, 32, 32), 1000, 5_288_548, marks=WITH_TRANSFORMERS),
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


@pytest.mark.parametrize("name", ["logistic", "svm"])
def test_two_classes_can_share_one_score(name: str) -> None:
    model, x = build(name, (5,), 2, one=True), torch.randn(4, 5)
    assert size(model) == 6
    scores = model(x)
    assert scores.shape == (4, 2)
    assert not scores[:, 0].any()
    with pytest.raises(ConfigError, match="one score for all classes: expected 2 classes, got 3"):
        build(name, (5,), 3, one=True)


def test_of_one_score_losses_are_those_of_labels_plus_and_minus_one() -> None:
    s, y = torch.linspace(-3, 3, 7), torch.tensor([0, 1, 0, 1, 0, 1, 1])
    sign, scores, me = 2.0 * y - 1, torch.stack([torch.zeros(7), s], 1), cast(Me, None)  # neither asks for it
    hinge, entropy = find("objectives", "hinge").make(), find("objectives", "cross_entropy").make()
    torch.testing.assert_close(hinge(scores, y, me), (1 - sign * s).clamp(min=0))
    torch.testing.assert_close(entropy(scores, y, me), torch.log1p(torch.exp(-sign * s)))


def test_hidden_layers_are_followed_by_relu_and_the_last_is_not() -> None:
    assert kinds(build("mlp", (4,), 2, sizes=(3, 3))) == ["Flatten", "Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert kinds(build("cnn_mnist", (1, 28, 28), 10)) == [
        *["Conv2d", "MaxPool2d", "ReLU"] * 2,
        *["Flatten", "Linear", "ReLU", "Linear"],
    ]
    assert kinds(build("cnn_so2sat", (10, 32, 32), 17)).count("MaxPool2d") == 0


def test_relu_after_the_pool_is_the_same_function_with_the_same_gradient() -> None:
    pooled_first = build("cnn_mnist", (1, 28, 28), 10)
    assert isinstance(pooled_first, nn.Sequential)
    layers = list(pooled_first)
    for i, layer in enumerate(layers[:]):
        if isinstance(layer, nn.MaxPool2d):
            layers[i : i + 2] = layers[i + 1], layer
    x, y = torch.randn(4, 1, 28, 28), torch.arange(4)
    found = []
    for net in (pooled_first, nn.Sequential(*layers)):
        scores = net(x)
        loss = nn.functional.cross_entropy(scores, y)
        found.append((scores, *torch.autograd.grad(loss, list(pooled_first.parameters()))))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


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


def test_layer_norm_may_follow_the_pool_as_in_mutual_learning() -> None:
    model = build("cnn", (3, 32, 32), 10, channels=(4, 8), norm="layer", norm_after="pool")
    assert kinds(model) == [*["Conv2d", "MaxPool2d", "ReLU", "GroupNorm"] * 2, "Flatten", "Linear"]
    assert [m.num_channels for m in model.modules() if isinstance(m, nn.GroupNorm)] == [4, 8]


def test_four_pools_leave_nothing_of_eight_pixels() -> None:
    with pytest.raises(ConfigError, match=r"8×8 pixels are too few for the layers of model 'cnn'. Use larger images"):
        build("cnn", (3, 8, 8), 10, channels=(32, 64, 128, 256))
    assert build("cnn", (3, 16, 16), 10, channels=(32, 64, 128, 256))(torch.randn(2, 3, 16, 16)).shape == (2, 10)


IMAGES_ONLY = [n for n in OF_PICTURES if n not in ANY_SAMPLE]


@pytest.mark.parametrize("name", IMAGES_ONLY)
def test_an_image_that_is_too_small_or_none_at_all_says_what_to_do(name: str) -> None:
    with pytest.raises(ConfigError, match="mlp"):
        build(name, (30,), 10)
    if name not in ("cnn_so2sat", "resnet", "resnet18", "vit"):  # their layers take an image of any size, or patches
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
        ("cnn", {"norm_after": "relu"}),
        ("vgg16", {"dropout": 1.5}),
        ("resnet", {"channels": ()}),
        ("resnet", {"channels": (4, 0)}),
        ("resnet", {"blocks": 0}),
        ("resnet", {"norm": "group"}),
        ("resnet", {"stem": 5}),
        ("resnet18", {"channels": ()}),
        ("resnet18", {"blocks": 0}),
        ("vit", {"width": 0}),
        ("vit", {"depth": 0}),
        ("vit", {"patch": 0}),
        ("vit", {"head": 0}),
        ("vit", {"dropout": 1.0}),
        ("efficientnet", {"variant": "b9"}),
    ],
)
def test_settings_that_cannot_be_are_refused(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        build(name, (3, 32, 32), 10, **settings)


@pytest.mark.parametrize("name", names("models"))
def test_every_model_says_what_it_is(name: str) -> None:
    assert find("models", name).summary.endswith(".")


# Residual nets.


@pytest.mark.parametrize("channels", [(64, 128, 256, 512), (4, 8, 16, 32), (6, 6)])
@pytest.mark.parametrize(("norm", "layer"), [("batch", "BatchNorm2d"), ("layer", "GroupNorm"), ("none", "")])
def test_a_residual_net_has_the_channels_and_norm_asked_for(channels: tuple[int, ...], norm: str, layer: str) -> None:
    model = build("resnet", (3, 16, 16), 10, channels=channels, norm=norm)
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    stages = [c.out_channels for c in convolutions if c.kernel_size == (3, 3)]
    assert stages == [channels[0], *(c for c in channels for _ in range(4))]  # two blocks of two in each stage
    assert len([c for c in convolutions if c.kernel_size == (1, 1)]) == len(channels) - 1
    assert {type(m).__name__ for m in model.modules()} & {"BatchNorm2d", "GroupNorm"} == {layer} - {""}
    assert all((c.bias is None) == (norm != "none") for c in convolutions if c.kernel_size == (3, 3))


@pytest.mark.parametrize(("stem", "size", "sides"), [(3, 32, [32, 16, 8, 4]), (7, 28, [7, 4, 2, 1])])
def test_stages_halve_the_image_after_the_stem(stem: int, size: int, sides: list[int]) -> None:
    model = build("resnet", (1, size, size), 10, channels=(2, 3, 4, 5), blocks=1, stem=stem)
    seen: list[int] = []
    for layer in model.children():
        if type(layer).__name__ == "_Block":
            layer.register_forward_hook(lambda _, __, out: seen.append(out.shape[-1]))
    model(torch.randn(2, 1, size, size))
    assert seen == sides


def test_a_residual_block_that_adds_nothing_hands_on_what_it_was_given() -> None:
    """Pre-activation: between stages nothing stands in the way of the shortcut."""
    model = build("resnet", (1, 8, 8), 3, channels=(4,), blocks=3, norm="layer").eval()
    assert isinstance(model, nn.Sequential)
    blocks = [layer for layer in model if type(layer).__name__ == "_Block"]
    for block in blocks:
        nn.init.zeros_(block.conv2.weight)  # type: ignore[arg-type, union-attr]
    x = torch.randn(2, 4, 8, 8)
    torch.testing.assert_close(nn.Sequential(*blocks)(x), x)


def test_the_first_residual_net_is_the_published_one_layer_by_layer() -> None:
    model = build("resnet18", (1, 28, 28), 10, channels=(8, 16, 32, 64)).eval()
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert [c.kernel_size[0] for c in convolutions].count(3) == 16
    assert [c.kernel_size[0] for c in convolutions].count(1) == 3  # shortcuts where a stage begins
    assert convolutions[0].stride == (2, 2)
    sides: list[int] = []
    for layer in model.children():
        if type(layer).__name__ == "_Block":
            layer.register_forward_hook(lambda _, __, out: sides.append(out.shape[-1]))
    model(torch.randn(2, 1, 28, 28))
    assert sides == [7, 7, 4, 4, 2, 2, 1, 1]


def test_the_first_residual_net_cuts_what_is_negative_after_the_sum() -> None:
    """Post-activation: a block that adds nothing hands on what is positive."""
    model = build("resnet18", (1, 8, 8), 3, channels=(4,), norm="none").eval()
    block = next(layer for layer in model.modules() if type(layer).__name__ == "_Block")
    for p in block.parameters():
        nn.init.zeros_(p)
    x = torch.randn(2, 4, 8, 8)
    torch.testing.assert_close(block(x), x.relu())


# Vision transformers.


@pytest.mark.parametrize(("width", "heads"), [(512, 8), (128, 2), (64, 1), (32, 1), (96, 1)])
def test_a_transformer_has_heads_of_64_dimensions(width: int, heads: int) -> None:
    model = build("vit", (3, 32, 32), 10, width=width)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert [s for n, s in shapes.items() if n.endswith("query.weight")] == [(64 * heads, width)] * 2
    assert [s for n, s in shapes.items() if n.endswith("scale")] == [(heads,)] * 2
    assert [s for n, s in shapes.items() if n.endswith("places")] == [(65, width)]
    assert [s for n, s in shapes.items() if n.endswith("project.weight")] == [(width, 5 * 3 * 16)]


def part_of(model: nn.Module, kind: str) -> nn.Module:
    return next(m for m in model.modules() if type(m).__name__ == kind)


def test_patches_are_of_the_image_and_of_it_moved_along_the_diagonals() -> None:
    patches = part_of(build("vit", (1, 8, 8), 3, width=8), "_Patches")
    seen: list[Tensor] = []
    patches.norm.register_forward_pre_hook(lambda _, given: seen.append(given[0]))  # type: ignore[union-attr, operator]
    image = torch.arange(1.0, 65.0).reshape(1, 1, 8, 8)
    patches(image)
    assert seen[0].shape == (1, 4, 5 * 16)
    whole, down, *_, up = seen[0][0, 0].reshape(5, 4, 4)
    assert torch.equal(whole, image[0, 0, :4, :4])
    assert torch.equal(up, image[0, 0, 2:6, 2:6])
    assert torch.equal(down[2:, 2:], image[0, 0, :2, :2])
    assert not down[:2].any()
    assert not down[:, :2].any()


def test_no_token_attends_to_itself_and_the_temperature_is_learnt() -> None:
    attention = part_of(build("vit", (1, 8, 8), 3, width=6, head=3, dropout=0.0), "_Attention")
    x = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))
    q, k, v = (layer(x).unflatten(-1, (2, 3)) for layer in (attention.query, attention.key, attention.value))  # type: ignore[operator]
    for scale in (3**-0.5, 0.2):
        attention.scale.data[:] = scale if scale == 0.2 else attention.scale.data  # type: ignore[union-attr, operator]
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * scale
        shares = torch.stack([scores[..., i, [j for j in range(4) if j != i]].softmax(-1) for i in range(4)], dim=2)
        others = torch.stack([v[:, [j for j in range(4) if j != i]] for i in range(4)], dim=1)
        found = torch.einsum("bhij,bijhd->bihd", shares, others).flatten(2)
        torch.testing.assert_close(attention(x), attention.out(found))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("shape", "cure"), [((1, 30, 30), 3), ((3, 32, 36), 4), ((1, 7, 7), 7), ((1, 9, 6), 3), ((1, 7, 8), 1)]
)
def test_patches_must_divide_the_image(shape: tuple[int, ...], cure: int) -> None:
    patch = 8 if cure == 4 else 4
    with pytest.raises(ConfigError, match=rf"divide {shape[1]}×{shape[2]} pixels, got {patch}.*--model.patch {cure}\."):
        build("vit", shape, 10, patch=patch)
    assert build("vit", shape, 10, patch=cure, width=8)(torch.randn(2, *shape)).shape == (2, 10)


# EfficientNet.


def test_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r'efficientnet.* needs transformers.*pip install "coterie\[transformers\]"'):
        build("efficientnet", (3, 32, 32), 10)


@WITH_TRANSFORMERS
def test_variants_grow() -> None:
    sizes = [size(build("efficientnet", (3, 32, 32), 10, variant=f"b{i}")) for i in range(5)]
    assert sizes == sorted(set(sizes))
    assert sizes[4] == 17_566_546


@WITH_TRANSFORMERS
def test_samples_make_a_difference_to_an_untrained_efficientnet() -> None:
    torch.manual_seed(0)
    scores = build("efficientnet", (3, 64, 64), 10)(torch.randn(4, 3, 64, 64))
    assert scores.std(0).mean() > 0.05


# Stacks.


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cnn", {"channels": (2, 3), "norm": "layer", "norm_after": "pool"}),
        ("resnet", {"channels": (2, 4), "norm": "layer"}),
        ("resnet", {"channels": (2, 4), "norm": "batch", "stem": 7}),
        ("resnet", {"channels": (2, 4), "norm": "none"}),
        ("resnet18", {"channels": (2, 4)}),
        ("vit", {"width": 8, "head": 4}),
    ],
)
def test_stacked_models_say_what_each_says(name: str, settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, x = build(name, (3, 16, 16), 5, **settings).eval(), torch.randn(2, 3, 16, 16)
    rows = {key: torch.randn(3, *p.shape) * 0.3 for key, p in model.named_parameters()}
    stacked = vmap(lambda one: functional_call(model, one, (x,)))(rows)
    for i in range(3):
        alone = functional_call(model, {key: row[i] for key, row in rows.items()}, (x,))
        torch.testing.assert_close(stacked[i], alone, rtol=1e-4, atol=1e-4)

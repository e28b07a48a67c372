"""What architectures cost, by hand."""

import pytest
import torch

from coterie.job import Samples
from coterie.node.cost import Cost, cost
from coterie.parts import Choice


def images(*shape: int) -> Samples:
    """One image of this shape (channels, height, width), of ten classes."""
    depth, height, width = shape
    x, y = torch.zeros(1, height, width, depth), torch.zeros(1, dtype=torch.int64)
    return Samples(x, y, x, y, 10, shape)


def of(name: str, samples: Samples, **settings: object) -> Cost:
    return cost(Choice("models", name, settings), samples)


def test_a_perceptron() -> None:
    """2·in·out operations for each layer; kept are the sample and what each hidden layer gives."""
    flops = 2 * (784 * 30 + 30 * 20 + 20 * 10)
    assert of("mlp", images(1, 28, 28), sizes=(30, 20)) == Cost(flops, 4 * (784 + 30 + 20))


def test_a_convolution() -> None:
    """2·kernel²·in·out operations for each pixel; kept are images before and after, where each maximum stood, and what
    is left laid out flat, as channels come last."""
    flops = 2 * 9 * 3 * 4 * 64 + 2 * (4 * 16) * 10
    kept = 4 * (3 * 64 + 4 * 64 + 2 * 4 * 16) + 8 * (4 * 16)
    assert of("cnn", images(3, 8, 8), channels=(4,), kernel=3) == Cost(flops, kept)


@pytest.mark.parametrize("name", ["resnet", "vit"])
def test_wider_is_dearer(name: str) -> None:
    widths: list[object] = [(4, 8), (8, 16)] if name == "resnet" else [16, 32]
    first = "channels" if name == "resnet" else "width"
    small, large = (of(name, images(1, 8, 8), **{first: w}) for w in widths)
    assert small.flops < large.flops
    assert small.activation_bytes < large.activation_bytes


def test_equal_tensors_may_cost_differently() -> None:
    """A stem that halves the image twice has no more parameters than one that does not, and saves work."""
    plain, halved = (of("resnet", images(1, 32, 32), channels=(4,), stem=stem) for stem in (3, 7))
    assert halved.flops < plain.flops


def test_the_data_count() -> None:
    assert of("logistic", images(1, 8, 8)).flops * 4 == of("logistic", images(1, 16, 16)).flops

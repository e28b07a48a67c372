"""Optimisers, step for step the same as PyTorch's."""

from typing import Any

import pytest
import torch

from coterie.optimisers import Optimiser
from coterie.parts import find, names

PAIRS: list[tuple[str, dict[str, Any], Any, dict[str, Any]]] = [
    ("sgd", {"lr": 0.1}, torch.optim.SGD, {"lr": 0.1}),
    ("sgd", {"lr": 0.1, "momentum": 0.9}, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    ("sgd", {"lr": 0.1, "weight_decay": 0.03}, torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.03}),
    (
        "sgd",
        {"lr": 0.02, "momentum": 0.5, "weight_decay": 0.1},
        torch.optim.SGD,
        {"lr": 0.02, "momentum": 0.5, "weight_decay": 0.1},
    ),
    ("adam", {"lr": 0.01}, torch.optim.Adam, {"lr": 0.01}),
    (
        "adam",
        {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-4, "weight_decay": 0.1},
        torch.optim.Adam,
        {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1},
    ),
    ("adamw", {"lr": 0.01}, torch.optim.AdamW, {"lr": 0.01}),
    ("adamw", {"lr": 0.01, "weight_decay": 0.2}, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.2}),
]


def gradients(steps: int, *shape: int) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=rng) * 10.0**-k for k in range(steps)]


def buffers(optimiser: Optimiser, w: torch.Tensor) -> dict[str, torch.Tensor]:
    return {slot: torch.zeros_like(w) for slot in optimiser.slots}


@pytest.mark.parametrize(("name", "settings", "theirs", "options"), PAIRS)
def test_same_as_pytorch(name: str, settings: dict[str, Any], theirs: Any, options: dict[str, Any]) -> None:
    ours: Optimiser = find("optimisers", name).make(**settings)
    w = torch.linspace(-1, 1, 12).reshape(3, 4)
    parameter = torch.nn.Parameter(w.clone())
    reference, kept = theirs([parameter], **options), buffers(ours, w)
    for count, gradient in enumerate(gradients(6, 3, 4), 1):
        parameter.grad = gradient.clone()
        reference.step()
        ours.step(w, gradient.clone(), kept, count)
        torch.testing.assert_close(w, parameter.detach(), rtol=1e-6, atol=1e-7)


def test_every_optimiser_is_compared_with_pytorch() -> None:
    assert {name for name, *_ in PAIRS} | {"cosine"} == set(names("optimisers"))


@pytest.mark.parametrize(
    ("epoch", "rate"), [(0, 1e-6), (0.5, 15.5e-6), (1, 3e-5), (25.5, 2e-5), (50, 1e-5), (60, 1e-5)]
)
def test_the_rate_rises_on_a_line_and_falls_on_a_cosine(epoch: float, rate: float) -> None:
    schedule = find("optimisers", "cosine").make()
    assert schedule.rate(epoch, 50) == pytest.approx(rate)
    assert schedule.at(epoch, 50) == find("optimisers", "adamw").make(lr=schedule.rate(epoch, 50))


def test_the_cosine_is_pytorchs() -> None:
    ours = find("optimisers", "cosine").make(of="sgd", lr=0.3, floor=0.1, warmup=0.0)
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, 10, eta_min=0.1)
    for epoch in range(10):
        assert ours.rate(epoch, 10) == pytest.approx(schedule.get_last_lr()[0])
        theirs.step()
        schedule.step()


def test_a_schedule_may_have_an_end_of_its_own() -> None:
    schedule = find("optimisers", "cosine").make(epochs=3.0)
    assert schedule.at(3, 50) == find("optimisers", "adamw").make(lr=schedule.floor)


@pytest.mark.parametrize(
    "settings", [{"of": "cosine"}, {"lr": 1e-7}, {"floor": -1.0}, {"warmup": -1.0}, {"epochs": 0.0}]
)
def test_a_schedule_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|another schedule"):
        find("optimisers", "cosine").make(**settings)


@pytest.mark.parametrize("name", names("optimisers"))
class TestEveryOptimiser:
    def test_in_a_stack_as_alone(self, name: str) -> None:
        ours: Optimiser = find("optimisers", name).make()
        stack = torch.linspace(-1, 1, 30).reshape(3, 10)
        rows, kept = stack.clone(), buffers(ours, stack)
        single = [buffers(ours, rows[i]) for i in range(3)]
        for count, gradient in enumerate(gradients(4, 3, 10), 1):
            ours.step(stack, gradient.clone(), kept, count)
            for i in range(3):
                ours.step(rows[i], gradient[i].clone(), single[i], count)
        torch.testing.assert_close(stack, rows)

    def test_the_loss_falls(self, name: str) -> None:
        """On a bowl every optimiser comes nearer to the bottom."""
        ours: Optimiser = find("optimisers", name).make(lr=0.05)
        w = torch.tensor([1.0, -2.0])
        kept = buffers(ours, w)
        for count in range(1, 200):
            ours.step(w, w.clone(), kept, count)
        assert w.norm() < 0.1

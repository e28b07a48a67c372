"""A model of which only the head is trained, as a user would bring it."""

import torch
from torch import Tensor, nn

DRAW = 0
"""Which weights the frozen part has: as if they came from a file."""


class Net(nn.Module):
    """A frozen part with batch norm, dropout and a count of its own before a head that is trained."""

    def __init__(self, shape: tuple[int, ...], classes: int, plain: bool) -> None:
        super().__init__()
        torch.manual_seed(DRAW)
        inside = nn.Linear(torch.Size(shape).numel(), 12)
        more = [] if plain else [nn.BatchNorm1d(12), nn.Dropout(0.5), nn.BatchNorm1d(12, affine=False)]
        self.eyes = nn.Sequential(nn.Flatten(), inside, *more, nn.Tanh()).requires_grad_(False)
        self.head = nn.Linear(12, classes)
        self.norm = nn.Identity() if plain else nn.BatchNorm1d(12)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.norm(self.eyes(x)))
        return scores


def half_frozen(shape: tuple[int, ...], classes: int, *, plain: bool = False) -> nn.Module:
    """The model; `plain` leaves out what cannot be stacked."""
    return Net(shape, classes, plain)


def begins_as_given(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model whose first layer begins with weights of its own, and is trained."""
    net = Net(shape, classes, True)
    net.eyes.requires_grad_(True).given = True  # type: ignore[assignment]
    return net

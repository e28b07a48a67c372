from math import prod

from torch import nn


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Logistic regression: one linear layer, for the cross-entropy objective."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))

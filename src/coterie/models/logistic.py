from math import prod

from torch import nn

from coterie.models._layers import LinearScores


def logistic(shape: tuple[int, ...], classes: int, *, one: bool = False) -> nn.Module:
    """Logistic regression: one linear layer, with one score per class or one for both of two, for cross-entropy."""
    return LinearScores(prod(shape), classes, one)

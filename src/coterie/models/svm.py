from math import prod

from torch import nn

from coterie.models._layers import LinearScores


def svm(shape: tuple[int, ...], classes: int, *, one: bool = False) -> nn.Module:
    """A linear support vector machine: one linear score per class, or one for both of two, for the hinge objective."""
    return LinearScores(prod(shape), classes, one)

from math import prod

from torch import nn


def svm(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A linear support vector machine: one linear score per class (two for two classes), for the hinge objective."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))

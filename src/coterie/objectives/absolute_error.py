"""A loss of numeric targets that outliers do not rule."""

from torch import Tensor

from coterie.contract import Me
from coterie.objectives import per_number


def absolute_error(outputs: Tensor, target: Tensor, me: Me) -> Tensor:
    """Absolute error: how far the model's numbers are from the target's, for regression with outliers.

    loss = mean over the numbers of a target of |ŷ − y|
    """
    return per_number("absolute_error", outputs, target, lambda said, true: (said - true).abs())

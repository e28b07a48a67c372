"""The ordinary loss of numeric targets."""

from torch import Tensor

from coterie.contract import Me
from coterie.objectives import per_number


def squared_error(outputs: Tensor, target: Tensor, me: Me) -> Tensor:
    """Squared error: how far the model's numbers are from the target's, for regression.

    loss = mean over the numbers of a target of (ŷ − y)²
    """
    return per_number("squared_error", outputs, target, lambda said, true: (said - true).square())

"""How far predicted numbers are off."""

from typing import ClassVar

from torch import Tensor

from coterie.metrics import Mean, per_number


class Error(Mean):
    """Mean squared error of numeric targets.

    error = mean of (ŷ − y)², over samples and over the numbers of a target
    """

    lower: ClassVar[bool] = True

    def each(self, outputs: Tensor, targets: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """The mean squared difference of each sample's numbers."""
        return per_number(self, outputs, targets, lambda said, true: (said - true).square()), real

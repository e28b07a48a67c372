"""The share of right answers where labels may go together."""

from torch import Tensor

from coterie.metrics import Mean, per_number


class LabelsRight(Mean):
    """The share of labels that are rightly said to be there or not, one minus the Hamming loss (multi-label).

    share = mean of [(z > 0) = (y > ½)], over samples and over the labels of a target
    """

    def each(self, outputs: Tensor, targets: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """The share of each sample's labels that are right."""
        return per_number(self, outputs, targets, lambda said, true: ((said > 0) == (true > 0.5)).float()), real

"""The share of right answers."""

from torch import Tensor

from coterie.metrics import Mean, labelled


class Accuracy(Mean):
    """Accuracy: the share of samples, or tokens, whose class has the highest score.

    accuracy = mean of [argmax_c z_c = y]
    """

    def each(self, outputs: Tensor, targets: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """1 where the highest score is that of the true class."""
        scores, labels, counts = labelled(self, outputs, targets, real)
        return scores.argmax(-1) == labels, counts

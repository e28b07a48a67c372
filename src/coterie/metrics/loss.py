"""The ordinary loss of class labels."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from coterie.metrics import Mean, labelled


class Loss(Mean):
    """Mean cross-entropy of class labels or tokens, in nats, whatever the training objective is.

    loss = mean of −log softmax(z)_y
    """

    lower: ClassVar[bool] = True

    def each(self, outputs: Tensor, targets: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """The cross-entropy of each label."""
        scores, labels, counts = labelled(self, outputs, targets, real)
        return F.cross_entropy(scores.flatten(0, 1), labels.reshape(-1), reduction="none").view_as(labels), counts

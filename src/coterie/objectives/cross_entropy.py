"""The ordinary classification loss."""

import torch.nn.functional as F
from torch import Tensor

from coterie.contract import Me


def cross_entropy(logits: Tensor, target: Tensor, me: Me) -> Tensor:
    """Cross-entropy: the negative log-probability of the true class.

    loss = −log softmax(z)_y
    """
    return F.cross_entropy(logits, target, reduction="none")

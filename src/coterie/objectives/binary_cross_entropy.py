"""The loss of labels that may go together."""

import torch.nn.functional as F
from torch import Tensor

from coterie.contract import Me
from coterie.objectives import per_number


def _each(scores: Tensor, true: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(scores, true, reduction="none")


def binary_cross_entropy(scores: Tensor, target: Tensor, me: Me) -> Tensor:
    """Binary cross-entropy: each label of a sample is there or not, whatever the others are (multi-label).

    loss = −mean over labels of [y log σ(z) + (1 − y) log(1 − σ(z))], with y from 0 to 1
    """
    return per_number("binary_cross_entropy", scores, target, _each)

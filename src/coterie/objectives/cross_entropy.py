"""The ordinary classification loss."""

import numpy as np
import torch.nn.functional as F
from scipy.special import expit
from torch import Tensor

from coterie.contract import Me
from coterie.objectives import Numbers, expect_classes, shaped


def _value(m: Numbers) -> Numbers:
    value: Numbers = np.logaddexp(0, -m)
    return value


def _slope(m: Numbers) -> Numbers:
    slope: Numbers = -expit(-m)
    return slope


def _bend(m: Numbers) -> Numbers:
    bend: Numbers = expit(m) * expit(-m)
    return bend


@shaped(_value, _slope, _bend)
def cross_entropy(logits: Tensor, target: Tensor, me: Me) -> Tensor:
    """Cross-entropy: the negative log-probability of the true class, or of the tokens of a sequence on average.

        loss = −log softmax(z)_y

    Of a sequence, logits are `[B, L, C]` and targets `[B, L]`; tokens whose target is -100 do not count.
    """
    expect_classes("cross_entropy", target)
    if target.dim() == 1:
        return F.cross_entropy(logits, target, reduction="none")
    each = F.cross_entropy(logits.flatten(0, -2), target.flatten(), reduction="none").view(len(target), -1)
    return each.sum(1) / (target != -100).flatten(1).sum(1).clamp(min=1)

"""The loss of a support-vector machine."""

import numpy as np
from torch import Tensor

from coterie.contract import Me
from coterie.objectives import Numbers, expect_classes, shaped


def _value(m: Numbers, *, margin: float = 1.0, squared: bool = False) -> Numbers:
    gap = np.maximum(margin - m, 0)
    return gap * gap if squared else gap


def _slope(m: Numbers, *, margin: float = 1.0, squared: bool = False) -> Numbers:
    slope: Numbers = np.maximum(margin - m, 0) * -2.0 if squared else np.float32(0) - (m <= margin)
    return slope


def _bend(m: Numbers, *, margin: float = 1.0, squared: bool = False) -> Numbers:
    return np.where(m <= margin, 2.0, 0.0) if squared else np.full_like(m, np.nan)


@shaped(_value, _slope, _bend)
def hinge(logits: Tensor, target: Tensor, me: Me, *, margin: float = 1.0, squared: bool = False) -> Tensor:
    """How far the best wrong class comes within the margin of the true one; for a linear SVM.

        loss = max(0, margin + max_{c≠y} z_c − z_y),   or its square

    Reference: Crammer and Singer, On the Algorithmic Implementation of Multiclass Kernel-based Vector Machines, 2001
    """
    expect_classes("hinge", target)
    true = logits.gather(-1, target.unsqueeze(-1))
    rival = logits.scatter(-1, target.unsqueeze(-1), float("-inf")).amax(dim=-1)
    gap = (margin + rival - true.squeeze(-1)).clamp(min=0)
    return gap.square() if squared else gap

"""Cross-entropy against softened labels."""

import torch.nn.functional as F
from torch import Tensor

from coterie.contract import Me
from coterie.objectives import expect_classes


def label_smoothing(logits: Tensor, target: Tensor, me: Me, *, smoothing: float = 0.1) -> Tensor:
    """Cross-entropy with a share of every label spread evenly over all classes.

        loss = −Σ_c q_c log softmax(z)_c,   q = (1 − smoothing)·onehot(y) + smoothing/C

    Reference: Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2016
    """
    expect_classes("label_smoothing", target)
    return F.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing)

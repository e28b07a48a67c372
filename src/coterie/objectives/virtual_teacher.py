"""Distillation from a teacher that does not exist."""

import math
from typing import Annotated

import torch.nn.functional as F
from annotated_types import Gt, Le
from torch import Tensor

from coterie.contract import Me
from coterie.objectives import expect_classes


def virtual_teacher(logits: Tensor, target: Tensor, me: Me, *, beta: Annotated[float, Gt(0), Le(1)] = 0.99) -> Tensor:
    """The divergence from a made-up teacher that gives β to the true class and shares the rest evenly.

        loss = KL(p_t ‖ softmax(z)),   p_t = β on the true class, (1 − β)/(C − 1) elsewhere

    C is the number of all classes, not of those a node has seen.

    Reference: Valerio et al., Coordination-free Decentralised Federated Learning on Complex Networks, 2023, Eqs. 7–8
    """
    expect_classes("virtual_teacher", target)
    classes = logits.shape[-1]
    rest = (1 - beta) / (classes - 1)
    logp = F.log_softmax(logits, dim=-1)
    true = logp.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    entropy = beta * math.log(beta) + ((1 - beta) * math.log(rest) if rest > 0 else 0.0)
    return entropy - beta * true - rest * (logp.sum(dim=-1) - true)

"""Distillation from a teacher that does not exist and is not always equally sure."""

from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Le
from torch import Tensor

from coterie.contract import Me
from coterie.objectives import expect_classes

Share = Annotated[float, Ge(0.0), Le(1.0)]


def random_virtual_teacher(
    logits: Tensor, target: Tensor, me: Me, noise: Tensor, *, low: Share = 0.9, high: Share = 1.0
) -> Tensor:
    """The virtual teacher with a β of its own for each sample, drawn anew whenever the sample is seen.

        loss = KL(p_t ‖ softmax(z)),   p_t = β on the true class, (1 − β)/(C − 1) elsewhere,   β ~ U(low, high)

    The paper calls β ≥ 0.9 that of a good teacher, hence the bounds; with low = high this is `virtual_teacher`.

    Reference: Valerio et al., Coordination-free Decentralised Federated Learning on Complex Networks, 2023, Eqs. 7–8
    """
    expect_classes("random_virtual_teacher", target)
    beta = low + (high - low) * noise
    rest = (1 - beta) / (logits.shape[-1] - 1)
    logp = F.log_softmax(logits, dim=-1)
    true = logp.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    entropy = torch.xlogy(beta, beta) + torch.xlogy(1 - beta, rest)
    return entropy - beta * true - rest * (logp.sum(dim=-1) - true)

"""Cross-entropy that leaves alone what a node has not seen."""

import torch
from torch import Tensor

from coterie.contract import Me
from coterie.objectives import among_present


def ace(logits: Tensor, target: Tensor, me: Me) -> Tensor:
    """Asymmetric cross-entropy: the softmax is over the classes of which the node holds samples.

        loss = −[z_y − log Σ_{c present} e^{z_c}]

    Reference: Caccia et al., New Insights on Reducing Abrupt Representation Change in Online Continual Learning, 2022
    """
    return among_present("ace", logits, target, me, torch.ones_like(me.labels))

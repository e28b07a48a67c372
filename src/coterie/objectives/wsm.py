"""Cross-entropy that leaves alone what a node has not seen, and pulls less where it has seen little."""

from torch import Tensor

from coterie.contract import Me
from coterie.objectives import among_present


def wsm(logits: Tensor, target: Tensor, me: Me) -> Tensor:
    """Re-weighted softmax: cross-entropy whose softmax weighs each class by its share in the node's own data.

        loss = −[z_y − log Σ_c β_c e^{z_c}],   β_c the share of class c in the node's training data

    Scores of absent classes are not pushed down. The loss is CE(z + log β, y) + log β_y and may be negative.

    Reference: Legate et al., Re-weighted Softmax Cross-Entropy to Control Forgetting in Federated Learning, 2023
    """
    return among_present("wsm", logits, target, me, me.labels)

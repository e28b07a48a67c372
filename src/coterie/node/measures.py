"""What can be measured beside accuracy: how parameters are spread, what moves them, what a rule tells of itself.

Everything here is of one node's row of parameters, so that the simulator and a real peer compute the same. Values come
for the whole model first, then for each of its tensors, in the order of `layers`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.contract import Layout

Values = NDArray[np.float64]

KINDS = ("spread", "steps", "rule", "epochs", "confusion")
"""What a run can be asked to measure."""
SPREADS = ("sigma_ap", "sigma_ap_merged", "sigma_an")
STEPS = ("train_step", "merge_step", "total_step", "step_cosine")
"""The measures of the first two kinds; those of the third are the rule's."""
EPOCHS = ("epoch_loss",)
"""Those of the fourth: the validation loss after each epoch."""
CONFUSION = "confusion"
"""That of the fifth: how many test samples of a class were taken for another; in place of a layer stands `3 as 5`."""


def layers(layout: Layout) -> list[str | None]:
    """What values are of: the whole model (None), then each tensor that has parameters."""
    return [None, *(name for name, (first, last) in zip(layout.names, layout.spans, strict=True) if last > first)]


def spread(row: Tensor, layout: Layout) -> Values:
    """σ_ap: the standard deviation over a node's parameters.

        σ_ap² = Σ_j (w_j − μ)² / d,   for the whole model   Σ_l d_l (σ_l² + (μ_l − μ)²) / d   over its tensors l

    Reference: Badie-Modiri et al., Initialisation and Network Effects in Decentralised Federated Learning, §3.1
    """
    parts = _parts(row, layout)
    means, variances = (np.array([f(p, dtype=np.float64) for p in parts]) for f in (np.mean, np.var))
    share = np.array([len(p) for p in parts]) / sum(map(len, parts))
    whole = np.sum(share * (variances + (means - np.sum(share * means)) ** 2))
    found: Values = np.sqrt(np.array([whole, *variances]))
    return found


def tensor_means(row: Tensor, layout: Layout) -> Values:
    """The mean of a row over all its columns, and over those of each tensor."""
    parts = _parts(row, layout)
    totals = np.array([p.sum(dtype=np.float64) for p in parts])
    sizes = np.array([len(p) for p in parts])
    return np.concatenate([[totals.sum() / sizes.sum()], totals / sizes])


@dataclass(frozen=True)
class Steps:
    """How far one node's parameters go in a round, by training and by merging: two rows of memory.

        Δ_train = Σ_trainings (w after − w before),   Δ_total = w end − w start,   Δ_merge = Δ_total − Δ_train

    Whatever is no training is a merge: also the one before the first training, and a model that is taken over.

    Reference: Badie-Modiri et al., Initialisation and Network Effects in Decentralised Federated Learning, Fig. 5
    """

    start: Tensor
    trained: Tensor

    @classmethod
    def beside(cls, row: Tensor) -> "Steps":
        """Memory for a row."""
        return cls(torch.zeros_like(row), torch.zeros_like(row))

    def begin(self, row: Tensor) -> None:
        """A round begins."""
        self.start.copy_(row)
        self.trained.zero_()

    def before_training(self, row: Tensor) -> None:
        """What follows is training."""
        self.trained.sub_(row.to(self.trained.device))

    def after_training(self, row: Tensor) -> None:
        """What follows is no training."""
        self.trained.add_(row.to(self.trained.device))

    def end(self, row: Tensor, layout: Layout) -> dict[str, Values]:
        """The norms of all three, and the cosine between training and merging (NaN where one of them is nothing)."""
        products = []
        for now, before, train in zip(*(_parts(x, layout) for x in (row, self.start, self.trained)), strict=True):
            total = now - before
            merge = total - train
            pairs = ((train, train), (merge, merge), (total, total), (train, merge))
            products.append([np.einsum("i,i->", a, b, dtype=np.float64) for a, b in pairs])
        table = np.array([np.sum(products, axis=0), *products])
        norms = np.sqrt(table[:, :3].T)
        with np.errstate(invalid="ignore", divide="ignore"):
            cosine = np.clip(table[:, 3] / (norms[0] * norms[1]), -1, 1)
        return dict(zip(STEPS, (*norms, cosine), strict=True))


def _parts(row: Tensor, layout: Layout) -> list[NDArray[np.float32]]:
    """A row's tensors, flat, without the empty ones."""
    flat = row.detach().cpu().numpy()
    return [flat[first:last] for first, last in layout.spans if last > first]

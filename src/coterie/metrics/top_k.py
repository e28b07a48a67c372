"""The share of nearly right answers."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge
from torch import Tensor

from coterie.metrics import Mean, labelled


@dataclass
class TopK(Mean):
    """Top-k accuracy: the share of samples, or tokens, whose class is among the k with the highest scores.

    top_k = mean of [z_y is one of the k largest z_c]
    """

    k: Annotated[int, Ge(1)] = 5

    def each(self, outputs: Tensor, targets: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """1 where the true class is among the k best."""
        scores, labels, counts = labelled(self, outputs, targets, real)
        best = scores.topk(min(self.k, scores.shape[-1]), -1).indices
        return (best == labels.unsqueeze(-1)).any(-1), counts

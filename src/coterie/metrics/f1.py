"""A mean over classes that rare ones count in as much as frequent ones."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.metrics import Metric, Values, labelled


class F1(Metric):
    """Macro F1: the mean over all classes of the harmonic mean of precision and recall; a class never seen counts 0.

        F1_c = 2·TP_c / (2·TP_c + FP_c + FN_c),   f1 = mean over c of F1_c

    It is not taken on validation data: a node has few of them, and of classes that it lacks it would count a 0.
    """

    validated = False
    _confusion: NDArray[np.int64] | int = 0

    def add(self, outputs: Tensor, targets: Tensor, real: Tensor) -> None:
        """Count which classes were taken for which."""
        scores, labels, counts = labelled(self, outputs, targets, real)
        rows, _, classes = scores.shape
        cell = (labels * classes + scores.argmax(-1)) + torch.arange(rows, device=labels.device)[:, None] * classes**2
        hits = torch.bincount(cell.reshape(-1), counts.reshape(-1).double(), minlength=rows * classes**2)
        self._confusion = self._confusion + hits.long().cpu().numpy().reshape(rows, classes, classes)

    def value(self) -> Values:
        """The mean of the classes' F1."""
        assert isinstance(self._confusion, np.ndarray)
        right = np.diagonal(self._confusion, axis1=1, axis2=2)
        either = self._confusion.sum(1) + self._confusion.sum(2)
        f1 = np.where(either > 0, 2 * right / np.maximum(either, 1), 0.0).mean(1)
        return np.where(either.sum(1) > 0, f1, np.nan)

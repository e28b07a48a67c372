"""A mean over classes that rare ones count in as much as frequent ones."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from coterie.errors import ConfigError
from coterie.metrics import Metric, Values, confused


@dataclass
class F1(Metric):
    """Macro F1: the mean over all classes of the harmonic mean of precision and recall; a class never seen counts 0.

        F1_c = 2·TP_c / (2·TP_c + FP_c + FN_c),   f1 = mean over c of F1_c

    With `average = "binary"` it is that of class 1 alone, the positive one of two.
    It is not taken on validation data: a node has few of them, and of classes that it lacks it would count a 0.
    """

    average: Literal["macro", "binary"] = "macro"

    def __post_init__(self) -> None:
        self._confusion: NDArray[np.int64] | int = 0

    validated: ClassVar[bool] = False

    def add(self, outputs: Tensor, targets: Tensor, real: Tensor) -> None:
        """Count which classes were taken for which."""
        found = confused(self, outputs, targets, real)
        if self.average == "binary" and found.shape[-1] != 2:
            cure = "Leave average at macro."
            raise ConfigError("metric f1 with average = binary", expected="2 classes", got=found.shape[-1], cure=cure)
        self._confusion = self._confusion + found

    def value(self) -> Values:
        """The mean of the classes' F1."""
        assert isinstance(self._confusion, np.ndarray)
        right = np.diagonal(self._confusion, axis1=1, axis2=2)
        either = self._confusion.sum(1) + self._confusion.sum(2)
        each = np.where(either > 0, 2 * right / np.maximum(either, 1), 0.0)
        f1 = each.mean(1) if self.average == "macro" else each[:, 1]
        return np.where(either.sum(1) > 0, f1, np.nan)

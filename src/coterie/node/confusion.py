"""Which classes are taken for which: a measure, of all pairs of classes at once."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from coterie.errors import ConfigError
from coterie.metrics import Metric, Values, confused

MOST = 100
"""Of how many classes all pairs are written down."""


class Confusion(Metric):
    """The whole table, `[m, true, said]`: for the measures, not a column of records."""

    _table: NDArray[np.int64] | int = 0

    def add(self, outputs: Tensor, targets: Tensor, real: Tensor) -> None:
        """Count a batch."""
        if outputs.shape[-1] > MOST:
            expected, cure = f"at most {MOST} classes", "Leave confusion out of --measures."
            raise ConfigError("--measures confusion", expected=expected, got=outputs.shape[-1], cure=cure)
        self._table = self._table + confused(self, outputs, targets, real)

    def value(self) -> Values:
        """All counts."""
        return np.asarray(self._table, np.float64)

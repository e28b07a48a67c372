"""Datasets: name to tensors. One file each; found by looking.

A part of this room is a function `name(folder, *, …settings) -> Dataset`. `folder` is the user's data folder or None:
the place to look first, before the cache; what is in neither is downloaded.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from coterie.contract import finite
from coterie.errors import DataError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples with their labels 0…classes-1."""

    name: str
    train_x: Tensor = field(repr=False)
    train_y: Tensor = field(repr=False)
    test_x: Tensor = field(repr=False)
    test_y: Tensor = field(repr=False)
    classes: int

    def __post_init__(self) -> None:
        for part, x, y in (("training", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            self._check(f"data set {self.name!r}, {part} part", x, y)
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            what = f"data set {self.name!r}: training and test samples differ in shape"
            raise DataError(what, expected=self.shape, got=tuple(self.test_x.shape[1:]))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.train_x.shape[1:])

    def _check(self, what: str, x: Tensor, y: Tensor) -> None:
        if x.dtype != torch.float32 or y.dtype != torch.int64:
            raise DataError(what, expected="float32 samples and int64 labels", got=f"{x.dtype} and {y.dtype}")
        if x.ndim < 2 or y.ndim != 1 or len(x) != len(y) or x.numel() == 0:
            expected = "samples [N, …] and labels [N], at least one"
            raise DataError(what, expected=expected, got=f"{list(x.shape)} and {list(y.shape)}")
        if y.min() < 0 or y.max() >= self.classes:
            expected = f"labels between 0 and {self.classes - 1}"
            raise DataError(what, expected=expected, got=f"{int(y.min())} to {int(y.max())}")
        if not finite(x):
            raise DataError(what, expected="finite numbers", got="NaN or infinity among the samples")

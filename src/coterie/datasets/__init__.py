"""Datasets: name to tensors. One file each; found by looking.

A part of this room is a function `name(folder, *, …settings) -> Dataset`. `folder` is the user's data folder or None:
the place to look first, before the cache; what is in neither is downloaded. From Python, data in hand are such a part.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from coterie.contract import finite
from coterie.errors import DataError

Inputs = Tensor | dict[str, Tensor] | tuple[Tensor, ...]
"""Samples as a model is called with them: one tensor, or several by name or in a tuple, all with as many rows."""
Shape = Any
"""The shape of one sample, without the dimension that counts samples: `(1, 28, 28)`, or a dict or tuple of such."""

IGNORED = -100
"""The target of what is neither learnt nor judged, such as padding in a text; the same as PyTorch's."""


def each(x: Inputs, change: Callable[[Tensor], Any]) -> Any:
    """The same structure with each tensor changed."""
    if isinstance(x, Tensor):
        return change(x)
    return {name: change(t) for name, t in x.items()} if isinstance(x, dict) else tuple(change(t) for t in x)


def tensors(x: Inputs) -> list[Tensor]:
    """All tensors of a structure, in order."""
    if isinstance(x, Tensor):
        return [x]
    return list(x.values() if isinstance(x, dict) else x)


def shape_of(x: Inputs) -> Shape:
    """The shape of one sample, in the same structure."""
    return each(x, lambda t: tuple(t.shape[1:]))


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples with what is to be learnt of them: labels 0…classes-1, or targets of any kind.

    Samples are a tensor `[N, …]`, or several with equal N in a dict or a tuple, of any type. Without `classes` targets
    may have any shape and type: numbers, vectors, sequences of tokens.
    """

    name: str
    train_x: Inputs = field(repr=False)
    train_y: Tensor = field(repr=False)
    test_x: Inputs = field(repr=False)
    test_y: Tensor = field(repr=False)
    classes: int = 0

    def __post_init__(self) -> None:
        for part, x, y in (("training", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            self._check(f"data set {self.name!r}, {part} part", x, y)
        if self.shape != shape_of(self.test_x):
            what = f"data set {self.name!r}: training and test samples differ in shape"
            raise DataError(what, expected=self.shape, got=shape_of(self.test_x))

    @property
    def shape(self) -> Shape:
        """The shape of one sample."""
        return shape_of(self.train_x)

    def _check(self, what: str, x: Inputs, y: Tensor) -> None:
        if not isinstance(x, Tensor | dict | tuple) or not all(isinstance(t, Tensor) for t in (*tensors(x), y)):
            expected = "tensors: samples as one, or as a dict or tuple of some, and targets as one"
            raise DataError(what, expected=expected, got=f"{type(x).__name__} and {type(y).__name__}")
        for t in tensors(x):
            self._check_samples(what, t, y, dims=2 if isinstance(x, Tensor) else 1)
        if not tensors(x):
            raise DataError(what, expected="at least one tensor of samples", got="none")
        if y.is_floating_point() and not finite(y):
            raise DataError(what, expected="finite numbers", got="NaN or infinity among the targets")
        if self.classes:
            self._check_labels(what, y)

    def _check_samples(self, what: str, t: Tensor, y: Tensor, dims: int) -> None:
        if t.dtype == torch.float64:  # the type that NumPy gives unasked, and that no layer takes
            cure = "Convert them, for example with x.float()."
            raise DataError(what, expected="float32 samples, or whole numbers", got=t.dtype, cure=cure)
        if t.ndim < dims or y.ndim < 1 or len(t) != len(y) or t.numel() == 0:
            expected = "samples [N, …] and targets [N, …], at least one"
            raise DataError(what, expected=expected, got=f"{list(t.shape)} and {list(y.shape)}")
        if t.is_floating_point() and not finite(t):
            raise DataError(what, expected="finite numbers", got="NaN or infinity among the samples")

    def _check_labels(self, what: str, y: Tensor) -> None:
        if y.dtype != torch.int64 or y.ndim != 1:
            cure = "Leave classes out if targets are anything else."
            raise DataError(what, expected="int64 labels [N]", got=f"{y.dtype} {list(y.shape)}", cure=cure)
        if y.min() < 0 or y.max() >= self.classes:
            expected = f"labels between 0 and {self.classes - 1}"
            raise DataError(what, expected=expected, got=f"{int(y.min())} to {int(y.max())}")

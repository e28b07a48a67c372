"""Memory that is used again: the first touch of a fresh page costs several times what a copy of it does."""

import weakref

import numpy as np
import torch
from torch import Tensor


class Pool:
    """Lends memory, and has it back when nobody holds it, or a part of it, any more; `most` pieces are kept for later.

    One thread takes; the last reference may be dropped in any.
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._free: list[np.ndarray] = []

    def take(self, least: int, most: int | None = None) -> memoryview:
        """Bytes of any content: `most` (else the `least`) of what was used before if it is enough, else the least."""
        assert least > 0
        while self._free:
            whole = self._free.pop()
            if len(whole) >= least:
                break
        else:
            whole = np.empty(least, np.uint8)
        # Through a memoryview: numpy would let a part of `lent` refer to `whole` alone, and forget `lent`.
        lent = np.frombuffer(whole.data, np.uint8, min(len(whole), most or least))
        weakref.finalize(lent, self._return, whole).atexit = False
        return lent.data

    def numbers(self, like: Tensor, dtype: torch.dtype) -> Tensor:
        """A tensor of this shape and type, of any content."""
        if not like.numel():
            return torch.empty(like.shape, dtype=dtype)
        return torch.frombuffer(self.take(like.numel() * dtype.itemsize), dtype=dtype).view(like.shape)

    def _return(self, whole: np.ndarray) -> None:
        if len(self._free) < self._most:
            self._free.append(whole)

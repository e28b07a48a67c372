"""Memory that is used again: the first touch of a fresh page costs several times what a copy of it does."""

import contextlib
import mmap
import weakref

import numpy as np
import torch
from torch import Tensor


class BufferPool:
    """Lends memory, and has it back when nobody holds any part of it any more; `most` pieces are kept for later."""

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._free: list[mmap.mmap] = []

    def take(self, size: int) -> memoryview:
        """So many bytes, of any content; what of them is never written takes no memory."""
        assert size > 0
        whole = next((spare for spare in iter(self._spare, None) if len(spare) >= size), None) or _fresh(size)
        lent = np.frombuffer(whole, np.uint8, size)
        weakref.finalize(lent, self._return, whole).atexit = False
        return lent.data

    def numbers(self, like: Tensor, dtype: torch.dtype) -> Tensor:
        """A tensor of this shape and type, of any content."""
        if not like.numel():
            return torch.empty(like.shape, dtype=dtype)
        return torch.frombuffer(self.take(like.numel() * dtype.itemsize), dtype=dtype).view(like.shape)

    def _spare(self) -> mmap.mmap | None:
        try:
            return self._free.pop()
        except IndexError:  # also if another thread was faster
            return None

    def _return(self, whole: mmap.mmap) -> None:
        if len(self._free) < self._most:
            self._free.append(whole)


def _fresh(size: int) -> mmap.mmap:
    """Memory of its own, which goes back to the system as soon as it is dropped."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return mmap.mmap(-1, size)
    whole = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        whole.madvise(mmap.MADV_HUGEPAGE)
    return whole

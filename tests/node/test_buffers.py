"""Memory that is used again: never while anybody can still see it."""

import gc

import torch

from coterie.node.buffers import BufferPool


def address(view: memoryview) -> int:
    return torch.frombuffer(view, dtype=torch.uint8).data_ptr()


def test_memory_comes_back_when_nobody_holds_it() -> None:
    pool = BufferPool(1)
    lent = pool.take(1000)
    where = address(lent)
    other = pool.take(1000)
    assert address(other) != where
    del lent
    gc.collect()
    assert address(pool.take(1000)) == where


def test_a_part_keeps_the_whole_from_being_lent() -> None:
    pool = BufferPool(4)
    for part in (lambda view: view[10:20], lambda view: torch.frombuffer(view, dtype=torch.float32)[3:5].view(2, 1)):
        lent = pool.take(400)
        lent[:] = bytes(range(200)) * 2
        kept = part(lent)
        seen = bytes(kept) if isinstance(kept, memoryview) else kept.clone()
        del lent
        gc.collect()
        pool.take(400)[:] = bytes(400)
        assert (bytes(kept) if isinstance(kept, memoryview) else kept.tolist()) == (
            seen if isinstance(seen, bytes) else seen.tolist()
        )


def used(view: memoryview) -> bool:
    """Whether this memory was written before; fresh memory is zero."""
    return any(view)


def test_no_more_is_kept_than_was_said() -> None:
    for most in (0, 2):
        pool = BufferPool(most)
        lent = [pool.take(100) for _ in range(5)]
        for view in lent:
            view[:] = bytes([1]) * 100
        del view
        lent.clear()
        gc.collect()
        assert sum(used(view) for view in [pool.take(100) for _ in range(5)]) == most


def test_what_is_too_small_is_let_go() -> None:
    pool = BufferPool(1)
    for size, again in ((100, False), (50, True), (200, False), (150, True)):
        lent = pool.take(size)
        assert len(lent) == size
        assert used(lent) == again
        lent[:] = bytes([1]) * size
        del lent
        gc.collect()


def test_an_empty_tensor_needs_no_buffer() -> None:
    assert BufferPool().numbers(torch.empty(0), torch.float64).shape == (0,)

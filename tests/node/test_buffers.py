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


def test_no_more_is_kept_than_was_said() -> None:
    pool = BufferPool(2)
    lent = [pool.take(100) for _ in range(5)]
    lent.clear()
    gc.collect()
    assert len(pool._free) == 2
    assert len(BufferPool()._free) == 0


def test_what_is_too_small_is_let_go() -> None:
    pool = BufferPool(1)
    for size in (100, 50, 200):
        assert len(pool.take(size)) == size
        gc.collect()
    assert [len(whole) for whole in pool._free] == [200]


def test_numbers_of_nothing() -> None:
    assert BufferPool().numbers(torch.empty(0), torch.float64).shape == (0,)

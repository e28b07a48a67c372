"""Randomness as a function of (seed, purpose, who, when), never of the order in which things ran.

Every draw has a key: the seed, what the draw is for, and integers that say whose it is and which one. The same key
gives the same draw on any engine, in any order, in a resumed run, and at both ends of a link.
"""

import hashlib
import threading
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # networks are drawn without it, in a third of the time that it takes to be imported
    import torch


def key(seed: int, purpose: str, *ids: int) -> int:
    """A 64-bit key for one draw."""
    text = f"{seed}/{purpose}/{'/'.join(map(str, ids))}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def generator(seed: int, purpose: str, *ids: int) -> np.random.Generator:
    """A NumPy generator of its own for this key (counter-based: Philox)."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, *ids)))


def permuted(items: NDArray[np.int64], seed: int, purpose: str, *ids: int) -> NDArray[np.int64]:
    """The items in the order that the generator of this key would give them.

    It is not made anew, which takes four times as long as the order itself: the thread's own one is set to the key.
    """
    if not hasattr(_own, "bits"):
        _own.bits = np.random.Philox(key=0)
        _own.fresh, _own.drawing = _own.bits.state, np.random.Generator(_own.bits)
    _own.fresh["state"]["key"][0] = key(seed, purpose, *ids)
    _own.bits.state = _own.fresh
    order: NDArray[np.int64] = _own.drawing.permutation(items)
    return order


_own = threading.local()


def torch_generator(seed: int, purpose: str, *ids: int) -> "torch.Generator":
    """A PyTorch generator of its own for this key, on the CPU so that every device starts from the same numbers."""
    import torch

    return torch.Generator().manual_seed(key(seed, purpose, *ids) >> 1)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(seed: int, purpose: str, *ids: NDArray[np.int64] | int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), one for each combination of ids, for draws over many links or nodes at once."""
    with np.errstate(over="ignore"):
        x = np.asarray(key(seed, purpose), np.uint64)
        for part in ids:
            x = _mix(x + np.uint64(0x9E3779B97F4A7C15) + np.asarray(part, np.int64).astype(np.uint64))
        return (_mix(x) >> np.uint64(11)).astype(np.float64) * 2.0**-53

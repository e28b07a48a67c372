"""How many hops a network is across, and nodes are apart."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array
from scipy.sparse.csgraph import dijkstra

EXACT = 2000  # nodes up to which the diameter is searched from every one
WORDS = 2**22  # of eight bytes, that the search may hold at once


def diameter(matrix: csr_array[np.float64]) -> int:
    """The greatest number of hops between two nodes of a connected graph; of a large one a lower bound."""
    return _farthest(matrix) if matrix.shape[0] <= EXACT else _sweeps(matrix)


def _farthest(matrix: csr_array[np.float64]) -> int:
    """Breadth-first search from all nodes at once: bit b of a node's words says that node b has reached it."""
    nodes = matrix.shape[0]
    hears = csr_array(matrix + eye_array(nodes))
    block, hops = 64 * max(1, WORDS // len(hears.indices)), 0
    for start in range(0, nodes, block):
        marked = np.zeros((nodes, min(block, -(-nodes // 64) * 64)), np.bool_)
        some = np.arange(start, min(start + block, nodes))
        marked[some, some - start] = True
        reached = np.packbits(marked, axis=1).view(np.uint64)
        full = np.bitwise_or.reduce(reached, axis=0)
        steps = 0
        while not (reached == full).all():
            reached = np.bitwise_or.reduceat(reached[hears.indices], hears.indptr[:-1], axis=0)
            steps += 1
        hops = max(hops, steps)
    return hops


def _sweeps(matrix: csr_array[np.float64]) -> int:
    """The longest of four searches, each from the end of the last."""
    start, hops = int(np.argmin(np.diff(matrix.indptr))), 0
    for _ in range(4):
        distance = distances(matrix, start)  # against the arcs, if they are directed: the diameter is the same
        hops, start = max(hops, int(distance.max())), int(distance.argmax())
    return hops


def distances(matrix: csr_array[np.float64], start: int) -> NDArray[np.float64]:
    """How many hops each node is away from one, from row to column; infinitely many where there is no way."""
    return np.asarray(dijkstra(matrix, indices=[start], unweighted=True)[0], np.float64)

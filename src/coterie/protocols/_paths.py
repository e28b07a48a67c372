"""Paths through a network that pass every node once."""

import functools
import itertools

import numpy as np

from coterie.network.graph import Graph

TRIES = 100_000
"""Steps after which the search for a path is given up."""


@functools.lru_cache(maxsize=64)
def partners(graph: Graph) -> tuple[frozenset[int], ...]:
    """With whom each node has links both ways: what is handed on must be acknowledged."""
    both = (np.intersect1d(graph.neighbours(i), graph.audience(i)) for i in range(graph.nodes))
    return tuple(frozenset(near.tolist()) for near in both)


def broken(graph: Graph, path: tuple[int, ...], closed: bool) -> tuple[int, int] | None:
    """The first two on a path, closed to a ring or not, who have no link both ways; None if all have."""
    near = partners(graph)
    steps = [*itertools.pairwise(path), *([(path[-1], path[0])] if closed and len(path) > 2 else [])]
    return next(((a, b) for a, b in steps if b not in near[a]), None)


@functools.lru_cache(maxsize=64)
def found(graph: Graph, nodes: tuple[int, ...], closed: bool) -> tuple[int, ...] | None:
    """A path through these nodes that begins with the first, or None if none was found within so many `TRIES`.

    The nodes' own order if that is one; else those with the fewest ways on come first, and lower ones before higher.
    """
    if broken(graph, nodes, closed) is None:
        return nodes
    near = [partners(graph)[i] & {*nodes} for i in range(graph.nodes)]
    path, left, tries = [nodes[0]], {*nodes[1:]}, 0
    branches = [_ways(near, left, nodes[0])]
    while branches and tries < TRIES:
        tries += 1
        if not left and not (closed and len(path) > 2 and path[0] not in near[path[-1]]):
            return tuple(path)
        if branches[-1]:
            path.append(branches[-1].pop())
            left.discard(path[-1])
            branches.append(_ways(near, left, path[-1]))
        else:
            branches.pop()
            left.add(path.pop())
    return None


def _ways(near: list[frozenset[int]], left: set[int], node: int) -> list[int]:
    """Where to go on from a node, the best last."""
    return sorted(near[node] & left, key=lambda n: (-len(near[n] & left), -n))


@functools.lru_cache(maxsize=64)
def tour(graph: Graph, nodes: tuple[int, ...], closed: bool) -> tuple[int, ...] | None:
    """A walk through all of these nodes that comes back the way it went where there is no other, and if `closed` to the
    first; None if they are not connected.
    """
    near = [partners(graph)[i] & {*nodes} for i in range(graph.nodes)]
    path, trail, left = [nodes[0]], [nodes[0]], {*nodes[1:]}
    while trail and (left or closed):
        if ways := _ways(near, left, trail[-1]):
            trail.append(ways[-1])
            left.discard(ways[-1])
        else:
            trail.pop()
        path += trail[-1:]
    return None if left else tuple(path)

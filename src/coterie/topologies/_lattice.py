"""Rectangular lattices of any dimension, open or wrapped around."""

import math
from collections.abc import Iterator

import numpy as np

from coterie.errors import GraphError
from coterie.network.graph import Graph


def lattice(nodes: int, dims: tuple[int, ...] | None, d: int, *, wrap: bool) -> Graph:
    """The lattice with sides `dims`, or with `d` sides as equal as the number of nodes allows."""
    sides = _most_even(nodes, d) if dims is None else tuple(dims)
    if min(sides, default=0) < 1 or math.prod(sides) != nodes:
        shape = f"{'×'.join(map(str, sides))} = {math.prod(sides)}"
        cure = f"Set nodes to {math.prod(sides)} or change topology.dims."
        raise GraphError("topology.dims do not fit the nodes", expected=f"a product of {nodes}", got=shape, cure=cure)
    place = np.arange(nodes).reshape(sides)
    links = []
    for axis, side in enumerate(sides):
        ahead = np.roll(place, -1, axis)
        keep = np.arange(side) if wrap and side > 2 else np.arange(side - 1)  # two in a row are linked once, not twice
        links.append(np.stack([place.take(keep, axis).ravel(), ahead.take(keep, axis).ravel()], axis=1))
    return Graph.from_edges(nodes, np.concatenate(links))


def _most_even(nodes: int, d: int) -> tuple[int, ...]:
    if d < 1:
        raise GraphError("topology.d is the number of dimensions", expected="at least 1", got=d)
    if nodes == 1:
        return (1,) * d
    found = list(_factors(nodes, d, 2))
    if not found:
        cure = "Use another number of nodes, or set topology.dims yourself."
        raise GraphError(
            f"no {d}-dimensional lattice of this size", expected="a product of whole sides", got=nodes, cure=cure
        )
    return min(found, key=sum)


def _factors(number: int, count: int, least: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a product of `count` factors in ascending order, the first at least `least`."""
    if count == 1:
        if number >= least:
            yield (number,)
        return
    side = least
    while side**count <= number:
        if number % side == 0:
            yield from ((side, *rest) for rest in _factors(number // side, count - 1, side))
        side += 1

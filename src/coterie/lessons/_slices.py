"""Narrow models as parts of a wide one: which of its units each narrow one has, and the average over all that have one.

A model is narrower than another if its tensors have the same names and as many dimensions, none of them longer. The
units of a dimension are chosen by its two lengths alone, so that dimensions that must go together, such as the outputs
of a layer and the inputs of the next, or layers that are added up, always do.
"""

import functools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from coterie.contract import Layout
from coterie.errors import ConfigError
from coterie.lessons import Pupil

Units = Callable[[int, int, int], Tensor]
"""(node, length of a dimension in the widest model, its length in the node's own) -> the units that the node has."""


def averaged(pupils: Mapping[int, Pupil], units: Units) -> dict[int, Tensor]:
    """Each unit's average over all models that have it, all models counting alike, handed back to who has it.

    What a norm keeps of a channel's inputs depends on how many channels there are before it: of such statistics each
    model gets the average over those of its own architecture.
    """
    widest = max(pupils.values(), key=lambda p: p.layout.size)
    where = {n: _places(p.layout, widest.layout, functools.partial(units, n)) for n, p in pupils.items()}
    total, count = (torch.zeros_like(widest.params[: widest.layout.size]) for _ in range(2))
    alike: dict[str, list[Tensor]] = {}
    for node, pupil in pupils.items():
        trained, statistics = pupil.params.split([pupil.layout.size, pupil.buffers.size])
        total.index_add_(0, where[node], trained)
        count.index_add_(0, where[node], torch.ones_like(trained))
        alike.setdefault(pupil.architecture, []).append(statistics)
    mean, normal = total / count.clamp(min=1), {a: torch.stack(each).mean(0) for a, each in alike.items()}
    return {node: torch.cat([mean[where[node]], normal[pupil.architecture]]) for node, pupil in pupils.items()}


def _places(narrow: Layout, wide: Layout, units: Callable[[int, int], Tensor]) -> Tensor:
    """For each number of a model, its place among those of the widest."""
    found, start, outputs = [], 0, (1, 1)
    for small, big in zip(narrow.shapes, wide.shapes, strict=True):
        place, stride = torch.zeros(small, dtype=torch.int64), 1
        for axis in reversed(range(len(small))):
            # a dense layer after a flattened image has so many inputs for each channel of the layer before
            block = big[1] // outputs[0] if axis == 1 and len(big) == 2 and big[1] % outputs[0] == 0 else 1
            if block > 1 and small[1] != block * outputs[1]:
                block = 1
            chosen = units(big[axis] // block, small[axis] // block)
            chosen = (chosen[:, None] * block + torch.arange(block)).flatten()
            place = place + stride * chosen.view(-1, *[1] * (len(small) - 1 - axis))
            stride *= big[axis]
        if len(small) > 1:
            outputs = big[0], small[0]
        found.append(start + place.flatten())
        start += stride
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


def check_widths(name: str, layouts: Mapping[str, Layout]) -> None:
    """Refuse architectures of which some are not narrower versions of the widest."""
    widest = max(layouts, key=lambda one: layouts[one].size)
    whole = layouts[widest]
    for one, layout in layouts.items():
        pairs = zip(layout.shapes, whole.shapes, strict=False)
        if layout.names != whole.names or not all(_within(small, big) for small, big in pairs):
            raise ConfigError(
                f"lesson {name} averages narrow models as parts of the widest",
                expected=f"the layers of {widest}, each as wide or narrower",
                got=one,
                cure="Choose models that differ in width alone, or a lesson that takes any: mutual, average.",
            )


def _within(small: tuple[int, ...], big: tuple[int, ...]) -> bool:
    return len(small) == len(big) and all(a <= b for a, b in zip(small, big, strict=True))

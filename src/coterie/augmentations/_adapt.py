"""Functions of users, as parts of this room."""

import functools
import inspect
import operator
import random
from typing import Any

import torch
from torch import nn

from coterie.augmentations import Draw
from coterie.datasets import Inputs, each, tensors


def adapt(thing: Any) -> Any:
    """A user's function of samples and draw as it is; what takes one sample alone is called sample by sample.

    Such are the transforms that come with other libraries: they draw from PyTorch's or Python's own generators, which
    are seeded anew for each sample.
    """
    if inspect.isclass(thing):
        return thing
    places = [
        p
        for p in inspect.signature(thing.forward if isinstance(thing, nn.Module) else thing).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    if len(places) != 1:
        return thing

    @functools.wraps(thing)
    def one_by_one(x: Inputs, draw: Draw) -> Inputs:
        done = []
        with draw.each() as seeds:
            for i, seed in enumerate(seeds):
                torch.default_generator.manual_seed(seed)
                random.seed(seed)
                done.append(thing(each(x, operator.itemgetter(i))))
        return _together(x, done)

    vars(one_by_one)["__signature__"] = inspect.signature(_told)
    return one_by_one


def _told(x: Inputs, draw: Draw) -> None:
    """What augmentations are called with."""


def _together(x: Inputs, done: list[Any]) -> Inputs:
    """Samples that were varied one by one, in the structure that they had."""
    parts = [torch.stack([tensors(one)[k] for one in done]) for k in range(len(tensors(x)))]
    if isinstance(x, dict):
        return dict(zip(x, parts, strict=True))
    return tuple(parts) if isinstance(x, tuple) else parts[0]

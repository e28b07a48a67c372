"""Lists of samples, as parts of this room."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from coterie.errors import DataError
from coterie.partitions._deal import Indices


def adapt(thing: Any) -> Callable[..., Any]:
    """A user's function as it is; lists of samples, one for each node, as a function that deals them out."""
    if inspect.isroutine(thing) or inspect.isclass(thing):
        made: Callable[..., Any] = thing
        return made
    try:
        parts = [np.asarray(part) for part in thing]
        sound = all(part.ndim == 1 and (part.size == 0 or np.issubdtype(part.dtype, np.integer)) for part in parts)
    except (TypeError, ValueError):
        parts, sound = [], False
    if not sound or not parts:
        raise DataError(
            "partition in hand", expected="a list of the samples of each node, by number", got=repr(thing)[:60]
        )

    def dealt(labels: Indices, nodes: int, rng: np.random.Generator) -> list[Indices]:
        """Lists of samples, one for each node."""
        largest = max((int(part.max()) for part in parts if part.size), default=0)
        if largest >= len(labels) or min((int(part.min()) for part in parts if part.size), default=0) < 0:
            cure = "Number what is left to train on: a test part is set aside if none is given, and `total` keeps some."
            expected = f"numbers from 0 to {len(labels) - 1}"
            raise DataError("samples of the partition in hand", expected=expected, got=largest, cure=cure)
        return [np.sort(part.astype(np.int64)) for part in parts]

    together = np.concatenate(parts)
    vars(dealt)["overlaps"] = len(np.unique(together)) < len(together)
    return dealt

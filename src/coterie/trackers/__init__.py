"""Observers that hand what a run tells to a tracker of experiments; each needs its package, an extra of that name."""

from collections.abc import Iterator
from importlib import import_module
from statistics import fmean
from types import ModuleType

from coterie.errors import CoterieError
from coterie.records import Event


def needed(module: str, extra: str) -> ModuleType:
    """The module that a tracker needs."""
    try:
        return import_module(module)
    except ImportError as error:
        cure = f"Install it with `pip install 'coterie[{extra}]'`."
        raise CoterieError(f"the observer for {extra} needs its package ({error})", cure=cure) from None


def job_name(event: Event) -> str:
    """What a tracker calls the job of an event."""
    return f"{event['method']}-{event['seed']}"


def means(event: Event) -> Iterator[tuple[str, float]]:
    """The columns of an evaluation, each with its mean over the nodes that have a value."""
    for column, values in event.data.items():
        known = [value for value in values if value is not None] if isinstance(values, list) else []
        if known and column != "node":
            yield column, fmean(known)

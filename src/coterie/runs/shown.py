"""How a run that was started from Python is shown: nothing here draws, `coterie` itself says who does."""

from collections.abc import Callable

from coterie.records import Observer

show: Callable[[str, str], list[Observer]] | None = None
"""Given where a run is written and the name of its engine, those who show it."""


def onlookers(where: str, engine: str, progress: bool) -> list[Observer]:
    """Those who show a run, if it is to be shown."""
    return show(where, engine) if show and progress else []

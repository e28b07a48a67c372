"""Places at which state changes, named as they are passed, so that a test can end the process at each of them in turn.

Nothing listens unless a test does, and passing a place then costs one comparison.
"""

from collections.abc import Callable

hook: Callable[[str, str], None] | None = None
"""Told of each place that is passed, and what it concerns: a file's name, a tag, a round."""


def reach(place: str, what: object = "") -> None:
    """Pass a place at which state changes."""
    if hook is not None:
        hook(place, str(what))

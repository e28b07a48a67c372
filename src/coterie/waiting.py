"""What takes long says so here, and whoever is listening shows it; with nobody there, it is a line on stderr."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Listener = Callable[[str, int, int | None], None]
"""Is told what is waited for, how much of it is done, and of how much (None: nobody knows)."""
OFTEN = 0.1
"""Seconds between two lines that replace each other."""


def tell(text: str, done: int = 0, total: int | None = None) -> None:
    """Say what is waited for: `reading pictures`, 30 of 900."""
    _listeners[-1](text, done, total)


def over() -> None:
    """Take the line off the terminal again, before something else is printed there."""
    _line.clear()


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Have everything told to this listener instead."""
    over()
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class _Line:
    """One line that is rewritten on a terminal; in a log a line for each new text."""

    def __init__(self) -> None:
        self.text, self.written, self.at = "", False, 0.0

    def __call__(self, text: str, done: int, total: int | None) -> None:
        now, fresh, live = time.monotonic(), text != self.text, sys.stderr.isatty()
        if not fresh and (not live or now - self.at < OFTEN):
            return
        self.text, self.at = text, now
        share = f" {done / total:.0%}" if total and live else ""
        with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
            print(*([f"\r\x1b[K{text}{share} …"] if live else [text]), end="" if live else "\n", file=sys.stderr)
            sys.stderr.flush()
        self.written = live

    def clear(self) -> None:
        if self.written:
            with contextlib.suppress(OSError, ValueError):
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self.text, self.written = "", False


_line = _Line()
_listeners: list[Listener] = [_line]

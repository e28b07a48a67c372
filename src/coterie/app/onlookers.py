"""How a run that was started from Python is shown: bars on a terminal or in a notebook, lines in a log."""

import sys
import time
from html import escape
from typing import Any

from coterie.app.progress import observers, reached
from coterie.app.terminal import console
from coterie.records import Event, Observer

OFTEN = 0.2
"""Seconds between two pictures of a bar in a notebook."""


def onlookers(where: str, engine: str) -> list[Observer]:
    """What suits whoever has called: the notebook's page, else the terminal or the log that errors go to."""
    if in_notebook():
        return [Cell(where)]
    return observers(console(stderr=True), where or "memory", engine)


def in_notebook() -> bool:
    """Whether what is displayed goes to the page of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class Cell:
    """A bar below the cell of a notebook that has started a run."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.handle: Any = None
        self.total, self.done, self.said = 0, 0, "preparing"
        self.rounds: dict[Any, int] = {}
        self.reached, self.warned, self.last = "", list[str](), 0.0

    def event(self, event: Event) -> None:
        """Move the bar on."""
        if event.name == "begin" and event.job is None:
            self.rounds = dict.fromkeys(map(tuple, event["left"]), 0)
            self.total = len(self.rounds) * event["rounds"]
        elif event.name == "evaluation":
            self.reached = reached(event)
        elif event.name == "warning":
            self.warned.append(str(event["text"]))
        elif event.name == "end" and event.job is None:
            self.said = f"{event['how']}{self.reached}"
        if event.job and event.name in ("begin", "round"):
            self.rounds[event.job] = event["round"]
            self.done = sum(self.rounds.values())
            method, seed = event.job
            self.said = f"{method}, seed {seed}, round {event['round']}{self.reached}"
        if event.name != "round" or time.monotonic() - self.last > OFTEN:
            self.draw()

    def draw(self) -> None:
        """Put the bar on the page, or another in its place."""
        from IPython import display

        self.last = time.monotonic()
        page: Any = display.HTML(self.html())
        if self.handle is None:
            self.handle = display.display(page, display_id=True)
        else:
            self.handle.update(page)

    def html(self) -> str:
        """The bar, what is under way, and what a user should know."""
        where = f"<br><small>written to {escape(self.where)}</small>" if self.where else ""
        notes = "".join(f"<br><small>{escape(text)}</small>" for text in self.warned)
        bar = f'<progress max="{max(self.total, 1)}" value="{self.done}" style="width: 16em"></progress>'
        return f"{bar} {escape(self.said)}{where}{notes}"

"""What a peer's own terminal shows while it runs: a bar and whom it waits for; in a log, lines."""

import threading
from types import TracebackType
from typing import Self

from rich.console import Console

from coterie.app.progress import Rhythm, Tally, bars, say
from coterie.net.logs import clean
from coterie.net.status import Status

OFTEN = 0.5
"""Seconds between two looks at how the peer is."""
PHASES = {"gossip": "agreeing with the neighbours on how to begin"}
"""What a peer does before it trains, in words."""


class PeerScreen:
    """Shows how a peer in this process is doing, from its status, until it is closed."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console, self.quiet, self.live = console, quiet, console.is_terminal and not quiet
        self.tally, self.rhythm = Tally({}), Rhythm()
        self.status: Status | None = None
        self.phase, self.told, self.begun, self.over = "", "", False, threading.Event()
        self.bars = bars(console)
        self.bar = self.bars.add_task("starting", total=None, said="")
        self.thread = threading.Thread(target=self._look, daemon=True)

    def attend(self, status: Status, phase: str) -> None:
        """From now on show this status, of a peer in this phase."""
        self.tally, self.phase, self.told = Tally({"": status.rounds}), phase, ""
        self.begun = False
        self.status = status

    def __enter__(self) -> Self:
        if self.live:
            self.bars.start()
        if not self.quiet:
            self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away, and say nothing more."""
        self.over.set()
        if self.live:
            self.bars.stop()

    def _look(self) -> None:
        while not self.over.wait(OFTEN):
            if self.status is not None:
                self.look(self.status)

    def look(self, status: Status) -> None:
        """Show how the peer is now."""
        if status.round and not self.begun and self.phase not in PHASES:  # gone on with: only what comes now has a pace
            self.tally.begin("", status.round, status.rounds)
            self.begun = True
        self.tally.reach("", status.round)
        said = doing(status, self.phase)
        if self.live:
            known = {"total": status.rounds, "completed": status.round} if self.phase not in PHASES else {"total": None}
            self.bars.update(self.bar, description=clean(status.name), said=said, **known)
        elif self.phase not in PHASES and status.state in ("training", "exchanging"):
            self.told = ""
            if self.rhythm.due(self.tally):
                self._say(f"{self.tally.share}: {said}{self.tally.rest}")
        elif said != self.told or self.rhythm.quiet:
            self.told = said
            self._say(said)

    def _say(self, text: str) -> None:
        self.rhythm.said()
        say(self.console, text)


def doing(status: Status, phase: str = "") -> str:
    """What a peer is doing, and with whom, in words."""
    known = sorted(status.neighbours.items())
    away = [clean(name) for name, each in known if not each.alive]
    if status.state == "waiting" and away:
        why = [f" ({clean(each.last_error)})" for _, each in known if not each.alive and each.last_error]
        return f"waiting for {listed(away)}{why[0] if len(away) == len(why) == 1 else ''}"
    if phase in PHASES:
        return PHASES[phase]
    if status.state == "waiting":
        return "waiting for neighbours' models"
    if status.state == "finished":
        behind = [clean(n) for n, each in known if each.alive and (each.round or 0) < status.rounds]
        return f"finished; waiting for {listed(behind)} to come to the end" if behind else "finished"
    reached = "" if status.score is None else f", {clean(status.metric)} {status.score:.3f}"
    without = f", without {listed(away)}" if away else ""
    return f"round {status.round} of {status.rounds}{reached}{without}"


def listed(names: list[str]) -> str:
    """Names in words: `alice, bob and carol`; of many, some."""
    if len(names) > 5:
        return f"{', '.join(names[:4])} and {len(names) - 4} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))

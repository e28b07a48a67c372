"""Display of peers' statuses: one peer as a table, and many peers while they run."""

import time
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from coterie.net.logs import clean
from coterie.report.tables import UNKNOWN, humanise

if TYPE_CHECKING:  # a peer's status is asked for often, and needs no torch
    from coterie.records import Event

SHOWN = 5
"""The number of latest errors that are shown."""

NOTHING = "-"
AROUND = 7
"""Lines of the screen that a live table leaves free, for its title, its head and what is said above it."""


def table(status: dict[str, Any]) -> Table:
    """A peer's status for the terminal: its neighbours a row each, then what went wrong lately."""
    made = _table(_headline(status), _troubles(status))
    made.add_column("neighbour", overflow="fold", min_width=9)
    made.add_column("alive", no_wrap=True)
    for name in ("round", "lag", "heard", "sent", "received", "missed"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("refused", overflow="fold", min_width=7)
    now = time.time()
    for name, known in sorted(status["neighbours"].items()):
        refused = ", ".join(f"{count} {clean(why)}" for why, count in sorted(known["refusals"].items()))
        made.add_row(
            Text(clean(name)),
            "yes" if known["alive"] else "no",
            _whole(known["round"]),
            _whole(known["lag"]),
            "never" if known["last_heard"] is None else f"{_span(now - known['last_heard'])} ago",
            humanise(known["sent_bytes"]),
            humanise(known["received_bytes"]),
            _whole(known["missed"]),
            Text(refused or NOTHING),
            style=None if known["alive"] else "dim",
        )
    return made


def _headline(status: dict[str, Any]) -> str:
    neighbours = status["neighbours"].values()
    alive = sum(known["alive"] for known in neighbours)
    pace = [] if status["round_seconds"] is None else [f"{status['round_seconds']:.3g} s a round"]
    first = [_progress(status), f"{alive} of {_count(len(neighbours), 'neighbour')} alive"]
    second = [
        f"{clean(status['method'])}, seed {status['seed']}",
        f"up {_span(time.time() - status['started'])}",
        *pace,
        f"sent {humanise(status['sent_bytes'])}, received {humanise(status['received_bytes'])}",
        _count(status["checkpoints"], "checkpoint"),
    ]
    if status["checkpoint_errors"]:
        second.append(f"{status['checkpoint_errors']} not written")
    return f"{clean(status['name'])}: {', '.join(first)}\n{', '.join(second)}"


def _progress(status: dict[str, Any]) -> str:
    reached = "" if status["score"] is None else f", {clean(status['metric'])} {status['score']:.3f}"
    return f"{clean(status['state'])}, round {status['round']} of {status['rounds']}{reached}"


def _troubles(status: dict[str, Any]) -> list[str]:
    """The latest word on each neighbour that is in trouble, and the latest errors of the peer itself."""
    said = []
    for name, known in sorted(status["neighbours"].items()):
        if known["last_error"]:
            said.append(f"{clean(name)}: {clean(known['last_error'])}")
        if known["last_refusal"]:
            said.append(f"{clean(name)}, refused: {clean(known['last_refusal'])}")
    lately = status["errors"][-SHOWN:]
    return said + [f"{time.strftime('%H:%M:%S', time.localtime(e['time']))} {clean(e['text'])}" for e in lately]


class PeersTable:
    """An observer of peers: a live table on a terminal, elsewhere a line for every tenth of the rounds."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live: Live | None = None
        self._begin([])

    def _begin(self, names: list[str]) -> None:
        self.names, self.tenths = names, 0
        self.last: list[dict[str, Any] | None] = [None] * len(names)

    def event(self, event: "Event") -> None:
        """Show how the peers are; between two jobs there is no table."""
        if event.name == "peers":
            self._update(event["names"], event["statuses"])
        elif event.name in ("begin", "end") and "peer" not in event.data:
            self.close()
            self._begin([])

    def close(self) -> None:
        """Take the table away."""
        if self.live is not None:
            self.live.stop()
            self.live = None

    def _update(self, names: list[str], statuses: list[dict[str, Any] | None]) -> None:
        """Show how the peers are now, in the order of their names; nothing stands for one that does not answer."""
        if names != self.names:
            self._begin(names)
        self.last = [new or old for new, old in zip(statuses, self.last, strict=True)]
        silent = [new is None for new in statuses]
        if not self.console.is_terminal:
            self._line(silent)
            return
        if self.live is None:
            # Refreshed by hand: no thread draws while another process's output is being printed.
            self.live = Live(console=self.console, auto_refresh=False, transient=True)
            self.live.start()
        self.live.update(self._rows(silent), refresh=True)

    def _rows(self, silent: list[bool]) -> Group:
        front = max((s["round"] for s in self.last if s), default=0)
        order = list(range(len(self.names)))
        room = max(self.console.height - AROUND, 1)
        left_out = len(order) - room
        if left_out > 0:  # those that are furthest behind are the ones to look at
            slowest = sorted(order, key=lambda i: (s["round"] if (s := self.last[i]) else -1, i))[:room]
            order = sorted(slowest)
        made = _table(None, [f"{left_out} more, further on, not shown."] if left_out > 0 else [])
        metric = clean(next((s["metric"] for s in self.last if s), "accuracy"))
        for name in ("node", "round", metric, "neighbours", "sent+received", "lag", "state"):
            made.add_column(name, justify="left" if name in ("node", "state") else "right", no_wrap=True)
        for i in order:
            made.add_row(*(Text(cell) for cell in self._cells(i, front, silent[i])))
        return Group(Text(self._summary(silent)), made)

    def _cells(self, i: int, front: int, silent: bool) -> list[str]:
        status, name = self.last[i], clean(self.names[i])
        if status is None:
            return [name, *[UNKNOWN] * 5, "starting"]
        alive = sum(known["alive"] for known in status["neighbours"].values())
        gone = silent and status["state"] not in ("finished", "stopped")
        return [
            name,
            f"{status['round']}/{status['rounds']}",
            UNKNOWN if status["score"] is None else f"{status['score']:.3f}",
            f"{alive}/{len(status['neighbours'])}",
            f"{(status['sent_bytes'] + status['received_bytes']) / 1e6:.1f} MB",
            f"{front - status['round']}",
            "silent" if gone else clean(status["state"]),
        ]

    def _summary(self, silent: list[bool]) -> str:
        known = [s for s in self.last if s]
        if not known:
            return f"{_count(len(self.names), 'node')}, none answers yet"
        slowest, fastest = min(s["round"] for s in known), max(s["round"] for s in known)
        span = f"round {slowest}" if slowest == fastest else f"rounds {slowest} to {fastest}"
        reached = [s["score"] for s in known if s["score"] is not None]
        mean = [f"mean {clean(known[0]['metric'])} {sum(reached) / len(reached):.3f}"] if reached else []
        quiet = sum(q and not (s and s["state"] == "finished") for q, s in zip(silent, self.last, strict=True))
        lost = [f"{quiet} of {_count(len(self.names), 'node')} silent"] if quiet else [_count(len(self.names), "node")]
        moved = sum(s["sent_bytes"] for s in known)
        return ", ".join([f"{span} of {known[0]['rounds']}", *mean, *lost, f"{humanise(moved)} sent"])

    def _line(self, silent: list[bool]) -> None:
        """A line when the slowest that still goes on has come another tenth of the way."""
        going = [s for s, quiet in zip(self.last, silent, strict=True) if s and (not quiet or s["state"] == "finished")]
        begun = [s for s in going if s["rounds"]]
        if not begun:
            return
        tenths = min(10 * s["round"] // s["rounds"] for s in begun)
        if tenths > self.tenths:
            self.tenths = tenths
            self.console.print(Text(self._summary(silent)), soft_wrap=True)


def _table(title: str | None, notes: list[str]) -> Table:
    # Text, because square brackets in a name or an error are markup to rich.
    caption = Text("\n".join(notes)) if notes else None
    made = Table(title=title and Text(title), caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    made.title_justify = made.caption_justify = "left"
    return made


def _whole(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _span(seconds: float) -> str:
    """A duration in the largest unit that says something: `40 s`, `12 min`, `3 h`, `2 d`."""
    seconds = max(seconds, 0)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"

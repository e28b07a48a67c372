"""Many peers while they run: on a terminal, on a low one, and in a log file."""

import io
import re
from typing import Any

from rich.console import Console

from coterie.app.watch import PeersTable
from coterie.records import Event
from statuses import example, row


def node(name: str, round: int, state: str = "training", rounds: int = 20) -> dict[str, Any]:
    status = example()
    status.name, status.round, status.rounds, status.score = name, round, rounds, round / 100
    status.state = state  # type: ignore[assignment]
    return status.as_dict()


class Shown:
    """The peers' table on a console, and what it is told."""

    def __init__(self, names: list[str], terminal: bool, height: int = 40) -> None:
        self.out, self.names = io.StringIO(), names
        self.console = Console(file=self.out, force_terminal=terminal, width=100, height=height, markup=False)
        self.table = PeersTable(self.console)

    def update(self, statuses: list[dict[str, Any] | None]) -> None:
        self.table.event(Event("peers", {"names": self.names, "statuses": statuses}))


def watch(names: list[str], terminal: bool, height: int = 40) -> tuple[Shown, io.StringIO]:
    shown = Shown(names, terminal, height)
    return shown, shown.out


def test_a_log_file_gets_a_line_per_tenth() -> None:
    shown, out = watch(["a", "b"], terminal=False)
    shown.update([None, None])
    for round in range(41):
        shown.update([node("a", round, rounds=40), node("b", max(round - 1, 0), rounds=40)])
    shown.update([node("a", 40, "finished", 40), node("b", 40, "finished", 40)])
    shown.update([None, None])
    shown.table.close()
    lines = out.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("rounds 4 to 5 of 40, mean accuracy 0.045, 2 nodes")
    assert lines[-1].startswith("round 40 of 40")


def test_the_first_metric_is_shown_whichever_it_is() -> None:
    status = example()
    status.metric, status.score = "perplexity", 12.5
    shown, out = watch(["a"], terminal=True)
    shown.update([status.as_dict()])
    shown.table.close()
    assert "perplexity" in out.getvalue()
    assert "mean perplexity 12.500" in out.getvalue()
    assert "accuracy" not in out.getvalue()


def test_a_node_that_died_does_not_silence_the_others() -> None:
    shown, out = watch(["a", "b"], terminal=False)
    shown.update([node("a", 1), node("b", 1)])
    shown.update([node("a", 10), None])
    assert out.getvalue().splitlines() == [
        "rounds 1 to 10 of 20, mean accuracy 0.055, 1 of 2 nodes silent, 2.8 kB sent"
    ]


def test_a_terminal_shows_every_node() -> None:
    shown, out = watch(["a", "b", "c", "d"], terminal=True)
    shown.update([node("a", 5), node("b", 9), node("c", 20, "finished"), None])
    shown.update([node("a", 6), None, None, None])
    shown.console.print("a is slow")
    shown.table.close()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).split("rounds 6 to 20")[1]
    assert row(text, "a") == ["a", "6/20", "0.060", "1/3", "0.0", "MB", "14", "training"]
    assert row(text, "b")[-2:] == ["11", "silent"]
    assert row(text, "c")[-2:] == ["0", "finished"]
    assert row(text, "d")[-1] == "starting"
    assert "a is slow" in text


def test_a_low_terminal_shows_the_slowest() -> None:
    names = [f"n{i}" for i in range(30)]
    shown, out = watch(names, terminal=True, height=12)
    shown.update([node(name, 20 if i % 10 else 3) for i, name in enumerate(names)])
    shown.table.close()
    text = out.getvalue()
    assert all(f"n{i} " in text for i in (0, 10, 20))
    assert "25 more" in text

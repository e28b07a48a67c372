"""What goes wrong says where: which node, which round, which operation."""

import multiprocessing
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from coterie.config.slots import choice
from coterie.errors import RunError, place
from driving import ENGINES, job, session

BROKEN = """
from dataclasses import dataclass

from coterie.contract import Rule
from coterie.lessons import Lesson
from coterie.protocols import Protocol, Receive, Send, Teach, Train


@dataclass(frozen=True)
class Merging(Rule):
    def merge(self, me, params, state, inbox):
        if me.round == 2:
            raise KeyError("in merge")
        return inbox.mean("w"), state


@dataclass(frozen=True)
class Sending(Rule):
    def send(self, me, params, state):
        if me.round == 2:
            raise KeyError("in send")
        return {"w": params}


@dataclass(frozen=True)
class Walking(Protocol):
    def round(self, place, rule, merge_first):
        yield Train()
        if place.node == 3 and place.round == 2:
            raise KeyError("in protocol")


@dataclass(frozen=True)
class Teaching(Lesson):
    def teach(self, pupils, data):
        if data.round == 2:
            raise KeyError("in lesson")
        return {}


def failing(logits, target, me):
    raise KeyError("in objective")
"""

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "merge": ({"rule": "{}:Merging"}, "merg"),
    "send": ({"rule": "{}:Sending"}, "send"),
    "protocol": ({"protocol": "{}:Walking"}, "the protocol of node 3 in round 2"),
    "lesson": (
        {"protocol": {"name": "aggregator", "lesson": "{}:Teaching", "hub": 1}, "topology": "complete"},
        "node 1",
    ),
}


def filled(value: Any, file: Path) -> Any:
    if isinstance(value, dict):
        return {k: filled(v, file) for k, v in value.items()}
    return value.format(file) if isinstance(value, str) else value


@pytest.mark.parametrize("engine", ["loop", "workers", "memory"])
@pytest.mark.parametrize("case", CASES)
def test_an_error_of_a_part_says_node_round_and_operation(case: str, engine: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    settings, words = CASES[case]
    running = session(engine)
    running.begin(job(**filled(settings, file)))
    running.round(1, False)
    with pytest.raises(Exception, match=f"in {case}") as caught:
        running.round(2, False)
    told = in_words(caught.value)
    assert words in told
    assert "in round 2" in told


def in_words(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize("engine", ["loop", "two", "memory"])
def test_an_error_in_training_says_so_with_node_and_round(engine: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    running = session(engine)
    running.begin(job(objective=f"{file}:failing"))
    with pytest.raises(Exception, match="in objective") as caught:
        running.round(1, False)
    assert re.search(r"training (of )?nodes? \d.* in round 1", in_words(caught.value))


def test_a_worker_that_dies_is_told_at_once_with_what_it_did() -> None:
    """It is killed while the calling process is still at its own share, which would take minutes."""
    before = {process.pid for process in multiprocessing.active_children()}
    running = choice("engine", {**ENGINES["workers"], "mode": "loop"}).make().open()
    try:
        running.begin(job(batches=30_000))
        (child,) = {process.pid for process in multiprocessing.active_children()} - before
        assert child
        threading.Timer(1.0, os.kill, (child, signal.SIGKILL)).start()
        with pytest.raises(RunError, match=r"a worker process ended unexpectedly while training nodes? .* in round 1"):
            running.round(1, False)
    finally:
        running.close()


@pytest.mark.parametrize(
    ("nodes", "words"),
    [([3], "node 3 in"), ([3, 4], "nodes 3, 4 in"), (list(range(10)), "7 and 2 more in"), ([], "x in")],
)
def test_places_in_words(nodes: list[int], words: str) -> None:
    assert words in place("x", nodes, 7)
    assert place("x", nodes, 7).endswith("round 7")

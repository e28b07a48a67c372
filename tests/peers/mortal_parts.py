"""A wandering aggregator that kills its own process at a moment of its choice, and notes who leads in which round."""

import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from coterie.contract import Rule
from coterie.lessons import Classroom, Lesson, Pupil
from coterie.lessons.mutual import Mutual
from coterie.protocols import Op, Place, Send, Train
from coterie.protocols.wandering import News, Wandering


def die(folder: str) -> None:
    """As by kill -9; once in all lives."""
    with suppress(FileExistsError), open(Path(folder) / "dead", "x"):
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Mortal(Wandering):
    """Dies as the aggregator of a turn: before it says so, hands the role on, or trains; or while models go back."""

    lesson: Lesson = Mutual(epochs=2)
    moment: str = ""
    turn: int = 2
    folder: str = "."
    pause: float = 0.0
    """Seconds that everyone takes for a round once it is dead, so that it is back before they are done."""

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Generator[Op, Any, None]:
        if (Path(self.folder) / "dead").exists():
            time.sleep(self.pause)
        steps, came, led = super().round(place, rule, merge_first), None, None
        while True:
            try:
                op = steps.send(came)
            except StopIteration:
                return
            if isinstance(op, Send) and op.tag == "news" and led is None:
                told = News.read(op.numbers or ())
                led = told.role.turn if told.holds else -1
                if told.holds:
                    self.note(place, told.role.turn)
            if self.moment and led == self.turn and self.moment == moment(op):
                if self.moment == "returning":
                    threading.Timer(0.02, die, [self.folder]).start()  # while models are under way
                else:
                    die(self.folder)
            came = yield op

    def note(self, place: Place, turn: int) -> None:
        """Write down who leads, in one go, so that processes do not get in each other's way."""
        with open(Path(self.folder) / "led", "a", buffering=1) as file:
            file.write(f"{place.round} {place.identity} {turn}\n")


def moment(op: Op) -> str:
    """What an aggregator is about to do."""
    if isinstance(op, Train):
        return "training"
    return (
        {"news": "calling", "role": "handing on", "back": "returning"}.get(op.tag, "") if isinstance(op, Send) else ""
    )


@dataclass(frozen=True)
class Fatal(Mutual):
    """A lesson in which the aggregator dies, some steps after it has begun."""

    turn: int = 2
    folder: str = "."

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        steps = 0

        def supervise(outputs: Tensor, targets: Tensor) -> Tensor:
            nonlocal steps
            steps += 1
            if data.turn == self.turn and steps == 3:
                die(self.folder)
            return data.supervise(outputs, targets)

        return super().teach(pupils, replace(data, supervise=supervise))

"""Protocols whose nodes kill their own processes, as a user would bring them."""

import itertools
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from coterie.contract import Rule
from coterie.protocols import Place, Round
from coterie.protocols.aggregator import Aggregator
from coterie.protocols.relay import Relay


def dying(inner: Round, place: Place, deaths: tuple[str, ...], marks: str) -> Round:
    """The same round, in which processes end with kill -9 before some of its operations, once each."""
    value = None
    for count in itertools.count():
        death = f"{place.node} {place.round} {count}"
        if death in deaths and not Path(marks, death).exists():
            Path(marks, death).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            value = yield inner.send(value)
        except StopIteration:
            return


@dataclass(frozen=True)
class Mortal(Relay):
    """A relay of mortals."""

    deaths: tuple[str, ...] = ()
    """`node round operation` each."""
    marks: str = ""
    """A folder with a file for each that has happened."""

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        return dying(super().round(place, rule, merge_first), place, self.deaths, self.marks)


@dataclass(frozen=True)
class Hub(Aggregator):
    """A mortal hub, or its deputies."""

    deaths: tuple[str, ...] = ()
    marks: str = ""

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        return dying(super().round(place, rule, merge_first), place, self.deaths, self.marks)

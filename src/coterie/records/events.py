"""Events of a run, and whoever observes them.

An observer is any object with `event(event)`; if it also has `close()`, that is called once when the run is over,
however it ended. One that raises is told no more and a `warning` tells why, so that it cannot spoil the run;
`KeyboardInterrupt` passes, and stops the run at once.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

NAMES = ("begin", "round", "evaluation", "exchange", "fault", "checkpoint", "warning", "end", "peers", "phase", "need")
"""All events there are; docs/records.md tells what each says. The last three are for observers alone."""


@dataclass(frozen=True)
class Event:
    """Something that happened in a run: its name, what is known of it, and when it was, in Unix seconds."""

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)
    time: float = field(default_factory=time.time)

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def get(self, key: str, default: Any = None) -> Any:
        """What is known under a key, if anything is."""
        return self.data.get(key, default)

    @property
    def job(self) -> tuple[str, int] | None:
        """Method and seed; None for what happens to the run as a whole."""
        return (self.data["method"], self.data["seed"]) if "method" in self.data else None


class Observer(Protocol):
    """Whoever wants to see a run go on."""

    def event(self, event: Event, /) -> None:
        """Take note of an event."""
        ...

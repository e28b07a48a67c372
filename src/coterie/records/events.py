"""Events of a run, and whoever observes them.

An observer is any object with `event(event)`, which is told everything, or a `Watcher`, which may wait for the end of
rounds, evaluations or jobs and is then handed the run as it is. If it has `close()`, that is called once when the run
is over, however it ended. One that raises is told no more and a `warning` tells why, so that it cannot spoil the run;
`KeyboardInterrupt` passes, and stops the run at once.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from coterie.errors import RunError

if TYPE_CHECKING:
    import polars as pl

    from coterie.records.models import NodeModels

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


@dataclass(frozen=True)
class Sight:
    """What can be seen of a job under way, made when it is asked for."""

    records: "Callable[[], pl.DataFrame]"
    models: "Callable[[], NodeModels] | None" = None
    """None where nodes keep their models to themselves."""


@dataclass(frozen=True)
class Moment:
    """A job as it is at an event: its records so far, and its models, which are copies."""

    event: Event
    sight: Sight

    @property
    def method(self) -> str:
        """Whose job it is."""
        return str(self.event["method"])

    @property
    def seed(self) -> int:
        """With which seed."""
        return int(self.event["seed"])

    @property
    def round(self) -> int:
        """How many rounds are done."""
        return int(self.event.get("round", 0))

    @property
    def records(self) -> "pl.DataFrame":
        """The records of this job until now, as they will stand in `records.parquet`."""
        return self.sight.records()

    @property
    def models(self) -> "NodeModels":
        """Every node's model as it is now, by node: `models[3].module()`. Changing one changes nothing in the run."""
        if self.sight.models is None:
            cure = "Look at them when the run is over: run.models(). The engines local and memory show them always."
            raise RunError("peers keep their models to themselves while they run", cure=cure)
        return self.sight.models()


class Watcher:
    """An observer to inherit from: each method does nothing, and a child has those that it cares for."""

    def event(self, event: Event, /) -> None:
        """Anything has happened."""

    def on_round(self, now: Moment, /) -> None:
        """A round of a job is done."""

    def on_evaluation(self, now: Moment, /) -> None:
        """The models of a job have been judged in a round: `now.event` has all numbers."""

    def on_end(self, now: Moment, /) -> None:
        """A job is over: `now.event["how"]` says how it ended, `done` if all is well."""

    def close(self) -> None:
        """The run is over, however it ended."""


HOOKS = {"round": "on_round", "evaluation": "on_evaluation", "end": "on_end"}
"""Event -> the method of an observer that is handed the moment, if it has it."""


def tell(observer: Any, event: Event, sight: Sight | None) -> None:
    """Tell an observer of an event, and hand it the moment if it waits for one of that kind."""
    if callable(listen := getattr(observer, "event", None)):
        listen(event)
    hook = getattr(observer, HOOKS.get(event.name, ""), None)
    if callable(hook) and sight is not None and event.job is not None and "peer" not in event.data:
        hook(Moment(event, sight))

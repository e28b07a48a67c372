"""The keeper of peers' processes: what dies is started again, at once or after a rest."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from coterie.config.build import build, load_samples
from coterie.engines import JobRun
from coterie.engines import peer as fleets
from coterie.engines.peer import Fleet, Peer
from coterie.errors import RunError
from coterie.records import Channel, Event
from coterie.runs.experiment import Experiment


class Clock:
    """A time that passes only while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Process:
    """A process that ends by itself after some seconds, or when it is told to."""

    def __init__(self, clock: Clock, seconds: float, exitcode: int) -> None:
        self.clock, self.end, self.exitcode = clock, clock.now + seconds, exitcode

    def is_alive(self) -> bool:
        return self.clock.now < self.end

    def terminate(self) -> None:
        self.end = self.clock.now

    def join(self, timeout: float) -> None:
        assert not self.is_alive()


class Mortals(Fleet):
    """Peers of which the first dies: its n-th process lives for `lives(n)` seconds. The others do their work."""

    def __init__(self, engine: Peer, clock: Clock, lives: Callable[[int], float]) -> None:
        super().__init__(engine)
        self.clock, self.lives, self.exitcode = clock, lives, 1
        self.starts: list[float] = []
        self.notes: list[str] = []

    def starter(self, *args: Any) -> Callable[[], Any]:
        _, _, _, node, *_ = args

        def start() -> Any:
            if node:
                return Process(self.clock, 0, exitcode=0)
            self.starts.append(self.clock.now)
            return Process(self.clock, self.lives(len(self.starts)), self.exitcode)

        return start

    def event(self, event: Event) -> None:
        if event.name == "warning":
            self.notes.append(event["text"])

    def live(self, until: float) -> None:
        """Run a job, which is broken off at this time."""
        pair = Experiment(nodes=2, topology="complete", total=60, methods=["decavg"])
        settings, channel = pair.resolved["decavg"], Channel(None, [self]).job("decavg", 0)
        made = build(settings, load_samples(settings), 0)
        self.run(JobRun("decavg", 0, settings, made, pair, None, channel, lambda: self.clock.now >= until))


def test_who_dies_as_soon_as_it_is_up_rests_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Mortals(Peer(restarts=20), Clock(monkeypatch), lambda number: 0)
    with pytest.raises(KeyboardInterrupt):
        fleet.live(until=140)
    gaps = [b - a for a, b in itertools.pairwise(fleet.starts)]
    assert gaps == sorted(gaps)
    assert gaps[0] < 1.5
    assert gaps[-1] >= 15
    assert [note.rpartition(" in ")[2] for note in fleet.notes[:3]] == ["0.5 s", "1 s", "2 s"]


def test_who_has_worked_for_a_while_is_started_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Mortals(Peer(restarts=20), Clock(monkeypatch), lambda number: fleets.STEADY if number == 4 else 0)
    with pytest.raises(KeyboardInterrupt):
        fleet.live(until=120)
    assert fleet.notes[3] == "node-0 ended (exit code 1) and is started again"
    assert fleet.starts[4] - fleet.starts[3] < fleets.STEADY + 1
    assert fleet.notes[4].endswith("in 0.5 s")  # the count of hasty deaths begins anew


def test_after_the_last_restart_the_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Mortals(Peer(restarts=1), Clock(monkeypatch), lambda number: 0)
    with pytest.raises(RunError, match=r"node-0 ended 2 times \(last: exit code 1\)"):
        fleet.live(until=140)
    assert len(fleet.starts) == 2


def test_who_could_not_write_down_why_it_ended_ends_the_job_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Mortals(Peer(restarts=1), Clock(monkeypatch), lambda number: 0)
    fleet.exitcode = fleets.UNFIT
    with pytest.raises(RunError, match=f"node-0: exit code {fleets.UNFIT}"):
        fleet.live(until=140)

"""The keeper of peers' processes: what dies is started again, at once or after a rest."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from coterie.engines import peer as fleets
from coterie.engines.peer import Fleet, Peer, _Process
from coterie.errors import RunError


class Clock:
    """A time that passes when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(fleets.time, "monotonic", lambda: self.now)


def dead(code: int = 1) -> SimpleNamespace:
    return SimpleNamespace(is_alive=lambda: False, exitcode=code)


def test_who_dies_as_soon_as_it_is_up_rests_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, starts, notes = Clock(monkeypatch), [], []
    fleet = Fleet(Peer(restarts=20))
    peer = _Process("node-0", Path("."), lambda: starts.append(clock.now) or dead())
    peer.begin()
    while clock.now < 140:
        fleet._look_after(peer, notes.append)
        clock.now += 0.25
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    assert gaps == sorted(gaps)
    assert gaps[0] < 1
    assert gaps[-1] >= 15
    assert [note.rpartition(" in ")[2] for note in notes[:3]] == ["0.5 s", "1 s", "2 s"]


def test_who_has_worked_for_a_while_is_started_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    fleet, peer = Fleet(Peer()), _Process("node-0", Path("."), dead)
    peer.begin()
    peer.hasty = 5
    clock.now += fleets.STEADY
    notes: list[str] = []
    fleet._look_after(peer, notes.append)
    fleet._look_after(peer, notes.append)
    assert peer.process is not None
    assert peer.started == clock.now
    assert notes == ["node-0 ended (exit code 1) and is started again"]


def test_after_the_last_restart_the_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    fleet, peer = Fleet(Peer(restarts=1)), _Process("node-0", Path("."), dead)
    peer.begin()
    fleet._look_after(peer, lambda text: None)
    clock.now += 1
    fleet._look_after(peer, lambda text: None)
    with pytest.raises(RunError, match="ended 2 times"):
        fleet._look_after(peer, lambda text: None)

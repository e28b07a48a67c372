"""What a peer goes on with: how long it was away, and what it does on a disk that takes nothing."""

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from coterie.net import status
from coterie.peers import checkpoint
from coterie.peers.runtime import PeerRuntime
from peering import given, kept, run, together

YEAR = 365 * 24 * 3600.0


@pytest.mark.parametrize("jump", [-YEAR, YEAR])
def test_no_clock_that_can_be_set_tells_how_long_a_peer_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """Else a jump would let the first neighbour that is there make a peer skip rounds that nobody has done."""
    (config, *_) = crew = given(tmp_path)
    run(together(crew))
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + jump)
    peer = PeerRuntime(config)
    assert peer.keeper.restore(peer.journal) == 3
    assert 0 < peer.keeper.away < YEAR / 2


def test_a_machine_that_was_started_anew_knows_no_more_than_how_long_it_is_up() -> None:
    start, seconds = checkpoint.uptime()
    assert checkpoint.since((start, seconds - 5)) == pytest.approx(5, abs=1)
    for then in (("another", seconds - 5), ("another", seconds + YEAR), (start, seconds + YEAR)):
        assert checkpoint.since(then) == pytest.approx(seconds, abs=1)


def test_a_peer_that_begins_on_a_full_disk_goes_on_and_shows_its_status_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew, write, refused = given(tmp_path), Path.write_text, list[Path]()

    def full(self: Path, *args: Any, **options: Any) -> int:
        if len(refused) < len(crew):
            refused.append(self)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, *args, **options)

    monkeypatch.setattr(Path, "write_text", full)
    run(together(crew))
    assert [path.parent for path in refused] == [config.folder for config in crew]
    for config in crew:
        assert kept(config)[0]["round"] == "3"
        assert (config.folder / status.FILE).exists()

"""Peers that are ended wherever their state changes go on where they were, whatever their disks have forgotten."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import breaking
import breaking_peers
from coterie import records
from coterie.peers.checkpoint import CHECKPOINT, has_checkpoint, load_checkpoint

ROUNDS = 4
NAMES = ("node-0", "node-1", "node-2")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Any]]]:
    """Three peers that were ended together and started again: folder, place, how, both exit codes."""
    folder = tmp_path_factory.mktemp("ended")
    command = [sys.executable, breaking_peers.__file__, str(folder), str(ROUNDS)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return folder, [json.loads(line) for line in said.stdout.splitlines()]


def done(folder: Path) -> int:
    """The round of a peer's checkpoint, 0 if it has none."""
    return int(load_checkpoint(folder / CHECKPOINT)[0]["round"]) if has_checkpoint(folder) else 0


def rounds(folder: Path) -> list[int]:
    """The rounds that a peer has told of, in order."""
    return [event["round"] for event in records.events(folder) if event.name == "round"]


def test_they_are_ended_everywhere_and_finish(ended: tuple[Path, list[list[Any]]]) -> None:
    folder, found = ended
    assert {(code, again) for *_, code, again in found} == {(breaking.ENDED, 0)}
    places = {place for _, place, *_ in found}
    assert {how for _, _, how, *_ in found} == {"killed", "lost", "torn", "zeros"}
    assert {f"before operation {name}" for name in ("Train", "Send", "Receive", "Merge")} <= places
    assert {"before taking in model", "before write journal.jsonl", "before sync journal.jsonl"} <= places
    assert {f"before rename {name}" for name in ("state.safetensors", "state.before.safetensors")} <= places
    for change in ("write", "sync"):
        assert f"before {change} records.rows" in places
        assert {f"before {change} .{name}.new" for name in ("state.safetensors", "records.parquet")} <= places
    assert all(done(folder / name / peer) == ROUNDS for name, *_ in found for peer in NAMES)


def test_at_most_the_round_under_way_is_lost_and_nobody_runs_ahead(ended: tuple[Path, list[list[Any]]]) -> None:
    folder, found = ended
    for name, *_ in found:
        before = {peer: done(folder / f"{name}-ended" / peer) for peer in NAMES}
        for peer, last in before.items():
            assert last >= max(rounds(folder / f"{name}-ended" / peer), default=0) - 1
            after = [number for number in rounds(folder / name / peer) if number > last]
            assert after[:1] <= [max(before.values()) + 1]


def test_records_have_neither_gaps_nor_doubles(ended: tuple[Path, list[list[Any]]]) -> None:
    """Each round that a peer tells of is in its records, and was done once."""
    folder, found = ended
    for name, *_ in found:
        for peer in NAMES:
            told, rows = rounds(folder / name / peer), records.read_frame(folder / name / peer / "records.parquet")
            assert told == sorted(set(told))
            assert rows["round"].to_list() == [0, *told]
            assert rows["batches"].to_list() == [2 * i for i in range(len(told) + 1)]

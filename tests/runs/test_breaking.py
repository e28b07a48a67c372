"""A run that is ended wherever its state changes goes on as if nothing had been, whatever the disk has forgotten."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import breaking
from coterie import records
from small import assert_same, happened, small

SETTINGS: dict[str, Any] = {
    "methods": ["dechw"],
    "nodes": 3,
    "rounds": 4,
    "batches": 1,
    "total": 60,
    "test_share": 0.1,
    "evaluate": 2,
    "model": {"name": "mlp", "sizes": [4]},
}
"""Rounds enough for three checkpoints, of which the first is removed."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Any]]]:
    """Runs that were ended and went on, and for each: folder, place, how, round under way, both exit codes."""
    folder = tmp_path_factory.mktemp("ended")
    (folder / "config.toml").write_text(small(**SETTINGS).to_toml())
    command = [sys.executable, breaking.__file__, str(folder / "config.toml"), str(folder)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return folder, [json.loads(line) for line in said.stdout.splitlines()]


def test_it_is_ended_everywhere(ended: tuple[Path, list[list[Any]]]) -> None:
    _, found = ended
    assert {(code, again) for *_, code, again in found} == {(breaking.ENDED, 0)}
    places = {place for _, place, *_ in found}
    for change in ("write", "sync", "rename"):
        for name in ("config.toml", "environment.json", "records.parquet", "done.parquet", "models.safetensors"):
            assert f"before {change} {name if change == 'rename' else f'.{name}.new'}" in places
    assert {f"before write {name}" for name in ("journal.jsonl", "state.safetensors", "checkpoint.json")} <= places
    assert {"before operation merge", "before rename round-000000003", "before removal round-000000001"} <= places


def test_records_and_journal_are_those_of_a_run_that_nobody_disturbed(ended: tuple[Path, list[list[Any]]]) -> None:
    """So no round is merged twice, and records have neither gaps nor doubles."""
    folder, found = ended
    straight, history = records.load(folder / "straight"), happened(folder / "straight")
    for name, *_ in found:
        assert_same(records.load(folder / name), straight)
        assert happened(folder / name) == history
        left = [path.name for path in (folder / name).glob("**/*")]
        assert not [each for each in left if each.startswith((".", "making", "round", "damaged"))]


def test_at_most_the_round_under_way_is_lost(ended: tuple[Path, list[list[Any]]]) -> None:
    folder, found = ended
    begun = [(json.loads((folder / name / "begun.json").read_text()), running) for name, _, _, running, *_ in found]
    assert all(first >= running - 1 for (first,), running in (one for one in begun if one[0]))
    assert {first for (first,), _ in (one for one in begun if one[0])} == {0, 1, 2, 3}

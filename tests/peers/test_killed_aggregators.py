"""Five machines' worth of `coterie peer run`, an architecture each, on a ring; whoever leads ends with kill -9."""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import deadly
import pytest
import torch
from safetensors.torch import load_file

from coterie import records
from coterie.app import cli

ROUNDS, KILLS = 50, (5, 15, 25)
RECOVERY = 4 + 2 * 3 + 3
"""Rounds after which there is one aggregator again: patience, and twice the way through those who are left."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder, and what became of all; twice the victim comes back at once, the third time it does not."""
    folder = tmp_path_factory.mktemp("ended")
    command = [sys.executable, deadly.__file__, str(folder), str(ROUNDS), "0", *map(str, KILLS)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=deadly.PATIENCE + 60)
    return folder, json.loads(said.stdout)


def test_whoever_led_is_dead_and_the_others_have_done_all_rounds(ended: tuple[Path, dict[str, Any]]) -> None:
    folder, found = ended
    assert [number >= wanted for (_, number), wanted in zip(found["killed"], KILLS, strict=True)] == [True] * 3
    gone = found["killed"][-1][0]
    assert found["codes"] == dict.fromkeys({*deadly.NAMES} - {gone}, 0)
    for name in found["codes"]:
        rows = records.read_frame(folder / name / "run" / "records.parquet")
        assert rows["round"][-1] == ROUNDS
        assert rows["test_accuracy"][-1] > rows["test_accuracy"][0] + 0.1


def test_peaks_are_kept_through_all_that_and_exported(ended: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Each peer's own architecture; a model that has been at no meeting of late is not at its peak."""
    folder, found = ended
    same = []
    for name in found["codes"]:
        for flags, file in ([], "now"), (["--peak"], "peak"):
            assert cli.main(["peer", "export", str(tmp_path / file), *flags, "--home", str(folder / name)]) == 0
        now, peak = load_file(tmp_path / "now"), load_file(tmp_path / "peak")
        assert {k: v.shape for k, v in now.items()} == {k: v.shape for k, v in peak.items()}
        same.append(all(torch.equal(now[k], peak[k]) for k in now))
    assert not all(same)


def test_there_is_one_aggregator_again_after_each(ended: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = ended
    led: dict[int, dict[int, int]] = defaultdict(dict)
    for line in (folder / "led").read_text().splitlines():
        number, who, turn = map(int, line.split())
        led[number][who] = turn
    assert max(map(len, (led[r] for r in range(4, ROUNDS + 1)))) <= 2  # before that names are still heard of
    alone = [r for r in range(4, ROUNDS + 1) if len(led[r]) == 1]
    assert ROUNDS - 3 - len(alone) <= len(KILLS) * RECOVERY
    assert alone[-5:] == [*range(ROUNDS - 4, ROUNDS + 1)]
    assert len({who for r in alone for who in led[r]}) > 1
    turns = [turn for r in alone[-5:] for turn in led[r].values()]
    assert turns == [*range(turns[0], turns[0] + 5)]
    assert turns[-1] >= ROUNDS - 4 - len(KILLS) * RECOVERY

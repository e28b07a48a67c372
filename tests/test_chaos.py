"""Peers in trouble, in short: `make chaos` is the long form."""

import json
import sys
from pathlib import Path

import polars as pl
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
from chaos.checks import Survivor
from chaos.plan import Plan
from chaos.scenario import run

PLAN = Plan(
    nodes=6,
    neighbours=3,
    rounds=100,
    first=3,
    every=(4, 8),
    until=75,
    stop=3,
    cut=15,
    full=30,
    lasts=3,
    pause=3.0,
    silent=300,
    dawdle=0.3,
    # A sixth of the data and many of few rounds are missing here: the 2 points are for the long run.
    points=0.06,
)


@pytest.mark.xdist_group("namespaces")
def test_peers_in_trouble_lose_nothing_let_nobody_in_and_learn_as_well(tmp_path: Path) -> None:
    """In trouble of every kind, against the same without."""
    found = run(PLAN, tmp_path)
    wrong = [f"{check.what}: {check.found}" for check in found if not check.fine]
    assert not wrong, "\n".join(wrong)


class TestTheChecks:
    """The checks themselves notice what they are for."""

    def survivor(self, folder: Path, log: list[dict[str, object]], rounds: list[int]) -> Survivor:
        (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in log))
        pl.DataFrame({"round": rounds}).write_parquet(folder / "records.parquet")
        return Survivor("node-0", folder)

    @pytest.mark.parametrize(
        ("rounds", "lost"),
        [
            ([0, 1, 2, 5], 0),
            ([0, 1, 5], 2),  # round 2 was done, and nothing else tells of it
            ([0, 1, 2], 1),
            ([0, 1, 2, 2, 5], 1),
        ],
    )
    def test_lost_records_are_found(self, tmp_path: Path, rounds: list[int], lost: int) -> None:
        log: list[dict[str, object]] = [
            {"event": "round", "round": 1},
            {"event": "round", "round": 2},
            {"event": "catching up", "round": 5, "skipped": 2},
        ]
        assert len(self.survivor(tmp_path, log, rounds).lost(5)) == lost

    @pytest.mark.parametrize(("back", "setbacks"), [(4, 0), (5, 0), (3, 1)])
    def test_setbacks_are_found(self, tmp_path: Path, back: int, setbacks: int) -> None:
        log: list[dict[str, object]] = [
            {"event": "round", "round": 4},
            {"event": "going on", "round": back},
            {"event": "round", "round": 6},
        ]
        assert len(self.survivor(tmp_path, log, [0]).setbacks()) == setbacks

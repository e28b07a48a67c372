"""Peers in trouble, in short: `make chaos` is the long form."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import chaos

PLAN = chaos.Plan(
    nodes=6,
    neighbours=3,
    rounds=30,
    epochs=6,
    first=2,
    every=(2, 4),
    until=20,
    stop=3,
    pause=5.0,
    dawdle=0.3,
    calm={"name": "local"},
)


def test_peers_in_trouble_lose_nothing_let_nobody_in_and_learn_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, stopped, lied to by a neighbour and knocked at by strangers, against the same without trouble."""
    # A sixth of the data and many of few rounds are missing here: the 2 points are for the long run.
    monkeypatch.setattr(chaos, "POINTS", 0.06)
    found = chaos.run(PLAN, tmp_path)
    wrong = [f"{check.what}: {check.found}" for check in found if not check.fine]
    assert not wrong, "\n".join(wrong)


class TestTheChecks:
    """The checks themselves notice what they are for."""

    def survivor(self, folder: Path, log: list[dict[str, object]], rounds: list[int]) -> chaos.Survivor:
        (folder / "log.jsonl").write_text("".join(chaos.json.dumps(event) + "\n" for event in log))
        chaos.pl.DataFrame({"round": rounds}).write_parquet(folder / "records.parquet")
        return chaos.Survivor("node-0", folder)

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

"""A peer and its disk: full, failing, or in somebody else's hands."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from coterie import files, records
from coterie.errors import PeerError, RunError
from coterie.node.node import snapshot
from coterie.peers.checkpoint import BEFORE, CHECKPOINT, ROWS, load_checkpoint
from coterie.peers.deployment import export, last_words
from coterie.peers.runtime import PeerRuntime
from coterie.runs.experiment import Experiment
from peering import TINY, given, kept, run, together, until


def full_disk(monkeypatch: pytest.MonkeyPatch, rounds: set[str]) -> None:
    """Checkpoints of these rounds find no room."""
    write = files.write

    def refuse(path: Path, *pieces: bytes, **more: Any) -> None:
        if path.name == CHECKPOINT and about(pieces[0])["round"] in rounds:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, *pieces, **more)

    monkeypatch.setattr(files, "write", refuse)


def about(checkpoint: bytes) -> dict[str, str]:
    """What a checkpoint says of itself: the metadata in the head of a safetensors file."""
    length = int.from_bytes(checkpoint[:8], "little")
    said: dict[str, str] = json.loads(checkpoint[8 : 8 + length])["__metadata__"]
    return said


def test_a_full_disk_does_not_stop_a_peer_and_leaves_its_checkpoint_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew, seen = given(tmp_path, rounds=4), []
    full_disk(monkeypatch, {"2", "3"})

    async def look(running: list[PeerRuntime]) -> None:
        await until(lambda: running[0].status.checkpoint_errors)
        seen.append(kept(crew[0])[0]["round"])
        seen.append(running[0].status)

    run(together(crew, look))
    assert seen[0] in ("1", "4")  # it was whole then, and it may be the last by now
    assert seen[1].checkpoint_errors == 2
    assert "the disk is full" in seen[1].errors[0]["text"]
    assert kept(crew[0])[0]["round"] == "4"


def test_a_disk_that_stays_full_fills_neither_log_nor_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crew = given(tmp_path, rounds=60, evaluate=60)
    full_disk(monkeypatch, {str(number) for number in range(1, 60)})
    found: list[PeerRuntime] = []

    async def keep(running: list[PeerRuntime]) -> None:
        found.extend(running)

    run(together(crew, keep))
    assert found[0].status.checkpoint_errors == 59
    assert (crew[0].folder / "log.jsonl").read_text().count("no checkpoint") < 15
    assert len([e for e in records.events(crew[0].folder) if e.name == "warning"]) < 15


def test_a_full_disk_at_the_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crew = given(tmp_path)
    full_disk(monkeypatch, {"3"})
    with pytest.raises(RunError, match="the disk is full"):
        run(together(crew))
    assert kept(crew[0])[0]["round"] in ("1", "2")


def test_checkpoints_do_not_grow_with_the_records(tmp_path: Path) -> None:
    """Rows are written once; what a checkpoint says of them is how many bytes count."""
    sizes = []
    for rounds in (3, 40):
        crew = given(tmp_path / str(rounds), rounds=rounds, evaluate=1)
        rows = run(together(crew))
        assert rows.filter(pl.col("node") == 0).equals(kept(crew[0])[2])
        assert len(kept(crew[0])[2]) == rounds + 1
        sizes.append((crew[0].folder / CHECKPOINT).stat().st_size)
    assert sizes[1] < sizes[0] + 1000


def test_damaged_checkpoints_are_said_and_not_overwritten(tmp_path: Path) -> None:
    crew = given(tmp_path)
    run(together(crew))
    both = [crew[0].folder / name for name in (CHECKPOINT, BEFORE)]
    for file in both:
        file.write_bytes(file.read_bytes()[:-7])
    before = [file.read_bytes() for file in both]
    with pytest.raises(RunError, match="damaged") as caught:
        run(PeerRuntime(crew[0]).go())
    assert "Remove it" in str(caught.value)
    assert [file.read_bytes() for file in both] == before


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_if_the_newest_checkpoint_is_damaged_the_one_before_is_taken(tmp_path: Path, damage: str) -> None:
    crew = given(tmp_path, rounds=4)
    run(together(crew))
    spoilt = crew[0].folder / CHECKPOINT
    content = bytearray(spoilt.read_bytes())
    content[-100] ^= 4
    spoilt.unlink() if damage == "gone" else spoilt.write_bytes(content)
    back = PeerRuntime(crew[0])
    assert back.keeper.restore(back.journal) == 3
    assert back.keeper.rows["round"].to_list() == [0, 1, 2, 3]
    told = records.events(crew[0].folder)
    assert (told[-2].name, told[-2]["round"]) == ("checkpoint", 3)
    assert told[-1].name == "warning"
    assert "going on from the checkpoint before, of round 3" in told[-1]["text"]
    back.keeper.save(4, back.journal)
    assert kept(crew[0])[0]["round"] == "4"
    assert load_checkpoint(crew[0].folder / BEFORE)[0]["round"] == "3"


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_damaged_rows_cost_neither_model_nor_the_other_rows(tmp_path: Path, damage: str) -> None:
    crew = given(tmp_path, rounds=4, evaluate=1)
    run(together(crew))
    rows, (_, state, whole) = crew[0].folder / ROWS, kept(crew[0])
    content = bytearray(rows.read_bytes())
    content[len(content) // 2] ^= 4
    rows.unlink() if damage == "gone" else rows.write_bytes(content)
    export(crew[0].home, tmp_path / "model.safetensors")
    assert last_words(crew[0].home.path) == "It has finished, with round 4."
    back = PeerRuntime(crew[0])
    assert back.keeper.restore(back.journal) == 4
    left = whole.filter(pl.col("round") != 2) if damage == "flipped" else whole.clear()
    assert back.keeper.rows.equals(left)
    told = records.events(crew[0].folder)[-1]
    assert told.name == "warning"
    assert ("after round 1 and before round 3" if damage == "flipped" else "all of them") in told["text"]
    assert "is damaged" in (crew[0].folder / "log.jsonl").read_text()
    if damage == "flipped":
        assert rows.with_name(f"damaged.{ROWS}").read_bytes() == content
    restored = snapshot([back.node])
    assert restored.keys() == state.keys()
    assert all(torch.allclose(restored[name], state[name], rtol=0, atol=0, equal_nan=True) for name in state)
    again = PeerRuntime(crew[0])  # told once, and both checkpoints stand
    assert again.keeper.restore(again.journal) == 4
    (crew[0].folder / CHECKPOINT).unlink()
    assert again.keeper.restore(again.journal) == 3
    assert (crew[0].folder / "log.jsonl").read_text().count(f"{ROWS} is damaged") == 1


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_rows_that_are_lost_while_a_peer_works_are_written_anew(tmp_path: Path, damage: str) -> None:
    crew = given(tmp_path, rounds=40, evaluate=1)
    rows = crew[0].folder / ROWS

    async def lose(running: list[PeerRuntime]) -> None:
        await until(lambda: running[0].status.checkpoints >= 5)
        rows.unlink() if damage == "gone" else os.truncate(rows, 10)

    found = run(together(crew, lose))
    assert kept(crew[0])[2].equals(found.filter(pl.col("node") == 0))
    assert any("written anew" in e.data.get("text", "") for e in records.events(crew[0].folder))


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    crew = given(tmp_path)
    run(together(crew))
    (other,) = Experiment(**{**TINY, "lr": 0.7}).resolved.values()
    with pytest.raises(PeerError, match="another configuration"):
        run(PeerRuntime(replace(crew[0], settings=other)).go())
    with pytest.raises(PeerError, match="another peer"):
        run(PeerRuntime(replace(crew[1], folder=crew[0].folder)).go())

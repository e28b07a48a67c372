"""Tables that grow line by line: what counts comes back to the bit, damage is seen, what failed is tried again."""

import errno
import math
import os
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from coterie import failpoints
from coterie.records import growing
from coterie.records.growing import GrowingTable

TYPES = {"name": pl.String, "round": pl.Int64, "value": pl.Float64}


def frame(*values: float | None) -> pl.DataFrame:
    return pl.DataFrame({"name": ["ä\n"] * len(values), "round": range(len(values)), "value": values}, schema=TYPES)


def written(table: GrowingTable, *frames: pl.DataFrame) -> int:
    """Write a table whose rows are these; how many bytes count."""
    assert table.write(pl.concat(frames) if frames else frame())
    return table.length


def test_rows_come_back_as_they_were_and_earlier_ones_are_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "x.rows"
    table = GrowingTable(path)
    assert written(table) == 0
    assert growing.read(path, 0, TYPES).schema == TYPES
    table.add(frame(0.1, None))
    first = written(table)
    before = path.read_bytes()
    table.add(frame(math.inf, 1e-300, 2 / 3))
    second = written(table)
    assert (len(before), path.read_bytes()[:first]) == (first, before)
    assert_frame_equal(growing.read(path, first, TYPES), frame(0.1, None))
    assert_frame_equal(growing.read(path, second, TYPES), pl.concat([frame(0.1, None), frame(math.inf, 1e-300, 2 / 3)]))


def test_what_is_behind_the_part_that_counts_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "x.rows"
    table = GrowingTable(path)
    table.add(frame(1.0))
    counts = written(table)
    table.add(frame(2.0, 3.0, 4.0))
    written(table)
    again = GrowingTable(path, counts)
    again.add(frame(5.0))
    assert_frame_equal(growing.read(path, written(again), TYPES), pl.concat([frame(1.0), frame(5.0)]))
    assert path.stat().st_size == again.length


def test_what_is_behind_the_part_that_counts_is_not_even_read(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "x.rows")
    table.add(frame(1.0))
    length = written(table)
    os.truncate(table.path, 1 << 40)  # more than there is memory for
    assert_frame_equal(growing.read(table.path, length, TYPES), frame(1.0))


def test_what_the_disk_refuses_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.rows"
    table = GrowingTable(path)
    table.add(frame(1.0))
    written(table)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    table.add(frame(2.0))
    with monkeypatch.context() as patch:
        patch.setattr(growing.files, "extend", full)
        with pytest.raises(OSError, match="space"):
            table.write(frame())
    with path.open("ab") as file:
        file.write(b"half a li")
    table.add(frame(3.0))
    assert_frame_equal(growing.read(path, written(table), TYPES), pl.concat([frame(1.0), frame(2.0), frame(3.0)]))


def test_a_file_that_is_cut_while_rows_are_added_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.rows"
    table = GrowingTable(path)
    table.add(frame(1.0))
    written(table)
    table.add(frame(2.0))
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hook", lambda place, what: place == "before cut" and os.truncate(path, 10))
        assert not table.write(pl.concat([frame(1.0), frame(2.0)]))
    assert_frame_equal(growing.read(path, table.length, TYPES), pl.concat([frame(1.0), frame(2.0)]))
    table.add(frame(3.0))
    assert_frame_equal(growing.read(path, written(table), TYPES), pl.concat([frame(1.0), frame(2.0), frame(3.0)]))


@pytest.mark.parametrize("place", [0, 8, 20, -2])
def test_a_flipped_bit_is_seen(tmp_path: Path, place: int) -> None:
    path = tmp_path / "x.rows"
    table = GrowingTable(path)
    table.add(frame(1.0, 2.0))
    length = written(table)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="rows are lost"):
        growing.read(path, length, TYPES)
    path.write_bytes(content[:-5])
    with pytest.raises(ValueError, match="rows are lost"):
        growing.read(path, length, TYPES)


@pytest.mark.parametrize("damage", ["flipped", "newline", "cut", "gone"])
def test_what_is_whole_of_a_damaged_table_is_kept_in_its_place(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x.rows"
    table = GrowingTable(path)
    table.add(frame(1.0, 2.0, 3.0, 4.0))
    length = written(table)
    lines = path.read_bytes().splitlines(keepends=True)
    content = {
        "flipped": b"".join([lines[0], lines[1].replace(b"2.0", b"6.0"), *lines[2:]]),
        "newline": b"".join([lines[0], lines[1][:-1] + b"x", *lines[2:]]),
        "cut": b"".join(lines)[: -len(lines[3]) - 5],
        "gone": b"",
    }[damage]
    path.unlink() if damage == "gone" else path.write_bytes(content)
    found = growing.sift(path, length)
    told = {
        "flipped": ([0, 2, 3], ["after round 0 and before round 2"]),
        "newline": ([0, 3], ["after round 0 and before round 3"]),
        "cut": ([0, 1], ["after round 1"]),
        "gone": ([], ["all of them"]),
    }[damage]
    assert ([row["round"] for row in found.rows], found.lost) == told
    path.write_bytes(found.content)
    assert len(found.content) == length  # an earlier checkpoint counts fewer bytes of the same file
    assert growing.read(path, length, TYPES)["round"].to_list() == told[0]
    again = GrowingTable(path, length)
    again.add(frame(5.0))
    assert growing.read(path, written(again), TYPES)["value"].to_list()[-1] == 5.0


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_table_that_is_cut_or_removed_meanwhile_is_written_anew(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x.rows"
    table = GrowingTable(path)
    table.add(frame(1.0, 2.0))
    length, before = written(table), path.read_bytes()
    path.unlink() if damage == "gone" else path.write_bytes(before[:10])
    with pytest.raises(OSError, match=r"bytes of x\.rows count, and there are"):
        growing.files.extend(path, length, b"more")
    assert not table.write(frame(1.0, 2.0))
    assert path.read_bytes() == before
    path.unlink()
    table.add(frame(3.0))
    assert not table.write(pl.concat([frame(1.0, 2.0), frame(3.0)]))
    assert growing.read(path, written(table), TYPES)["value"].to_list() == [1.0, 2.0, 3.0]

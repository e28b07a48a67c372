"""Files: written whole or not at all, with a checksum in themselves, and for other programs one of their kind."""

import contextlib
import json
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from safetensors import safe_open
from safetensors.torch import load_file

from coterie import failpoints, files, records
from coterie.errors import RunError
from coterie.records.table import as_parquet
from coterie.records.tensors import read_tensors, write_tensors
from coterie.runs import runner
from small import At, Noted, assert_same, interrupt, small

SIZES = [1, 300, files.BLOCK // 4, 3 * files.BLOCK // 4 + 1, 50_001]


def flipped(content: bytes, rng: random.Random) -> bytes:
    """The same with one bit turned round."""
    spoilt, bit = bytearray(content), rng.randrange(8 * len(content))
    spoilt[bit // 8] ^= 1 << bit % 8
    return bytes(spoilt)


def tensors(size: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    return {
        "0/matrix": torch.rand(2, size, generator=generator),
        "0/integers": torch.arange(size),
        "one": torch.tensor(3.0, dtype=torch.float64),
        "none": torch.zeros(0, 4),
        "half": torch.rand(5, generator=generator).bfloat16(),
        "yes": torch.rand(size, generator=generator) > 0.5,
    }


@pytest.mark.parametrize("size", SIZES)
def test_tensors_come_back_and_other_programs_read_them(tmp_path: Path, size: int) -> None:
    path, wanted, words = tmp_path / "x.safetensors", tensors(size), {"round": "3", "ü": "ü" * size}
    write_tensors(path, wanted, words)
    found, about = read_tensors(path)
    assert about == words
    for tensor in (found, load_file(path)):
        assert tensor.keys() == wanted.keys()
        assert all(torch.equal(tensor[k], wanted[k]) and tensor[k].dtype == wanted[k].dtype for k in wanted)
    with safe_open(path, "pt") as file:
        assert file.metadata().keys() == {"checksum", *words}


@pytest.mark.parametrize("size", SIZES)
def test_no_flipped_bit_changes_a_tensor_unseen(tmp_path: Path, size: int) -> None:
    path, rng = tmp_path / "x.safetensors", random.Random(size)
    write_tensors(path, tensors(size))
    whole, wanted = path.read_bytes(), tensors(size)
    for _ in range(100):
        path.write_bytes(flipped(whole, rng))
        try:
            with files.undamaged(path, "Remove it."):
                found, _ = read_tensors(path)
        except RunError:
            continue
        assert all(torch.equal(found[k], wanted[k]) for k in wanted)  # it was in the mark itself
    for length in (0, 7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(RunError, match="is damaged"), files.undamaged(path, "Remove it."):
            read_tensors(path)


def test_no_flipped_bit_changes_a_table_unseen_and_other_programs_read_it(tmp_path: Path) -> None:
    path, rng = tmp_path / "records.parquet", random.Random(0)
    frame = pl.DataFrame(
        {"method": ["decavg"] * 500, "round": np.arange(500), "x": np.random.default_rng(0).random(500)}
    )
    path.write_bytes(as_parquet(frame))
    whole = path.read_bytes()
    assert_frame_equal(pl.read_parquet(path), frame)
    assert pl.read_parquet_metadata(path)["checksum"].startswith("coterie-sum:")
    for _ in range(300):
        path.write_bytes(flipped(whole, rng))
        try:
            found = records.read_frame(path)
        except RunError:
            continue
        assert_frame_equal(found, frame)
    frame.write_parquet(path)  # by another program, without a checksum
    assert_frame_equal(records.read_frame(path), frame)


def test_json_has_its_checksum_and_is_an_object(tmp_path: Path) -> None:
    path, rng, said = tmp_path / "x.json", random.Random(0), {"a": [1, 2.5], "b": {"c": "ü"}}
    files.write_json(path, said)
    whole = path.read_bytes()
    assert files.read_json(path) == said
    assert json.loads(whole)["checksum"] == whole.decode().partition('"checksum": "')[2][:20]
    for _ in range(300):
        path.write_bytes(flipped(whole, rng))
        with contextlib.suppress(ValueError):
            assert {k: v for k, v in files.read_json(path).items() if k in said} == said
    for other in (b"[]", b'"abc"', b"3", b"null", b"abc", b""):
        path.write_bytes(other)
        with pytest.raises(ValueError, match=r"."):
            files.read_json(path)


def test_a_file_that_is_written_keeps_the_one_before(tmp_path: Path) -> None:
    path, before = tmp_path / "x", tmp_path / "y"
    for content in (b"one", b"two", b"three"):
        files.write(path, content[:1], content[1:], before=before)
    assert (path.read_bytes(), before.read_bytes()) == (b"three", b"two")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x", "y"]


def test_without_links_the_one_before_is_kept_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(files.FileSystem, "link", refuse)
    for content in (b"one", b"two"):
        files.write(tmp_path / "x", content, before=tmp_path / "y")
    assert ((tmp_path / "x").read_bytes(), (tmp_path / "y").read_bytes()) == (b"two", b"one")


def test_places_are_passed_in_order_and_nobody_listens_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failpoints.hook is None
    passed: list[str] = []
    monkeypatch.setattr(failpoints, "hook", lambda place, what: passed.append(f"{place} {Path(what).name}"))
    files.write(tmp_path / "x", b"one")
    new = ["before write .x.new", "after write .x.new", "before sync .x.new", "after sync .x.new"]
    assert passed == [*new, "before rename x", "after rename x", f"after sync {tmp_path.name}"]
    passed.clear()
    files.extend(tmp_path / "x", 3, b"two")
    on = [f"{when} {what} x" for what in ("cut", "write", "sync") for when in ("before", "after")]
    assert passed == on


# A run whose checkpoints are damaged.


def broken_off(out: Path, round: int = 5) -> list[Path]:
    """A run that was stopped after this round and has two checkpoints, the newest first."""
    with pytest.raises(runner.Interrupted):
        runner.run(small(), out, [At(round - 1, interrupt)])
    with pytest.raises(runner.Interrupted):
        runner.resume(out, [At(round, interrupt)])
    return sorted(out.glob("jobs/*/round-*"), reverse=True)


@pytest.mark.parametrize("name", ["state.safetensors", "rows.parquet", "checkpoint.json"])
def test_if_the_newest_checkpoint_is_damaged_the_one_before_is_taken(tmp_path: Path, name: str) -> None:
    newest, older = broken_off(tmp_path / "x")
    content, noted = bytearray((newest / name).read_bytes()), Noted()
    content[len(content) // 2] ^= 16
    (newest / name).write_bytes(content)
    assert_same(runner.resume(tmp_path / "x", [noted]).records, small().run().records)
    (warning,) = noted.named("warning")
    assert f"{newest} is damaged" in warning["text"]
    assert f"going on from {older.name}" in warning["text"]
    assert [event["round"] for event in noted.named("begin") if event.get("method")] == [4]
    rounds = [event["round"] for event in records.events(tmp_path / "x") if event.name == "round"]
    assert rounds == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("content", [b"[]", b'"abc"', b"null", b'{"round": "x"}', b'{"round": []}', b""])
def test_a_checkpoint_that_says_something_else_is_damaged(tmp_path: Path, content: bytes) -> None:
    newest, older = broken_off(tmp_path / "x")
    for checkpoint in (newest, older):
        (checkpoint / "checkpoint.json").write_bytes(content)
    with pytest.raises(RunError, match=r"is damaged.*Remove that folder") as caught:
        runner.resume(tmp_path / "x")
    assert "\n" not in str(caught.value)
    assert newest.is_dir()


@pytest.mark.parametrize("content", [b"[]", b'"abc"', b'{"jobs": {"decavg-0": 3}}', b'{"jobs": {"x": {}}}'])
def test_an_environment_that_says_something_else_is_damaged(tmp_path: Path, content: bytes) -> None:
    broken_off(tmp_path / "x")
    (tmp_path / "x" / "environment.json").write_bytes(content)
    with pytest.raises(RunError, match=r"environment\.json is damaged.*Remove it") as caught:
        runner.resume(tmp_path / "x")
    assert "\n" not in str(caught.value)


def test_a_configuration_that_has_changed_is_refused_before_there_is_a_checkpoint(tmp_path: Path) -> None:
    records.RunFolder(tmp_path / "x").create(small())
    config = tmp_path / "x" / "config.toml"
    config.write_text(config.read_text().replace("batch_size = 8", "batch_size = 9"))
    with pytest.raises(RunError, match="another configuration than the run began with"):
        runner.resume(tmp_path / "x")

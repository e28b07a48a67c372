"""Records of several peers brought together: they are read, and nothing that they name is run."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import tomlkit

from coterie.app.cli import main
from coterie.config.slots import SLOTS
from coterie.errors import RunError
from coterie.net.identity import Home
from coterie.peers import deployment
from coterie.peers.runtime import PeerRuntime
from coterie.records.tensors import read_tensors, write_tensors
from coterie.runs.experiment import Experiment
from peering import TINY


def homes(folder: Path, *rounds: int) -> list[Path]:
    """Folders of alice and bob, who have finished."""
    made = [Home.create(folder / name, name, "127.0.0.1:7001") for name in ("alice", "bob")]
    made[0].add(made[1].card)
    made[1].add(made[0].card)
    for home, number in zip(made, rounds, strict=True):
        experiment = Experiment(**{**TINY, "rounds": number, "engine": "peer"})
        given = deployment.peer_config(experiment, home, None, None, 0, port=0, verbose=False)
        peer = PeerRuntime(given)
        peer.node.score()
        peer.keeper.record(0)
        peer.keeper.finish()
    return [home.path for home in made]


def change(folder: Path, **settings: Any) -> None:
    """Write other settings into what a peer says of its configuration."""
    path = folder / "run" / "config.toml"
    path.write_text(tomlkit.dumps({**tomlkit.loads(path.read_text()).unwrap(), **settings}))


def test_records_of_peers_that_differ_are_not_brought_together(tmp_path: Path) -> None:
    folders = homes(tmp_path, 3, 4)
    with pytest.raises(RunError, match="alice and bob differ in rounds: expected 3, as alice has it, got 4"):
        deployment.collect(folders, tmp_path / "out")
    change(folders[1], rounds=3, model={"name": "mlp", "sizes": [9]})
    with pytest.raises(RunError, match=r"alice and bob differ in model.sizes: expected \[8\]"):
        deployment.collect(folders, tmp_path / "out")
    change(folders[1], model={"name": "mlp", "sizes": [8]}, batches=7)  # its own business
    rows, unfinished = deployment.collect(folders, tmp_path / "out")
    assert rows["node"].unique().to_list() == [0, 1]
    assert unfinished == {"alice": 0, "bob": 0}
    with pytest.raises(RunError, match=r"Choose another --out\.$"):
        deployment.collect(folders, tmp_path / "out")
    (folders[1] / "run" / "config.toml").write_text("a = " + 100_000 * "[")
    with pytest.raises(RunError, match=r"config.toml is damaged .*Ask for it again"):
        deployment.collect(folders, tmp_path / "other")


def test_epochs_are_compared_where_a_protocol_counts_them(tmp_path: Path) -> None:
    folders = homes(tmp_path, 3, 3)
    for folder in folders:
        change(folder, protocol={"name": "relay"})
    change(folders[1], batches=7)
    with pytest.raises(RunError, match="alice and bob differ in batches: expected 2"):
        deployment.collect(folders, tmp_path / "out")


@pytest.mark.parametrize("part", ["own.py:Own", "own:Own"])
def test_nothing_that_records_from_others_name_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    folders, touched = homes(tmp_path, 3, 3), tmp_path / "touched"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own.py").write_text(f"open({str(touched)!r}, 'w')\nclass Own: pass\n")
    for folder in folders:
        change(folder, **{slot: {"name": part, "shell": True} for slot in SLOTS}, metrics=[part])
    assert main(["collect", *map(str, folders), "--out", "out"]) == 0
    for looking in (["compare", "out"], ["plot", "out"], ["convergence", "out"]):
        assert main(looking) in (0, 2)
    assert part in (tmp_path / "out" / "config.toml").read_text()
    assert not touched.exists()


def test_a_model_from_others_is_exported_without_running_what_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, touched = tmp_path / "out", tmp_path / "touched"
    Experiment(**{**TINY, "rounds": 1}).run(out)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own.py").write_text(f"open({str(touched)!r}, 'w')\n")
    (kept,) = out.glob("jobs/*/models.safetensors")
    tensors, about = read_tensors(kept)
    for model in (
        {"name": "own:Own"},
        {"name": "lora", "model": "own:Own"},
        {"name": "mlp", "sizes": [{"name": "own:Own"}]},
    ):
        for fixed in ("", "0123"):
            said = json.dumps({**json.loads(about["architecture 0"]), "model": model, "fixed": fixed})
            write_tensors(kept, tensors, {**about, "architecture 0": said})
            assert main(["export", str(out), str(tmp_path / "model.safetensors")]) == (2 if fixed else 0)
    assert "If you would run that file as a script" in capsys.readouterr().err
    assert not touched.exists()


def test_names_from_others_steer_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = homes(tmp_path, 3, 3)
    for folder in folders:
        file = folder / "run" / "records.parquet"
        pl.read_parquet(file).with_columns(method=pl.lit("\x1b[31mred\x1b]0;title\x07\x9b2J")).write_parquet(file)
    assert main(["collect", *map(str, folders), "--out", str(tmp_path / "out")]) == 0
    assert main(["export", str(tmp_path / "out"), "x", "--method", "\x1b[2J"]) == 2
    said = "".join(capsys.readouterr())
    assert "red" in said
    assert not {"\x1b", "\x07", "\x9b"} & set(said)

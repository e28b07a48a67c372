"""Mutual learning across architectures from flags alone: what runs, with which settings, and what is refused before."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from coterie import records
from coterie.app.cli import main
from coterie.config.slots import as_table

WORLD = "--nodes 6 --rounds 2 --batches 2 --seeds 0 --total 240 --test-share 0.2 --engine.workers 1 --engine.mode loop"
MIX = "mlp[8],mlp[6,5],logistic"
SEVEN = """
from torch import nn


def seven(shape, classes):
    "As many scores as it likes."
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 7))
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SEVEN)


def ran(line: str) -> tuple[dict[str, Any], pl.DataFrame]:
    """The protocol of each method as it was run, and the records."""
    assert main(["run", *line.split(), *WORLD.split(), "--out", "x"]) == 0
    methods = records.configuration(Path("x")).resolved
    return {name: as_table(method.protocol) for name, method in methods.items()}, records.load("x")


def test_methods_on_one_protocol_are_compared_across_architectures() -> None:
    found, frame = ran(f"--methods dfml,dec-fedavg --models {MIX} --topology complete --protocol.share 0.4")
    assert {m: (p["name"], p["lesson"]["name"], p["share"]) for m, p in found.items()} == {
        "dfml": ("wandering", "mutual", 0.4),
        "dec-fedavg": ("wandering", "average", 0.4),
    }
    last = frame.filter(pl.col("round") == 2)
    assert last.height == 12
    assert (last["sent_bytes"] > 0).all()  # news at least
    assert set(last.filter(pl.col("peak_accuracy").is_not_null())["method"]) == {"dfml"}


def test_a_method_has_flags_of_its_own_beside_those_for_all() -> None:
    """What is said for one goes over what is said for all; parts that it is given have their flags, too."""
    alone = "--dfml.protocol.lesson united --dfml.protocol.lesson.epochs 1 --dfml.protocol.walks false"
    common = "--methods dfml,dec-fedavg --protocol.share 0.4 --dec-fedavg.protocol.share=0.6 --topology complete"
    found, frame = ran(f"{common} {alone} --models {MIX} --dec-fedavg.batches 4")
    dfml, average = found["dfml"], found["dec-fedavg"]
    assert (dfml["lesson"]["name"], dfml["lesson"]["epochs"]) == ("united", 1)
    assert (dfml["share"], dfml["walks"], average["share"], average["walks"]) == (0.4, False, 0.6, True)
    trained = {m: frame.filter((pl.col("method") == m) & (pl.col("round") == 1))["batches"] for m in found}
    assert {m: (batches.max(), (batches > 0).sum()) for m, batches in trained.items()} == {
        "dfml": (2, 3),
        "dec-fedavg": (4, 4),
    }


def test_all_baselines_run_side_by_side_from_flags_alone() -> None:
    """The same nodes train in every round; Def-KT wants one architecture."""
    baselines = "dec-fedavg,dec-fedprox,dec-heterofl,dec-fedrolex,dec-dropout"
    found, frame = ran(f"--methods {baselines},fml --models mlp[8],mlp[4] --topology complete")
    last = frame.filter(pl.col("round") == 2).sort("node")
    assert {*found} == {*last["method"]} == {*baselines.split(","), "fml"}
    assert last["test_loss"].is_finite().all()
    batches = {tuple(last.filter(pl.col("method") == m)["batches"].to_list()) for m in baselines.split(",")}
    assert len(batches) == 1
    losses = {tuple(last.filter(pl.col("method") == m)["test_loss"].to_list()) for m in found}
    assert len(losses) == len(found)  # each does something of its own


def test_compare_tells_what_each_architecture_reaches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of present models, of peaks, and on nodes' own data; a user's own model by its file, of which nothing is run."""
    Path("own.py").write_text(SEVEN.replace("64, 7", "64, classes"))
    ran("--methods dfml,dec-fedavg --models mlp[8],own.py:seven --topology complete --protocol.share 0.9")
    Path("own.py").write_text("raise SystemExit('compare has run this')")
    monkeypatch.setenv("COLUMNS", "120")
    capsys.readouterr()
    assert main(["compare", "x"]) == 0
    said = capsys.readouterr().out
    assert "on own validation data" in said
    told = [line.split() for line in said.partition("Accuracy by architecture")[2].splitlines()]
    rows = {(line[0], line[1]): line[2:] for line in told if line and line[0] in ("dfml", "dec-fedavg")}
    assert {*rows} == {(m, kind) for m in ("dfml", "dec-fedavg") for kind in ("mlp[8]", "own.py:seven")}
    assert all(row[0] == "3" for row in rows.values())
    assert all(0 < float(number) < 1 for number in rows["dfml", "mlp[8]"][1:])
    assert rows["dec-fedavg", "mlp[8]"][2] == "—"  # no peaks


def test_a_method_that_cannot_be_is_told_before_the_others_train(capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--methods dec-fedavg,def-kt --models mlp[8],mlp[4] --topology complete"
    assert main(["run", *flags.split(), *WORLD.split(), "--out", "x"]) == 2
    assert "lesson def_kt hands models over: expected one model, got 2" in capsys.readouterr().err
    assert not Path("x").exists()


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("--methods dfml --protocol.hops 2 --topology ring", {"hops": 2}),
        ("--methods dfml --protocol.walks false", {"walks": False}),
        ("--methods dfml --protocol.senders 2", {"senders": 2}),
        ("--methods def-kt --protocol.groups 1", {"name": "meetings", "senders": 1, "groups": 1}),
        ("--methods def-kt --protocol.senders 2", {"senders": 2}),  # which the method says otherwise
        ("--methods fml --protocol.meme mlp --protocol.meme.sizes 4", {"name": "fml"}),
        ("--rule isolation --protocol meetings --protocol.senders 2 --objective wsm", {"name": "meetings"}),
    ],
)
def test_flags_go_over_the_method(flags: str, wanted: dict[str, Any]) -> None:
    meme = "" if "fml" in flags.split() or "def-kt" in flags else " --protocol.lesson.epochs 1"
    found, _ = ran(flags + meme)
    (protocol,) = found.values()
    assert wanted.items() <= protocol.items()
    if meme:
        assert (protocol["lesson"]["name"], protocol["lesson"]["epochs"]) == ("mutual", 1)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (f"--methods dfml --models {MIX},./mine.py:seven", "expected a score for each of 10 classes"),
        ("--methods dfml --protocol.lesson.high 1.2", "low and high are from 0 to 1"),
        ("--methods dfml --protocol.lesson.period 11", "period and growth are even"),
        (
            "--methods dec-heterofl --models mlp[8,4],mlp[4,8]",
            "layers of mlp[8,4], each as wide or narrower",
        ),
        (f"--methods dec-fedrolex --models {MIX}", "each as wide or narrower"),
        ("--methods dec-dropout --models mlp[8],cnn[4]", "each as wide or narrower"),
        ("--methods dfml --protocol.senders 6", "expected at most 5, got 6"),
        (
            "--methods dfml --topology ring --protocol.senders 3",
            "at most 2, whom a node can reach here, got 3",
        ),
        ("--methods dfml --models cnn[2,4,8,16]", "8×8 pixels are too few for the layers of model 'cnn'"),
        (
            "--methods dfml,decavg --protocol.share 0.3",
            "unknown setting --protocol.share of method decavg. Say it for one method alone: --dfml.protocol.share.",
        ),
        (
            "--methods dfml,dec-fedavg --protocol.lesson.epochs 3",
            "of method dec-fedavg. Say it for one method alone: --dfml.protocol.lesson.epochs.",
        ),
        (
            "--methods dfml,dec-fedavg --dfml.protocol.lesson.epoch 3",
            "unknown setting --dfml.protocol.lesson.epoch of method dfml. Did you mean --dfml.protocol.lesson.epochs?",
        ),
        ("--methods dfml,dec-fedavg --dfml.seeds 3", "unknown setting of a method 'seeds'"),
        ("--methods dfml,dec-fedavg --dfml.protocol.share 2", "share is above 0 and at most 1, not 2.0"),
    ],
)
def test_what_cannot_be_is_told_before_training(flags: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *flags.split(), *WORLD.split(), "--out", "x"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith("coterie: ")
    assert words in told[-1]
    assert not [*Path().glob("x/**/round-*")]


def test_nodes_with_one_class_each_learn() -> None:
    """The re-weighted softmax of a node that has one class is that class alone."""
    flags = "--methods dfml --partition labels --partition.k 1 --topology complete --protocol.lesson.epochs 1"
    _, frame = ran(flags)
    assert frame.filter(pl.col("round") == 2)["test_loss"].is_finite().all()


def test_a_peak_is_exported_beside_the_present_model() -> None:
    ran(f"--methods dfml --models {MIX} --topology complete --protocol.lesson.epochs 1 --protocol.share 1")
    for flags, name in ([], "now"), (["--peak"], "peak"):
        assert main(["export", "x", f"{name}.safetensors", "--node", "1", *flags]) == 0
    now, peak = load_file("now.safetensors"), load_file("peak.safetensors")
    assert now.keys() == peak.keys()
    assert all(torch.equal(now[name], peak[name]) for name in now)  # until the first maximum, what came home last

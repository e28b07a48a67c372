"""What the page is told equals what was recorded, is little, and follows a run that grows, is cut back, or ends."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from coterie import records
from coterie.errors import RunError
from coterie.page.job import confusion, job_view, links_view, matrix, node_view
from coterie.page.numbers import thinned
from coterie.page.overview import job_id, overview
from coterie.page.run import RunReader
from coterie.page.setting import setting
from coterie.page.shown import Shown
from coterie.report.statistics import per_seed, summary
from coterie.runs.experiment import Experiment
from runs import evaluation, event, finished, frame, journal
from small import small


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return finished(tmp_path / "one", ["decavg", "dechw"])


def reader(folder: Path) -> RunReader:
    made = RunReader(folder, folder.name)
    made.refresh()
    return made


def test_numbers_of_the_page_are_those_of_the_records(run: Path) -> None:
    frame = records.load(run)
    view = overview([reader(run)])
    assert [job["method"] for job in view["jobs"]] == ["decavg", "decavg", "dechw", "dechw"]
    assert view["live"] is False
    curve = view["methods"]["dechw"]
    means = per_seed(frame.filter(method="dechw"), "test_accuracy").group_by("round", maintain_order=True)
    expected = means.agg(pl.col("value").mean())
    assert curve["round"] == expected["round"].to_list() == [0, 1, 2, 4]
    np.testing.assert_allclose(curve["columns"]["test_accuracy"]["mean"], expected["value"], rtol=1e-4)
    assert all(half > 0 for half in curve["columns"]["test_accuracy"]["half"][1:])
    best = summary(frame).row(0, named=True)
    assert view["table"]["rows"][0][0] == best["method"] == "dechw"
    assert view["finding"].startswith("dechw reaches")
    told = ["digits", "dirichlet (alpha 0.5, min_samples 10)", "ring, 6 nodes", "mlp (sizes 64)"]
    assert [part["name"] for part in view["setting"]] == told
    ends = frame.filter(pl.col("round") == 4, pl.col("method") == "decavg")["test_accuracy"]
    assert view["boxes"]["test_accuracy"]["decavg"]["five"][2] == pytest.approx(ends.median(), rel=1e-4)
    (gap,) = view["differences"]["test_accuracy"]
    assert (gap["a"], gap["b"], gap["seeds"]) == ("decavg", "dechw", 2)
    assert gap["mean"] < 0
    assert {cost["method"]: cost["sent_bytes"] for cost in view["costs"]} == {"decavg": 24_000, "dechw": 24_000}
    assert view["runs"][0]["settings"]["nodes"] == "6"
    json.dumps(view, allow_nan=False)


def test_what_was_learnt_is_told_of_all_methods_and_of_what_has_no_name() -> None:
    bound = {"pooled": True, "topology": "complete", "nodes": 1}
    settings: dict[str, Any] = {
        "nodes": 9,
        "dataset": {"name": "own", "path": "data/houses.csv"},
        "partition": {"name": "dirichlet", "alpha": 0.30},
        "topology": {"name": "ba", "m": 3, "connect": False, "mixing": "data", "own": 1.0},
        "model": [{"name": "object@82ab:Net", "nodes": 4}, {"name": "./mine.py:Tall", "sizes": [8, 4]}],
        "methods": {"a": {}, "b": {"topology": {"name": "file", "path": "g.edgelist", "own": 2.0}}, "bound": bound},
    }
    assert [(part["what"], part["name"]) for part in setting([settings])] == [
        ("Data", "houses.csv"),
        ("dealt by", "dirichlet (alpha 0.3)"),
        ("Network", "ba (m 3), 9 nodes or g.edgelist, 9 nodes"),
        ("Model", "Net or Tall (sizes 8-4)"),
    ]
    in_hand = {"dataset": "object@82ab:tuple", "methods": {"bound": bound}, "model": 3}
    assert [part["name"] for part in setting([in_hand])] == ["data in hand", "complete, 1 node"]
    assert setting([{}, {"methods": 3}]) == []


def test_who_was_the_aggregator_and_where_cycles_begin(tmp_path: Path) -> None:
    """It is who all that is sent in a round has gone to."""
    small(nodes=5, rounds=12, seeds=[0], methods=["dfml"]).run(tmp_path / "one")
    view = job_view(reader(tmp_path / "one"), ("dfml", 0))
    assert [mark["round"] for mark in view["marks"] if mark["kind"] == "cycle"] == [1, 11]
    told = {e["round"]: e for e in records.events(tmp_path / "one") if e.name == "exchange" and e["round"]}
    for round in range(1, 13):
        (led,) = view["roles"]["aggregator"][round]
        if round in told:
            into = Counter(dict.fromkeys(range(5), 0))
            for target, size in zip(told[round]["targets"], told[round]["bytes"], strict=True):
                into[target] += size
            assert into.most_common(1)[0][0] == led


def test_which_class_a_node_takes_for_which(tmp_path: Path) -> None:
    """The counts are those of the test samples, and their diagonal is the accuracy."""
    small(nodes=4, seeds=[0], methods=["decavg"], measures="confusion").run(tmp_path / "one")
    known, key = reader(tmp_path / "one"), ("decavg", 0)
    last = records.load(tmp_path / "one").filter(pl.col("round") == pl.col("round").max())
    inlined = confusion(known, key)
    for node in range(4):
        told = node_view(known, key, node)["confusion"]
        counts = np.array(told["counts"][node])
        assert told["round"] == last["round"][0]
        assert counts.shape == (10, 10)
        accuracy = last.filter(pl.col("node") == node)["test_accuracy"][0]
        assert np.trace(counts) / counts.sum() == pytest.approx(accuracy)
        assert inlined["counts"][node] == counts.tolist()


def test_a_job_shows_its_network_its_data_and_what_happened(run: Path) -> None:
    known = reader(run)
    view = job_view(known, ("decavg", 0))
    assert view["nodes"] == 6
    assert len(view["links"]["sources"]) == 6
    assert view["degrees"] == [2] * 6
    assert view["facts"]["diameter"] == 3
    assert view["labels"][3] == [10, 3]
    assert view["spectrum"][0] == pytest.approx(1)
    assert {"odd: decavg", "1 node away, 1 link down"} <= {mark["text"] for mark in view["marks"]}
    values = matrix(known, ("decavg", 0), "test_accuracy")
    assert values["rounds"] == [0, 1, 2, 4]
    own = records.load(run).filter(method="decavg", seed=0, round=4).sort("node")["test_accuracy"]
    np.testing.assert_allclose(values["values"][3], own, rtol=1e-4)
    assert node_view(known, ("decavg", 0), 2)["columns"]["test_accuracy"] == [line[2] for line in values["values"]]
    assert links_view(known, ("decavg", 0), 4) == {
        "round": 4, "bytes": 100, "sources": None, "targets": None,
        "ages": {"links": [], "rest": 0}, "down": [[0, 1]], "away": [2],
    }  # fmt: skip
    with pytest.raises(RunError, match="no column 'method'"):
        matrix(known, ("decavg", 0), "method")


def test_a_run_is_followed_as_it_grows_and_when_it_is_cut_back(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    records.RunFolder(folder).create(Experiment(nodes=3, rounds=4))
    about = {"method": "decavg", "seed": 0}
    journal(folder, event("begin", jobs=[["decavg", 0]], left=[["decavg", 0]], rounds=4))
    journal(folder, event("begin", **about, round=0, rounds=4, nodes=3), evaluation("decavg", 0, 0, [0.1, 0.2, None]))
    known = reader(folder)
    assert known.running, "its journal has just grown"
    assert matrix(known, ("decavg", 0), "test_accuracy")["values"] == [[0.1, 0.2, None]]
    assert not known.refresh()
    length = (folder / "journal.jsonl").stat().st_size
    journal(folder, evaluation("decavg", 0, 1, [0.3, 0.3, 0.3]), event("round", **about, round=1))
    with (folder / "journal.jsonl").open("a") as file:
        file.write('{"event": "round", "time": 3.0, "met')  # a line that is still being written
    assert known.refresh()
    assert overview([known])["seeds"]["decavg:0"]["columns"]["test_accuracy"] == [0.15, 0.3]
    assert known.jobs["decavg", 0].round == 1
    with (folder / "journal.jsonl").open("r+b") as file:
        file.truncate(length)
    journal(folder, evaluation("decavg", 0, 1, [0.5, 0.5, 0.5]), event("round", **about, round=1))
    known.refresh()
    assert matrix(known, ("decavg", 0), "test_accuracy")["values"][1] == [0.5, 0.5, 0.5]
    journal(folder, event("end", **about, how="failed", error="odd"), event("end", how="failed", error="odd"))
    known.refresh()
    view = overview([known])
    assert (view["live"], view["runs"][0]["state"], view["jobs"][0]["error"]) == (False, "failed", "odd")


def test_a_run_that_holds_its_lock_is_running_and_one_that_was_killed_is_not(tmp_path: Path) -> None:
    folder = finished(tmp_path / "x", ["decavg"])
    text = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
    (folder / "journal.jsonl").write_text("".join(text[:-2]))
    import os

    os.utime(folder / "journal.jsonl", (1, 1))
    assert reader(folder).running is False
    assert overview([reader(folder)])["runs"][0]["state"] == "stopped"


def test_a_run_without_anything_yet_is_shown_all_the_same(tmp_path: Path) -> None:
    records.RunFolder(tmp_path / "new").create(Experiment(nodes=3))
    view = overview([reader(tmp_path / "new")])
    assert view["table"] is None
    assert view["jobs"] == []


def test_two_runs_with_the_same_methods_are_told_apart(tmp_path: Path) -> None:
    folders = [finished(tmp_path / name, ["decavg"]) for name in ("a", "b")]
    view = overview([reader(folder) for folder in folders])
    assert {job["method"] for job in view["jobs"]} == {"a/decavg", "b/decavg"} == set(view["methods"])
    shown = Shown(folders)
    assert shown.job("b:1:decavg")["nodes"] == 6
    for name in ("c:0:decavg", "a:x:decavg", "../a:0:decavg", "a:7:decavg", ""):
        with pytest.raises(RunError):
            shown.job(name)


def test_runs_of_a_folder_are_listed_and_nothing_outside_it_is_shown(tmp_path: Path) -> None:
    finished(tmp_path / "runs" / "deep" / "a", ["decavg"], seeds=1)
    finished(tmp_path / "other", ["decavg"], seeds=1)
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "other")
    shown = Shown([tmp_path / "runs"])
    assert [run["label"] for run in shown.listing()["runs"]] == ["deep/a"]
    assert shown.overview(["deep/a"])["jobs"][0]["nodes"] == 6
    for outside in ("../other", str(tmp_path / "other"), "link", "deep", ""):
        with pytest.raises(RunError):
            shown.overview([outside])


def test_rounds_are_thinned_early_ones_least() -> None:
    assert thinned(range(10), 20) == [*range(10)]
    kept = thinned(range(1001), 100)
    assert len(kept) <= 100
    assert kept[0] == 0
    assert kept[-1] == 1000
    assert sum(each < 100 for each in kept) > sum(each > 900 for each in kept)


def test_a_long_run_is_shown_in_little(tmp_path: Path) -> None:
    known = RunReader(tmp_path, "long")
    long = frame(["decavg"], 1, [*range(3000)], 100)
    finished(tmp_path / "long", ["decavg"], seeds=1)
    records.write_frame(tmp_path / "long" / "records.parquet", long)
    known = reader(tmp_path / "long")
    assert len(json.dumps(overview([known]))) < 100_000
    assert sum(map(len, matrix(known, ("decavg", 0), "test_loss")["values"])) <= 200_000
    assert job_id(known, ("decavg", 0)) == "long:0:decavg"

"""What peers with clocks of their own tell, each in its journal: who was how far, who was gone, what went where."""

from pathlib import Path

import pytest

from coterie import records
from coterie.page.job import job_view, links_view, matrix, node_view
from coterie.page.overview import overview
from coterie.page.run import RunReader
from coterie.page.shown import Shown
from coterie.runs.experiment import Experiment
from runs import finished, journal, moment

JOB = ("decavg", 0)


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Three peers in a line; c is slow, and gone for a while; a refuses something from b."""
    folder = tmp_path / "fleet"
    about = {"method": "decavg", "seed": 0}
    records.RunFolder(folder).create(Experiment(nodes=3, rounds=4))
    journal(
        folder,
        moment(0, "begin", jobs=[["decavg", 0]], left=[["decavg", 0]], rounds=4),
        moment(1, "begin", **about, round=0, rounds=4, nodes=3),
        moment(24, "warning", **about, text="c ended (signal 9) and is started again"),
        moment(90, "end", **about, how="done", round=4),
        moment(91, "end", how="done"),
    )
    hears = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}
    for node, (name, pace) in enumerate({"a": 10, "b": 10, "c": 21}.items()):
        own = about | {"peer": name, "node": node}
        told = [moment(2, "begin", **own, round=0, rounds=4, neighbours=hears[name])]
        for number in range(1, 5):
            at = pace * number
            sent = [100 * number] * len(hears[name])
            told += [
                moment(at, "evaluation", **own | {"node": [node]}, round=number, test_accuracy=[0.1 * number]),
                moment(at, "exchange", **own, round=number, neighbours=hears[name], sent_bytes=sent),
                moment(at, "round", **own, round=number),
            ]
        if name == "b":
            told.insert(4, moment(15, "fault", **own, round=1, gone=["c"]))
            told.insert(8, moment(25, "fault", **own, round=3, back=["c"]))
        if name == "a":
            told.insert(7, moment(20, "fault", **own, round=2, refused={"b": {"shape": 2}}))
        there = folder / "jobs" / "decavg-0" / "peers" / name
        there.mkdir(parents=True)
        journal(there, *told)
    return folder


def reader(folder: Path) -> RunReader:
    made = RunReader(folder, folder.name)
    made.refresh()
    return made


def test_who_was_how_far_behind(fleet: Path) -> None:
    known = reader(fleet)
    lags = matrix(known, JOB, "lag")
    assert lags["rounds"] == [1, 2, 3, 4]
    assert lags["values"] == [[0, 0, 1], [0, 0, 2], [0, 0, 1], [0, 0, 0]]
    assert node_view(known, JOB, 2)["columns"]["lag"] == [1, 2, 1, 0]
    assert "lag" in overview([known])["columns"]
    assert job_view(known, JOB)["progress"] == [4, 4, 4]


def test_a_job_is_done_although_its_peers_are_read_after_its_end(fleet: Path) -> None:
    assert overview([reader(fleet)])["jobs"][0]["state"] == "done"


def test_what_names_no_round_stands_where_the_run_was_then(fleet: Path) -> None:
    marks = {mark["text"]: mark["round"] for mark in job_view(reader(fleet), JOB)["marks"]}
    assert marks["c ended (signal 9) and is started again"] == 2
    assert marks["b: c gone"] == 1
    assert marks["a: refused from b: shape ×2"] == 2


def test_what_peers_sent_goes_along_the_links(fleet: Path) -> None:
    view = links_view(reader(fleet), JOB, 3)
    arcs = zip(view["sources"], view["targets"], view["bytes"], strict=True)
    assert set(arcs) == {(0, 1, 300), (1, 0, 300), (1, 2, 300), (2, 1, 300)}
    assert view["ages"] == {"links": [[0, 1, 0], [1, 2, 0]], "rest": None}


def test_who_was_gone_and_what_was_refused(fleet: Path) -> None:
    known = reader(fleet)
    told = {number: links_view(known, JOB, number) for number in (1, 2, 3)}
    assert {number: view["away"] for number, view in told.items()} == {1: [2], 2: [2], 3: []}
    assert {number: view["down"] for number, view in told.items()} == {1: [[1, 2]], 2: [[0, 1], [1, 2]], 3: []}


def test_how_long_ago_a_link_of_a_simulation_carried_something(tmp_path: Path) -> None:
    folder = finished(tmp_path / "one", ["decavg"], seeds=1)
    about = {"method": "decavg", "seed": 0}
    for number, (source, target) in {1: (0, 1), 2: (2, 3)}.items():
        journal(
            folder, moment(number, "exchange", **about, round=number, sources=[source], targets=[target], bytes=[9])
        )
    known = reader(folder)
    assert links_view(known, JOB, 2)["ages"] == {"links": [[2, 3, 0], [0, 1, 1]], "rest": None}
    assert links_view(known, JOB, 4)["ages"] == {"links": [], "rest": 0}  # something went along all of them


def test_who_joins_and_who_leaves_is_marked(tmp_path: Path) -> None:
    folder = finished(tmp_path / "one", ["decavg"], seeds=1)
    with (folder / "config.toml").open("a") as file:
        file.write("\n[joins]\n3 = 2\n4 = 2\n\n[leaves]\n5 = 3\n")
    marks = [(m["kind"], m["round"], m["text"]) for m in job_view(reader(folder), JOB)["marks"]]
    assert {("join", 2, "nodes 3, 4 join"), ("leave", 3, "node 5 leaves")} <= set(marks)


def test_the_list_of_runs_says_how_each_stands(tmp_path: Path) -> None:
    finished(tmp_path / "whole", ["decavg", "dechw"])
    text = (finished(tmp_path / "cut", ["decavg"], seeds=1) / "journal.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cut" / "journal.jsonl").write_text("".join(text[:-1]) + '{"event": "rou')
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.toml").touch()
    (tmp_path / "odd" / "journal.jsonl").write_bytes(b"\xff[[]\n[1]\n")
    listed = {run["label"]: run for run in Shown([tmp_path]).listing()["runs"]}
    assert {label: run["state"] for label, run in listed.items()} == {
        "whole": "done",
        "cut": "stopped",
        "odd": "stopped",
    }
    assert listed["whole"]["what"] == "decavg, dechw; 2 seeds; 4 rounds"
    assert listed["cut"]["what"] == "decavg; 1 seed; 4 rounds"

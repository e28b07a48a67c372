"""Lessons: parts that protocols hold, with settings and notes of their own, given where their node lives."""

import itertools
import os
import time
from pathlib import Path

import pytest
import torch

from coterie.app.cli import main
from coterie.config.configuration import read
from coterie.errors import ConfigError
from coterie.lessons import Classroom, Pupil
from coterie.lessons.average import Average
from coterie.node.snapshot import Snapshot
from coterie.protocols.aggregator import Aggregator
from coterie.runs.experiment import Experiment
from driving import agree, drive, job, outcome, own, session

HUB = {"protocol": {"name": "aggregator", "lesson": {"name": own("Momentum"), "beta": 0.25}}, "topology": "star"}


def pupil(architecture: str, value: float, size: float) -> Pupil:
    return Pupil(architecture, torch.full((3,), value), size, lambda p, x: x)


def test_average_is_by_data_and_within_an_architecture() -> None:
    pupils = {0: pupil("a", 1.0, 10), 1: pupil("a", 4.0, 30), 2: pupil("b", 7.0, 5)}
    taught = Average().teach(pupils, Classroom(torch.zeros(0), torch.zeros(0), 0, 1, 0))
    assert {n: float(w[0]) for n, w in taught.items()} == {0: 3.25, 1: 3.25, 2: 7.0}


def test_a_lesson_has_settings_of_its_own_in_flags_files_and_python(tmp_path: Path) -> None:
    name = own("Mutual")
    flags = [
        "--protocol",
        "aggregator",
        "--protocol.lesson",
        name,
        "--protocol.lesson.steps",
        "1",
        "--topology",
        "star",
    ]
    few = ["--nodes", "3", "--rounds", "1", "--seeds", "0", "--rule", "decavg", "--engine.mode", "loop"]
    assert main(["run", *few, *flags, "--out", str(tmp_path / "flags")]) == 0
    lesson = read(tmp_path / "flags" / "config.toml")["protocol"]["lesson"]
    assert lesson == {"name": name, "steps": 1}
    file = tmp_path / "mine.toml"
    file.write_text(f'[protocol]\nname = "aggregator"\n[protocol.lesson]\nname = "{name}"\nsteps = 2\n')
    assert (
        main(
            ["run", str(file), *few, "--topology", "star", "--protocol.lesson.steps", "5", "--out", str(tmp_path / "x")]
        )
        == 0
    )
    assert read(tmp_path / "x" / "config.toml")["protocol"]["lesson"]["steps"] == 5
    (method,) = Experiment(protocol={"name": "aggregator", "lesson": {"name": name}}).resolved.values()
    made: Aggregator = method.choice("protocol").make()
    assert made.lesson.steps == 3  # type: ignore[attr-defined]
    assert Aggregator() == Aggregator(lesson=Average())


@pytest.mark.parametrize(
    ("lesson", "words"),
    [
        ("averag", "Did you mean 'average'?"),
        ({"name": own("Mutual"), "stesp": 1}, "Did you mean protocol.lesson.steps?"),
        ({"name": own("Mutual"), "steps": "many"}, "protocol.lesson.steps"),
        ({"steps": 1}, "unknown setting protocol.lesson.steps"),
        (own("Velocity"), "is no lesson"),
        (3, "protocol.lesson"),
    ],
)
def test_what_is_wrong_with_a_lesson_is_told_by_its_place(lesson: object, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        _ = Experiment(protocol={"name": "aggregator", "lesson": lesson}).resolved
    assert words in str(error.value)


def test_notes_of_a_lesson_last_and_are_the_same_in_every_engine() -> None:
    found = {engine: drive(engine, **HUB) for engine in ("loop", "workers", "memory")}
    agree(found["loop"], found["workers"], 1e-6)
    agree(found["loop"], found["memory"])
    forgetful = {**HUB, "protocol": {"name": "aggregator", "lesson": {"name": own("Momentum"), "beta": 0.0}}}
    assert not torch.allclose(drive("loop", **forgetful).models[0], found["loop"].models[0])


@pytest.mark.parametrize("engine", ["loop", "workers", "memory"])
def test_notes_of_a_lesson_are_in_snapshots(engine: str) -> None:
    made, running = job(**HUB), session(engine)
    running.begin(made)
    running.round(1, False)
    middle = {k: v.clone() for k, v in running.snapshot().items()}
    assert any("notes" in name and name.endswith("last") for name in middle)
    running.round(2, True)
    wanted = outcome(running, made)
    running.begin(made)
    running.restore(middle)
    running.round(2, True)
    agree(outcome(running, made), wanted, 0)


@pytest.mark.parametrize("engine", ["loop", "memory"])
def test_a_lesson_is_billed_to_who_gives_it(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at this clock is a second after the last, and only the hub has more to do than to train."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    hub, *leaves = drive(engine, **HUB).ledger["train_seconds"].tolist()
    assert len({*leaves}) == 1
    assert hub > leaves[0]


def test_lessons_are_dealt_out_to_the_workers() -> None:
    """Everyone is an aggregator here: each worker gives the lessons of half of the nodes, the same ones every round."""
    made = job(protocol={"name": "mentors", "lesson": own("Where")}, topology="complete", nodes=4)
    running, rounds = session("two"), []
    running.begin(made)
    for number in (1, 2):
        running.round(number, False)
        notes = Snapshot.read(running.snapshot()).notes
        rounds.append([int(next(iter(notes[node].values()))) for node in range(4)])
    assert rounds[0] == rounds[1]
    assert sorted(map(rounds[0].count, rounds[0])) == [2, 2, 2, 2]
    assert os.getpid() in rounds[0]

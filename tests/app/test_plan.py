"""The plan of a budget, before the run."""

from pathlib import Path

import pytest

from coterie.app import cli
from coterie.app.plan import plan
from coterie.config.layers import layered
from coterie.runs.experiment import Experiment


def test_a_ring_is_told_turn_by_turn() -> None:
    first, turns = plan(Experiment(methods=["aggregate-ring"], nodes=3, budget=62))
    assert first == "aggregate-ring: 62 epochs in 6 turns of 10, 2 left over"
    assert "round 1 node 0 1–10, round 1 node 1 11–20" in turns
    assert turns.endswith("round 2 node 2 51–60")


def test_a_line_is_walked_once_and_without_proxies() -> None:
    own = {"protocol": {"proxy": [1]}, "rounds": 3}
    first, turns = plan(Experiment(methods={"continuous-linear": own}, nodes=4, budget=30))
    assert first == "continuous-linear: 30 epochs in 3 turns of 10"
    assert turns == "  epochs by turn: round 1 node 0 1–10, round 1 node 2 11–20, round 1 node 3 21–30"


def test_a_path_that_is_looked_for_is_told_as_it_is_walked() -> None:
    settings = {"topology": "grid", "nodes": 6, "protocol": "relay", "rounds": 1, "budget": 6}
    _, turns = plan(Experiment(**settings))
    walked = [int(turn.split()[3]) for turn in turns.removeprefix("  epochs by turn: ").split(", ")]
    assert sorted(walked) == list(range(6))
    assert walked != sorted(walked)


def test_all_at_once() -> None:
    _, turns = plan(Experiment(methods=["mesh"], nodes=3, budget=10))
    assert turns.startswith("  epochs by turn: round 1 all nodes 1–2, round 2 all nodes 3–4")


def test_without_a_budget_there_is_none() -> None:
    assert plan(Experiment(methods=["aggregate-ring", "decavg"], epochs=3)) == []


@pytest.mark.parametrize("flag", ["--method", "--methods"])
def test_it_is_shown_before_the_run(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    about = {"dataset": "digits", "model": "logistic", "nodes": 3, "total": 60, "seeds": 0, "partition": "iid"}
    small = [word for name, value in {**about, "budget": 6}.items() for word in (f"--{name}", str(value))]
    assert cli.main(["run", flag, "continuous-ring", *small, "--out", "x"]) == 0
    assert "continuous-ring: 6 epochs in 6 turns of 1" in capsys.readouterr().out


def test_a_method_is_shown_with_its_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "method", "continuous-linear"]) == 0
    bare = capsys.readouterr().out
    assert cli.main(["show", "method", "continuous-linear", "--budget", "9", "--nodes", "4", "--protocol.proxy=2"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(bare)
    assert told.removeprefix(bare).splitlines() == [
        "continuous-linear: 9 epochs in 3 turns of 3",
        "  epochs by turn: round 1 node 0 1–3, round 1 node 1 4–6, round 1 node 3 7–9",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["method", "star", "--budget", "2"],
        ["method", "stra", "--budget", "9"],
        ["rule", "dechw", "--budget=9"],
        ["method", "continuous-ring", "--nodes", "2", "--budget", "9", "--protocol.proxy", "0,1"],
        ["method", "continuous-ring", "--nodes", "2", "--budget", "9", "--protocol.roles", "pp"],
        ["method", "continuous-ring", "--nodes", "2", "--budget", "9", "--protocol.roles", "ttt"],
    ],
)
def test_what_cannot_be_planned_is_refused_in_a_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", *words]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("coterie: ")
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_network_without_a_path_is_refused_with_a_cure_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    about = {"dataset": "digits", "model": "logistic", "nodes": 4, "total": 60, "seeds": 0, "partition": "iid"}
    small = [word for name, value in about.items() for word in (f"--{name}", str(value))]
    run = ["run", "--method", "continuous-linear", "--topology", "star", *small, "--out", "x"]
    assert cli.main(run) == 2
    cure = "or pass through nodes again: --protocol.through true."
    assert capsys.readouterr().err.strip().endswith(cure)
    assert cli.main([*run, *cure.removesuffix(".").split()[-2:]]) == 0


@pytest.mark.parametrize("topology", ["star", "complete"])
def test_a_network_that_is_named_goes_over_that_of_all_methods(topology: str) -> None:
    def networks(methods: str) -> list[str]:
        made = layered(None, {"methods": methods, "topology": {"name": topology}}).resolved
        return [method.choice("topology").name for method in made.values()]

    assert networks("aggregate-ring,continuous-ring") == [topology, topology]
    assert networks("star,decavg") == ["star", topology]


class TestRounds:
    """What the user says wins over a preset, and a preset over the defaults."""

    def rounds(self, file: Path | None = None, **flags: object) -> int:
        return layered(file, {"methods": "aggregate-ring", **flags}).resolved["aggregate-ring"].rounds

    def test_presets_win_over_the_default_experiment(self) -> None:
        assert self.rounds() == 2

    def test_a_flag_wins(self, tmp_path: Path) -> None:
        assert self.rounds(rounds=7) == 7
        mine = {"aggregate-ring": {"rounds": 3}}
        assert self.rounds(methods=mine) == 3
        assert self.rounds(methods=mine, rounds=7) == 7

    def test_a_file_wins_over_presets_and_not_over_its_tables(self, tmp_path: Path) -> None:
        (tmp_path / "my.toml").write_text("rounds = 4")
        assert self.rounds(tmp_path / "my.toml") == 4
        assert self.rounds(tmp_path / "my.toml", methods={"aggregate-ring": {"rounds": 3}}) == 3

"""The command line through its entry point: what it does, what it prints, and how it refuses."""

import errno
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from matplotlib.figure import Figure
from rich.console import Console

import pictures
from coterie import methods, records
from coterie.app import flags, progress, run_flags
from coterie.app.catalogue import ABOUT, SINGULAR, brief
from coterie.app.cli import main
from coterie.config.slots import SLOTS
from coterie.models import mixes
from coterie.parts import ROOMS, find, names
from coterie.records import Event, Observer
from coterie.runs import runner
from coterie.runs.experiment import Experiment
from small import small

SMALL = [
    "--nodes",
    "4",
    "--rounds",
    "2",
    "--batches",
    "2",
    "--seeds",
    "0",
    "--engine.workers",
    "1",
    "--engine.mode",
    "loop",
]
OWN_RULE = '''
from dataclasses import dataclass
from typing import ClassVar

from coterie.contract import Rule


@dataclass(frozen=True)
class Stay(Rule):
    """Hear everyone, change a little."""

    keep: float = 0.9

    def merge(self, me, params, state, inbox):
        return self.keep * params + (1 - self.keep) * inbox.mean("w"), state
'''


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Experiment]:
    """The experiment that some arguments of `run` ask for, without running it."""
    seen: list[Experiment] = []

    class Enough(runner.CoterieError):
        pass

    def stop(experiment: Experiment, out: Any, observers: Any) -> pl.DataFrame:
        seen.append(experiment)
        raise Enough("enough")

    monkeypatch.setattr(runner, "run", stop)

    def ask(line: str) -> Experiment:
        assert main(["run", *line.split()]) == 2
        return seen.pop()

    return ask


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two methods."""
    folder = tmp_path_factory.mktemp("runs") / "pair"
    assert main(["run", "--methods", "isolation,decavg", *SMALL, "--out", str(folder)]) == 0
    return folder


def refused(capsys: pytest.CaptureFixture[str], line: str) -> str:
    """What is said to arguments that cannot be: one line on stderr, nothing else, exit code 2."""
    assert main(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("coterie: ")
    assert said.err.count("\n") == 1
    return said.err


# Running


def test_a_run_writes_records_report_and_plots(finished: Path) -> None:
    written = {p.name for p in finished.iterdir()}
    assert {"config.toml", "records.parquet", "report.html", "summary.csv", "accuracy.png", "spread.png"} <= written
    frame = records.load(finished)
    assert set(frame["method"]) == {"isolation", "decavg"}
    assert frame["round"].max() == 2


def test_a_run_prints_the_table_and_the_paths(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--rule", "decavg", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "Test accuracy at round 2" in out
    for path in ("runs/decavg-1/report.html", "accuracy.png", "runs/decavg-1/records.parquet"):
        assert path in out
    assert Path("runs/decavg-1/report.html").is_file()


def test_a_users_own_rule_runs_with_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(OWN_RULE)
    assert main(["run", "--rule", "./mine.py:Stay", "--rule.keep", "0.5", *SMALL]) == 0
    assert "stay" in capsys.readouterr().out
    (method,) = records.configuration("runs/stay-1").resolved.values()
    assert method.rule == {"name": f"{tmp_path.resolve()}/mine.py:Stay", "keep": 0.5}


def test_an_interrupted_run_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(experiment: Experiment, out: Path, observers: list[Observer]) -> pl.DataFrame:
        observers[0].event(run_begins(("decavg", 0), rounds=2))
        raise runner.Interrupted(out)

    monkeypatch.setattr(runner, "run", interrupted)
    assert main(["run", "--out", "runs/x"]) == 130
    assert "coterie resume runs/x" in capsys.readouterr().err


def test_ctrl_c_before_the_run_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def early(*_: Any) -> pl.DataFrame:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run", early)
    assert main(["run"]) == 130
    assert capsys.readouterr().err == "coterie: interrupted\n"


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(*_: Any) -> pl.DataFrame:
        raise OSError(errno.ENOSPC, "No space left on device", "runs/x/records.parquet")

    monkeypatch.setattr(runner, "run", full)
    assert refused(capsys, "run") == "coterie: No space left on device (runs/x/records.parquet)\n"


def test_a_report_that_cannot_be_written_leaves_the_records(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("coterie.report.figures.write_figures", full)
    assert main(["resume", str(finished)]) == 2
    said = capsys.readouterr()
    assert "decavg" in said.out, "the table is printed all the same"
    assert "coterie resume" in said.err


def test_resuming_a_finished_run_changes_nothing(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = records.load(finished)
    assert main(["resume", str(finished)]) == 0
    assert records.load(finished).equals(before)
    assert "report.html" in capsys.readouterr().out


def test_records_are_exported_for_spreadsheets(finished: Path, tmp_path: Path) -> None:
    assert main(["export", str(finished), str(tmp_path / "all.csv"), "--csv"]) == 0
    assert pl.read_csv(tmp_path / "all.csv").height == records.load(finished).height
    assert main(["export", str(finished), str(tmp_path / "one.csv"), "--csv", "--method", "decavg"]) == 0
    assert set(pl.read_csv(tmp_path / "one.csv")["method"]) == {"decavg"}


def test_compare_tells_runs_apart(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(finished)]) == 0
    assert "pair/" not in capsys.readouterr().out
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("config.toml", "records.parquet"):
        (copy / name).write_bytes((finished / name).read_bytes())
    assert main(["compare", str(finished), "copy"]) == 0
    out = capsys.readouterr().out
    assert "pair/decavg" in out
    assert "copy/decavg" in out


def test_plot_draws_into_the_named_folder(
    finished: Path, capsys: pytest.CaptureFixture[str], figures: dict[str, Figure]
) -> None:
    assert main(["plot", str(finished), "--out", "figures"]) == 0
    assert {path.name for path in Path("figures").iterdir()} == set(figures)
    assert sorted(pictures.legend(*figures["accuracy.png"].axes)) == ["decavg", "isolation"]
    assert "figures/accuracy.png" in capsys.readouterr().out


# What flags and files mean


def test_flags_win_over_the_file(tmp_path: Path, asked: Callable[[str], Experiment]) -> None:
    (tmp_path / "my.toml").write_text('nodes = 5\nrounds = 7\n[rule]\nname = "dechw"\ntheta = 3\nbeta = 0.5\n')
    experiment = asked("my.toml --nodes 6 --rule.theta 4")
    assert (experiment.nodes, experiment.rounds) == (6, 7)
    assert experiment.rule == {"name": "dechw", "theta": "4", "beta": 0.5}
    (method,) = experiment.resolved.values()
    assert method.rule["theta"] == 4  # type: ignore[index]


def test_the_file_may_stand_anywhere(tmp_path: Path, asked: Callable[[str], Experiment]) -> None:
    (tmp_path / "my.toml").write_text('nodes = 5\n[objective]\nname = "hinge"\n')
    for line in (
        "my.toml --pooled",
        "--pooled my.toml",
        "--objective.squared my.toml --pooled true",
        "--pooled yes my.toml",
    ):
        experiment = asked(line)
        assert (experiment.nodes, experiment.pooled) == (5, True)


def test_one_command_line_sets_parts_their_settings_and_the_experiment(asked: Callable[[str], Experiment]) -> None:
    line = (
        "--rule dechw --topology ba --topology.m 3 --nodes 50 --partition dirichlet --partition.alpha 0.5 --rounds 100"
    )
    experiment = asked(
        f"{line} --seeds 0-4 --batch_size 8 --rule.batch_size=20 --keep-optimiser --epochs 2 --items none"
    )
    assert experiment.seeds == (0, 1, 2, 3, 4)
    assert experiment.keep_optimiser
    assert (experiment.epochs, experiment.batches, experiment.items) == (2, None, None)
    (method,) = experiment.resolved.values()
    wanted = {"name": "ba", "m": 3, "connect": False, "assortativity": None, "mixing": "data", "own": 1.0}
    assert method.topology == wanted
    assert method.rule["batch_size"] == 20  # type: ignore[index]
    assert list(experiment.resolved) == ["dechw"], "naming a rule asks for that method alone"


@pytest.mark.parametrize(
    "sizes",
    ["--model.sizes 64,32", "--model.sizes 64 --model.sizes 32", "--model.sizes=[64,32]", "--model.sizes 64,32,"],
)
def test_lists_can_be_written_in_several_ways(asked: Callable[[str], Experiment], sizes: str) -> None:
    (method, *_) = asked(f"--model mlp {sizes}").resolved.values()
    assert method.model == {"name": "mlp", "sizes": (64, 32)}


@pytest.mark.parametrize("line", ["--methods isolation,dechw", "--methods isolation --methods dechw"])
def test_methods_by_name(asked: Callable[[str], Experiment], line: str) -> None:
    assert list(asked(line).resolved) == ["isolation", "dechw"]


@pytest.mark.parametrize("flag", ["--model", "--models"])
def test_models_can_be_mixed(asked: Callable[[str], Experiment], flag: str) -> None:
    both = ["mlp", "logistic"]
    assert asked(f"{flag} mlp,logistic").model == asked(f"{flag} mlp {flag} logistic").model == both
    assert asked(f"{flag}=mlp,logistic").model == asked(f'{flag} ["mlp","logistic"]').model == both
    wanted = [{"name": "cnn", "channels": [4, 8], "norm": "layer", "nodes": 15}, {"name": "mlp", "sizes": [3]}]
    assert asked(f"{flag} cnn[4,8]{{norm=layer}}*15,mlp[3]").model == wanted
    assert asked(f"{flag} cnn[4,8]{{norm=layer}}*15 {flag} mlp[3]").model == wanted


def test_a_model_in_notation_takes_more_settings(asked: Callable[[str], Experiment]) -> None:
    (method, *_) = asked("--model cnn[4,8] --model.norm layer").resolved.values()
    assert isinstance(method.model, dict)
    assert (method.model["channels"], method.model["norm"]) == ((4, 8), "layer")


def test_a_file_of_models_is_not_that_of_the_experiment(tmp_path: Path, asked: Callable[[str], Experiment]) -> None:
    (tmp_path / "spread.toml").write_text('0-1 = "mlp[3]"\n2 = "logistic"\n')
    (tmp_path / "my.toml").write_text("nodes = 3\nrounds = 7\n")
    for line in ("my.toml --models spread.toml", "--models spread.toml my.toml", "--model=spread.toml my.toml"):
        experiment = asked(line)
        assert (experiment.nodes, experiment.rounds) == (3, 7)
        assert experiment.model == [{"name": "mlp", "sizes": [3], "nodes": 2}, {"name": "logistic", "nodes": 1}]
    assert asked("--models spread.toml --nodes 3").rounds == asked("--nodes 3").rounds


@pytest.mark.parametrize(
    ("line", "connect"),
    [("--topology.connect", True), ("--topology.connect true", True), ("--topology.connect no", False)],
)
def test_switches_with_and_without_a_value(asked: Callable[[str], Experiment], line: str, connect: bool) -> None:
    (method, *_) = asked(line).resolved.values()
    assert method.topology["connect"] is connect  # type: ignore[index, call-overload]
    assert method.topology["p"] == 0.2, "the rest is as the default says"  # type: ignore[index, call-overload]


def test_settings_of_a_default_part_need_no_name(tmp_path: Path, asked: Callable[[str], Experiment]) -> None:
    (tmp_path / "bare.toml").write_text("nodes = 5\n")
    (method,) = asked("bare.toml --engine.workers 1 --optimiser.lr 0.3").resolved.values()
    assert method.engine["workers"] == 1  # type: ignore[index, call-overload]
    assert method.optimiser["lr"] == 0.3  # type: ignore[index, call-overload]


def test_a_flag_for_the_optimiser_wins_over_the_files_short_names(asked: Callable[[str], Experiment]) -> None:
    (method, *_) = asked("--optimiser.lr 0.3").resolved.values()
    assert method.optimiser["lr"] == 0.3  # type: ignore[index, call-overload]
    (method, *_) = asked("--optimiser adam").resolved.values()
    assert method.optimiser["name"] == "adam"  # type: ignore[index, call-overload]


def test_every_field_and_every_setting_of_every_part_has_a_flag() -> None:
    fields = {f.path[0] for f in run_flags.experiment_flags({})}
    assert fields == set(Experiment.model_fields)
    for slot, room in SLOTS.items():
        for name in names(room):
            part = find(room, name)
            made = flags.part_flags(slot, part, {})
            assert set(part.parameters) <= {f.path[1] for f in made}
            assert all(f.parameter.annotation for f in made)


def test_fresh_folders_are_numbered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    used: list[str] = []

    def remember(experiment: Experiment, out: Path, observers: Any) -> pl.DataFrame:
        used.append(str(out))
        raise runner.Interrupted(out)

    monkeypatch.setattr(runner, "run", remember)
    (tmp_path / "runs" / "default-9").mkdir(parents=True)
    (tmp_path / "runs" / "default-old").mkdir()
    (tmp_path / "my.toml").write_text("")
    for line in ("", "--rule dechw", "my.toml --rule dechw", "--methods decavg"):
        main(["run", *line.split()])
    assert used == ["runs/default-10", "runs/dechw-1", "runs/my-1", "runs/default-10"]


# Refusing


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run --rule dehw", "Did you mean 'dechw'?"),
        ("run --topology bb", "Did you mean 'ba'?"),
        ("run --methods dechv", "Did you mean 'dechw'?"),
        ("run --rule dechw --rule.thta 3", "Did you mean --rule.theta?"),
        ("run --rule dechw --rule.thta=3", "rule dechw"),
        ("run --rule decavg --rule.theta 3", "rule decavg. It has no settings"),
        ("run --rouns 3", "Did you mean --rounds?"),
        ("run --nodes abc", "nodes: expected a valid integer"),
        ("run --nodes 0", "greater than or equal to 1"),
        ("run --nodes -3", "got '-3'"),
        ("run --nodes", "--nodes requires an argument"),
        ("run --nodes 3 --nodes 4", "multiple times"),
        ("run --seeds x", "seeds such as 0-4"),
        ("run --pooled=maybe", "maybe"),
        ("run --merge-first=sometimes", "a valid boolean"),
        ("run --model.sizes 64,x", "model.sizes"),
        ("run --models h1 --model.norm batch", "--model.norm is a setting of one model, and there are several"),
        ("run --models mlp*3", "Set --nodes to 3"),
        ("run --models nowhere.toml", "no such file of models"),
        ("run --epochs 2 --batches 3", "exclude each other"),
        ("run --topology file", "--topology.path"),
        ("run nowhere.toml", "nowhere.toml"),
        ("run bad.toml", "not valid TOML"),
        ("run odd.toml --rule dechw", "rule: expected a name"),
        ("run strange.toml", "Did you mean rounds?"),
        ("run good.toml more", "unexpected argument 'more'"),
        ("run --rule broken.py:Rule", "SyntaxError"),
        ("run --rule none.py:Rule", "no such file"),
        ("run --rule good.py:Medien", "Did you mean 'Median'?"),
        ("run --out taken", "the run directory exists"),
        ("rum", 'Did you mean "run"?'),
        ("resume taken", "not a run directory"),
        ("resume", "FOLDER"),
        ("compare taken", "not a run directory"),
        ("plot nowhere", "not a run directory"),
        ("list ruls", "Did you mean 'rules'?"),
        ("show rule dehw", "Did you mean 'dechw'?"),
        ("show method dechv", "Did you mean 'dechw'?"),
        ("show rule broken.py:Rule", "SyntaxError"),
        ("show rul dechw", "Did you mean 'rules'?"),
        ("graph", "FAMILY"),
        ("graph bb", "Did you mean 'ba'?"),
        ("graph ba --mm 3", "Did you mean --m?"),
        ("graph ba --topology.mm 3", "Did you mean --topology.m?"),
        ("graph ba --m x", "topology.m: expected a valid integer"),
        ("graph ba --seed x", "seed: expected a whole number"),
        ("graph ba --draw g.doc", ".png, .pdf or .svg"),
        ("graph er --p 0", "not connected"),
        ("graph er --p 2", "0 to 1"),
        ("partition dirichle", "Did you mean 'dirichlet'?"),
        ("partition dirichlet --alpha 0.5 --dataset digit", "Did you mean 'digits'?"),
        ("partition dirichlet --nodes 5000", "coterie: "),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str) -> None:
    (tmp_path / "bad.toml").write_text("nodes = = 5")
    (tmp_path / "odd.toml").write_text("rule = 5")
    (tmp_path / "strange.toml").write_text("rouns = 5")
    (tmp_path / "good.toml").write_text("rounds = 5")
    (tmp_path / "broken.py").write_text("def (:")
    (tmp_path / "good.py").write_text("class Median: ...")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "something").write_text("")
    assert said in refused(capsys, line)


def test_a_refused_run_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, "run --rule dehw --out runs/x")
    assert not (tmp_path / "runs").exists()


# Looking around


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["--help"]):
        assert main(argv) == 0
        out = capsys.readouterr().out
        assert all(f" {name} " in out for name in ("run", "resume", "compare", "plot", "list", "show", "graph"))
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == "0.1.0"


def test_help_of_run_knows_the_parts_that_were_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    plain = capsys.readouterr().out
    assert all(f"--{field.replace('_', '-')}" in plain for field in Experiment.model_fields)
    assert "--rule.theta INT" not in plain
    assert main(["run", "--rule", "dechw", "--partition", "zipf", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--rule.theta INT" in out
    assert "--partition.alpha NUMBER" in out
    assert "1.26" in out


def test_help_shows_the_files_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my.toml").write_text('nodes = 77\n[rule]\nname = "dechw"\ntheta = 33\n')
    assert main(["run", "my.toml", "--help"]) == 0
    out = capsys.readouterr().out
    assert "[default: 77]" in out
    assert "[default: 33]" in out


@pytest.mark.parametrize("words", [["--help"], ["list", "rules"], ["graph", "ba", "--nodes", "9", "--m", "2"]])
def test_what_trains_nothing_is_quick_because_it_imports_little(words: list[str]) -> None:
    heavy = "{'torch', 'scipy.stats', 'matplotlib', 'polars'} & set(sys.modules)"
    code = f"import sys, coterie.app.cli; coterie.app.cli.main({words}); sys.exit(len({heavy}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_list_alone_names_the_rooms(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert set(ABOUT) == set(ROOMS) | {"methods"}
    assert all(f"{room} " in out for room in ABOUT)


@pytest.mark.parametrize("room", ABOUT)
def test_a_room_is_listed_a_line_for_each(room: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", room]) == 0
    lines = capsys.readouterr().out.splitlines()
    inside = methods.names() if room == "methods" else names(room)
    assert [line.split()[0] for line in lines[: len(inside)]] == list(inside)
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("room", ABOUT)
def test_everything_can_be_shown(room: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in methods.names() if room == "methods" else names(room):
        for called in (room, SINGULAR[room]):
            assert main(["show", called, name]) == 0
            out = capsys.readouterr().out
            assert out.startswith(f"{SINGULAR[room]} {name}\n")
            if room != "methods":
                assert all(key.replace("_", "-") in out or key in out for key in find(room, name).parameters)


def test_mixes_of_models_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "models"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n{mix} " in out for mix in mixes())
    for mix in (*mixes(), "h2/4"):
        assert main(["show", "model", mix]) == 0
        assert capsys.readouterr().out.startswith(f"mix {mix}\n")
    assert main(["show", "model", "h1-resnet/4"]) == 0
    assert "\n    resnet[16,32,64,128]\n    resnet[8,16,32,64]\n" in capsys.readouterr().out


def test_items_of_a_list_begin_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "dataset", "own"]) == 0
    assert capsys.readouterr().out.count("\n- ") == 5


def test_show_gives_equation_settings_and_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "rule", "trimmed-mean"]) == 0
    out = capsys.readouterr().out
    assert "--rule.share" in out
    assert "NUMBER" in out
    assert "0.2" in out
    assert "Yin et al." in out


@pytest.mark.parametrize(
    ("reference", "short"),
    [
        ("", ""),
        ("He et al., Delving Deep into Rectifiers, 2015", "He et al., 2015"),
        ("Wang, Yurochkin, Sun, Federated Learning, 2020", "Wang et al., 2020"),
        ("Kingma and Ba, Adam: A Method, 2015", "Kingma and Ba, 2015"),
        ("Savazzi et al., Devices, 2020; baseline of Valerio et al., 2023", "Savazzi et al., 2020"),
    ],
)
def test_references_in_brief(reference: str, short: str) -> None:
    assert brief(reference) == short


def test_graph_in_numbers_and_as_a_picture(capsys: pytest.CaptureFixture[str], figures: dict[str, Figure]) -> None:
    for line in ("graph ba --nodes 30 --m 3", "graph --nodes 30 --topology.m 3 ba --draw pictures/g.png"):
        assert main(line.split()) == 0
        facts = capsys.readouterr().out
        assert "links                 81" in facts  # (30 − 3) · 3
        assert all(word in facts for word in ("degree", "diameter", "spectral gap", "mixing time", "gain"))
    assert Path("pictures/g.png").is_file()
    assert "30 nodes, 81 links" in pictures.words(figures["g.png"])


def test_graph_is_drawn_by_its_seed_and_again_until_connected(capsys: pytest.CaptureFixture[str]) -> None:
    seen = []
    for seed in (0, 0, 1):
        assert main(f"graph er --p 0.2 --connect --seed {seed}".split()) == 0
        seen.append(capsys.readouterr().out)
    assert seen[0] == seen[1] != seen[2]


def test_partition_in_numbers_and_as_a_picture(capsys: pytest.CaptureFixture[str], figures: dict[str, Figure]) -> None:
    assert main(["partition", "iid", "--nodes", "5", "--dataset", "digits", "--draw", "pictures/p.png"]) == 0
    even = capsys.readouterr().out
    assert Path("pictures/p.png").is_file()
    assert pictures.title(*figures["p.png"].axes) == "iid, 5 nodes, digits, seed 0"
    assert len(figures["p.png"].axes[0].collections[0].get_offsets()) == 50
    assert main(["partition", "dirichlet", "--alpha", "0.1", "--nodes", "5", "--seed", "3"]) == 0
    skewed = capsys.readouterr().out

    def fact(out: str, name: str) -> float:
        return next(float(li.split()[-1].replace(",", "")) for li in out.splitlines() if li.startswith(f"{name} "))

    assert fact(even, "samples") == fact(skewed, "samples") == 1438
    assert fact(even, "gini") < 0.2 < fact(skewed, "gini")
    assert fact(even, "label kl") < 0.2 < fact(skewed, "label kl")


def test_a_setting_called_like_a_flag_of_the_command_keeps_its_long_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", "zipf", "--nodes", "5", "--partition.draw", "fresh", "--draw", "p.png"]) == 0
    fresh = capsys.readouterr().out
    assert Path("p.png").is_file()
    assert main(["partition", "zipf", "--nodes", "5", "--partition.draw", "rotate", "--draw", "p.png"]) == 0
    assert capsys.readouterr().out != fresh


# Progress


def run_begins(*jobs: tuple[str, int], rounds: int) -> Event:
    listed = [list(job) for job in jobs]  # as the runner tells them, and JSON has them
    return Event("begin", {"jobs": listed, "left": listed, "rounds": rounds})


def happens(name: str, job: tuple[str, int], round: int, **more: Any) -> Event:
    return Event(name, {"method": job[0], "seed": job[1], "round": round, **more})


def test_a_log_gets_a_line_for_each_job() -> None:
    out, jobs = io.StringIO(), [("decavg", 0), ("dechw", 0)]
    (shown,) = progress.observers(Console(file=out), "runs/x")
    shown.event(run_begins(*jobs, rounds=3))
    for job in jobs:
        shown.event(happens("begin", job, 0, rounds=3))
        for number in (1, 2, 3):
            shown.event(happens("round", job, number))
        shown.event(happens("evaluation", job, 3, test_accuracy=[0.4, None, 0.6]))
        shown.event(happens("end", job, 3, how="done"))
    first, *lines = out.getvalue().splitlines()
    assert first == "2 jobs of 3 rounds, writing to runs/x"
    assert [line.split(", ")[:3] for line in lines] == [
        ["1 of 2: decavg", "seed 0", "accuracy 0.500"],
        ["2 of 2: dechw", "seed 0", "accuracy 0.500"],
    ]


def test_a_log_tells_how_far_a_long_run_is_and_how_long_it_will_take() -> None:
    out, now, job = io.StringIO(), [0.0], ("decavg", 0)
    shown = progress.Lines(Console(file=out, width=200), "runs/x", clock=lambda: now[0])
    shown.event(run_begins(job, rounds=100))
    shown.event(Event("phase", {"text": "loading digits", "done": 0, "total": None}))
    shown.event(Event("phase", {"text": "loading digits", "done": 9, "total": None}))
    shown.event(Event("need", {"bytes": 4e7, "free": 14e9}))
    shown.event(happens("begin", job, 0, rounds=100))
    for number in range(1, 101):
        now[0] += 1
        shown.event(happens("round", job, number))
    shown.close()
    first, loading, need, *lines = out.getvalue().splitlines()
    assert (first, loading) == ("1 job of 100 rounds, writing to runs/x", "loading digits")
    assert need == "needs about 40.0 MB of memory for models and training; 14.0 GB are free"
    assert lines[0] == "5 %: decavg, seed 0, round 5 of 100, about 95 s left"
    assert [line.split(":")[0] for line in lines[1:]] == [f"{tenth}0 %" for tenth in range(1, 10)]


def test_a_log_is_not_quiet_in_a_round_that_takes_minutes() -> None:
    out, now, job = io.StringIO(), [0.0], ("decavg", 0)
    shown = progress.Lines(Console(file=out, width=200), "runs/x", clock=lambda: now[0])
    shown.event(run_begins(job, rounds=1000))
    for number in (1, 2):
        now[0] += 10
        shown.event(happens("round", job, number))
    now[0] += shown.rhythm.QUIET
    shown.event(happens("round", job, 3))
    shown.close()
    *_, last = out.getvalue().splitlines()
    assert last == "0 %: decavg, seed 0, round 3 of 1000, about 6 h left"


def test_progress_tells_the_first_metric_whichever_it_is(tmp_path: Path) -> None:
    out = io.StringIO()
    shown = progress.observers(Console(file=out), "x")
    reached = small(metrics=["perplexity", "accuracy"], rounds=1).run(tmp_path / "x", shown).records
    value = reached.filter(pl.col("round") == 1)["test_perplexity"].mean()
    assert f"1 of 1: decavg, seed 0, perplexity {value:.3f}, " in out.getvalue()


def test_a_terminal_gets_bars() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    (shown,) = progress.observers(console, "runs/x")
    assert isinstance(shown, progress.Bars)
    one, other = ("decavg", 0), ("[odd]", 1)
    shown.event(run_begins(one, other, rounds=4))
    shown.event(happens("begin", one, 2, rounds=4))
    shown.event(happens("evaluation", one, 3, test_accuracy=[0.25]))
    shown.event(happens("round", one, 3))
    assert shown.bars.tasks[1].fields["said"] == "round 3 of 4, accuracy 0.250"
    shown.event(happens("round", one, 4))
    shown.event(happens("begin", other, 0, rounds=4))
    shown.event(happens("round", other, 1))
    shown.event(Event("warning", {"text": "stopping"}))
    whole, present = shown.bars.tasks
    assert (whole.completed, whole.total, whole.fields["said"]) == (5, 8, "1 of 2 jobs")
    assert (present.description, present.completed) == ("[odd], seed 1", 1)
    shown.close()
    shown.close()
    assert "stopping" in console.file.getvalue()  # type: ignore[attr-defined]


def test_what_is_shown_can_be_json_or_csv(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["list"], ["list", "rules"], ["show", "rule", "dechw"], ["show", "method", "decdiff"]):
        assert main([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)
    assert main(["graph", "ring", "--nodes", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["greatest_degree"] == 2
    assert main(["partition", "iid", "--nodes", "5", "--csv"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert len(head.split(",")) == len(row.split(","))
    assert main(["compare", str(finished), "--json"]) == 0
    assert {row["method"] for row in json.loads(capsys.readouterr().out)} == {"isolation", "decavg"}


def test_a_run_for_other_programs_says_nothing_else_on_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--methods", "decavg", "--json", *SMALL]) == 0
    said = capsys.readouterr()
    assert [row["folder"] for row in json.loads(said.out)] == ["runs/default-1"]
    assert "1 of 1: decavg" in said.err


def test_the_schema_knows_every_setting_of_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert {"nodes", "rule", "methods", "sweep"} <= made["properties"].keys()
    for room in SLOTS.values():
        known = {p["properties"]["name"].get("const"): p["properties"] for p in made["$defs"][room]["anyOf"]}
        for name in names(room):
            assert set(find(room, name).parameters) <= known[name].keys()


def test_shells_can_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    said = capsys.readouterr().out
    assert "complete -F" in said
    assert {"--batch-size", "--grid", "sweep"} <= set(re.findall(r"[\w-]+", said))


def test_a_switch_may_stand_before_another_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--topology", "er", "--topology.connect", "--methods", "decavg", *SMALL]) == 0
    assert "decavg" in capsys.readouterr().out

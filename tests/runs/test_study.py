"""Studies are carried out once, several runs at a time, and go on after an interruption."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from coterie.app.cli import main
from coterie.errors import ConfigError
from coterie.runs.exhibits import matching
from coterie.runs.experiment import Experiment
from coterie.runs.study import conduct
from coterie.runs.study_order import Order
from coterie.runs.task_store import FAILED, TaskStore
from small import Noted

STUDY = '''
from coterie.runs.experiment import Experiment
from coterie.report.sheets import Sheet
from coterie.runs.exhibits import Exhibit

SMALL = {"nodes": 4, "batches": 1, "batch_size": 8, "total": 200, "test_share": 0.2, "evaluate": 1, "topology": "ring"}


def tiny(scale):
    """A study of next to nothing.

    Reference: Nobody, Nowhere, 2024
    """
    rounds = {"smoke": 2, "laptop": 400, "paper": 9}[scale]
    lr = 1e30 if scale == "paper" else 0.05
    run = Experiment(**SMALL, rounds=rounds, lr=lr, methods=["decavg", "isolation"], seeds=(0, 1))
    other = run.model_copy(update={"methods": {"own name": {"use": "decavg"}}, "seeds": (0,)})

    def table(found, folder):
        frame = found.records["run"]
        rows = [[m, str((frame["method"] == m).sum())] for m in ("decavg", "isolation")]
        return [Sheet("Rows", ["method", "rows"], rows)]

    def figure(found, folder):
        (folder / "drawn.txt").write_text(str(found.records["other"]["method"].unique().to_list()))
        return [folder / "drawn.txt", "Words."]

    return {"table I": Exhibit("rows", table, {"run": run}), "figure 1a": Exhibit("a figure", figure, {"other": other})}
'''


class Watching(Noted):
    """An observer that remembers which tasks were begun and how they ended."""

    @property
    def begun(self) -> list[str]:
        return [task["name"] for e in self.named("begin") if "tasks" in e.data for task in e["tasks"].values()]

    @property
    def finished(self) -> list[str]:
        return [e.get("error", "") for e in self.named("end")]


@pytest.fixture
def study(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(STUDY)
    return f"{tmp_path / 'own.py'}:tiny"


def test_runs_are_shared_between_exhibits_and_kept(study: str, tmp_path: Path) -> None:
    seen = Watching()
    shown = list(conduct(Order(study, "smoke", jobs=2), tmp_path / "out", [seen]))
    # four tasks and not five: the figure's only method is the table's under another name
    assert sorted(seen.begun) == [f"run: {m}, seed {s}" for m in ("decavg", "isolation") for s in (0, 1)]
    assert seen.finished == ["", "", "", ""]
    assert {label for label, _, _ in shown} == {"table I", "figure 1a"}
    rows = next(items[0].rows for label, _, items in shown if label == "table I")  # type: ignore[union-attr]
    assert rows == [["decavg", "24"], ["isolation", "24"]]  # 2 seeds, 3 evaluations, 4 nodes
    assert (tmp_path / "out" / "drawn.txt").read_text() == "['own name']"
    again = Watching()
    assert len(list(conduct(Order(study, "smoke"), tmp_path / "out", [again]))) == 2
    assert again.begun == []
    more = Watching()
    list(conduct(Order(study, "smoke", tables=["i"], seeds=(0, 7)), tmp_path / "out", [more]))
    assert more.begun == ["run: decavg, seed 7", "run: isolation, seed 7"]
    assert [e["kept"] for e in more.named("begin") if "tasks" in e.data] == [2]


def test_a_task_counts_once_its_process_says_so(study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records may be there already, while it is still writing beside them."""
    asked: set[str] = set()

    def holds(store: TaskStore, key: str) -> bool:
        before = key in asked
        asked.add(key)
        return before

    monkeypatch.setattr(TaskStore, "holds", holds)
    shown = list(conduct(Order(study, "smoke", jobs=1), tmp_path / "out"))
    rows = next(items[0].rows for label, _, items in shown if label == "table I")  # type: ignore[union-attr]
    assert rows == [["decavg", "24"], ["isolation", "24"]]


def test_the_command_writes_a_page_of_all_that_was_shown(
    study: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert main(["study", study, "--scale", "smoke", "--figure", "1", "--out", out]) == 0
    assert (
        main(["study", study, "--scale", "smoke", "--table", "I", "--seeds", "0-1", "--jobs", "1", "--out", out]) == 0
    )
    page = (tmp_path / "out" / "README.md").read_text()
    assert page.index("## Table I: rows") < page.index("## Figure 1a: a figure")
    assert "Nobody, Nowhere, 2024" in page
    assert "--scale smoke --seeds 0,1`" in page
    assert "| decavg | 24 |" in page
    assert "4 runs" in page
    assert "3 runs to do, 1 kept" in capsys.readouterr().out


def test_what_was_asked_for_in_vain_is_named(study: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", study, "--figure", "2", "--out", str(tmp_path / "o")]) == 2
    assert "unknown figure" in capsys.readouterr().err
    assert main(["study", study, "--scale", "huge", "--out", str(tmp_path / "o")]) == 2
    assert "unknown scale 'huge'" in capsys.readouterr().err
    assert main(["study", "initialization"]) == 2
    assert "Did you mean 'initialisation'?" in capsys.readouterr().err
    assert main(["study", "initialisation", "--seeds", "a"]) == 2
    assert not (tmp_path / "o").exists()


def test_exhibits_can_be_had_for_some_methods_only(study: str, tmp_path: Path) -> None:
    seen = Watching()
    shown = list(conduct(Order(study, "smoke", only=["decavg"]), tmp_path / "out", [seen]))
    assert sorted(seen.begun) == ["run: decavg, seed 0", "run: decavg, seed 1"]
    ((label, _, (sheet,)),) = shown  # the figure has no such method
    assert label == "table I"
    assert sheet.rows == [["decavg", "24"], ["isolation", "0"]]  # type: ignore[union-attr]
    ((label, _, _),) = conduct(Order(study, "smoke", only=["other"]), tmp_path / "out", [seen])
    assert label == "figure 1a"
    with pytest.raises(ConfigError, match="unknown cell, run or method"):
        list(conduct(Order(study, "smoke", only=["another"]), tmp_path / "out"))


def test_labels() -> None:
    labels = ["figure 3a", "figure 3b", "figure 30", "figure 4", "table II", "table III"]
    assert matching(labels, [], []) == (labels, [])
    assert matching(labels, ["3"], []) == (["figure 3a", "figure 3b"], [])
    assert matching(labels, ["4", "3b"], ["ii"]) == (["figure 3b", "figure 4", "table II"], [])
    assert matching(labels, ["9"], ["IV"]) == ([], ["figure 9", "table IV"])


def test_a_task_that_diverges_is_told_and_not_tried_again(study: str, tmp_path: Path) -> None:
    seen = Watching()
    ((_, _, (sheet,)),) = conduct(Order(study, "paper", tables=["I"]), tmp_path / "out", [seen])
    assert all(8 <= int(count) < 80 for _, count in sheet.rows)  # type: ignore[union-attr]  # 80 if none had diverged
    assert all("not finite" in trouble for trouble in seen.finished)
    assert len(list((tmp_path / "out" / "tasks").glob(f"*/{FAILED}"))) == 4
    again = Watching()
    list(conduct(Order(study, "paper", tables=["I"]), tmp_path / "out", [again]))
    assert again.begun == []


def test_an_error_of_the_user_ends_the_study_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(STUDY.replace('"total": 200', '"dataset": "own", "total": 200'))
    assert main(["study", f"{tmp_path / 'own.py'}:tiny", "--scale", "smoke", "--out", str(tmp_path / "out")]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_or_killed_it_goes_on(study: str, tmp_path: Path, number: int) -> None:
    out = tmp_path / "out"
    asked = ["study", study, "--table", "I", "--jobs", "2", "--out", str(out)]
    command = [sys.executable, "-c", "import sys; from coterie.app.cli import main; sys.exit(main())", *asked]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("tasks/*/environment.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)  # some rounds, of 400
    workers = _family(process.pid)
    assert workers
    process.send_signal(number)
    said, _ = process.communicate(timeout=120)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "The same command goes on" in said
        assert not list(out.glob("tasks/*/jobs/*/done.parquet"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    frame = pl.concat(pl.read_parquet(f) for f in out.glob("tasks/*/records.parquet"))
    assert frame.group_by("method", "seed").len().sort("len")["len"].to_list() == [401 * 4] * 4
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def _family(pid: int) -> list[int]:
    """The processes that this one has started, and those that they have."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    if not children.is_file():
        pytest.skip("the system does not tell who started whom")
    own = [int(child) for child in children.read_text().split()]
    return own + [grandchild for child in own for grandchild in _family(child)]


def test_what_needs_no_run_is_shown_too(tmp_path: Path) -> None:
    text = "from coterie.runs.exhibits import Exhibit\n\ndef words(scale):\n    '''Words.'''\n"
    text += "    return {'table I': Exhibit('words', lambda found, folder: [str(found.records)])}\n"
    (tmp_path / "own.py").write_text(text)
    ((label, _, shown),) = conduct(Order(f"{tmp_path / 'own.py'}:words", "smoke"), tmp_path / "out")
    assert (label, shown) == ("table I", ["{}"])
    assert "## Table I: words" in (tmp_path / "out" / "table-I.md").read_text()


def test_a_part_of_ones_own_counts_by_what_it_says(tmp_path: Path) -> None:
    rule = "from coterie.contract import Rule\n\nclass Mine(Rule):\n    pass\n"
    keys = []
    for text in (rule, rule + "# changed\n", rule):
        (tmp_path / "rule.py").write_text(text)
        experiment = Experiment(rule=f"{tmp_path / 'rule.py'}:Mine")
        keys.append(next(iter(Order("initialisation").tasks("own", experiment).values())).key)
    assert keys[0] == keys[2] != keys[1]


def test_a_setting_that_a_metric_gains_discards_nothing() -> None:
    def key(*metrics: object) -> str:
        (task,) = Order("initialisation").tasks("own", Experiment(metrics=metrics)).values()
        return task.key

    f1 = {"name": "f1", "average": "macro"}  # the average was added when studies had been done
    assert key("accuracy", "loss", "f1") == key("accuracy", "loss", f1)
    assert key("accuracy", "loss", {**f1, "average": "binary"}) != key("accuracy", "loss", f1)
    (plain,) = Order("initialisation").tasks("own", Experiment()).values()
    assert key(*Experiment().metrics) == plain.key


def test_fewer_than_no_jobs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "initialisation", "--jobs", "-1"]) == 2
    assert "jobs: expected at least 0, got -1" in capsys.readouterr().err

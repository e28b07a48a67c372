"""What the documentation prints runs: parts of one's own with the commands beneath them, scripts, and every command."""

import ast
import itertools
import pydoc
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from coterie import Experiment
from coterie.app.cli import main
from coterie.errors import CoterieError
from coterie.parts import find
from coterie.runs import runner
from coterie.runs.exhibits import Results
from small import LOOP

ROOT = Path(__file__).parents[1]
TINY = {
    "--nodes": "5",
    "--rounds": "2",
    "--seeds": "0",
    "--total": "200",
    "--batches": "2",
    "--engine.workers": "1",
    "--engine.mode": "loop",
    "--out": "runs/tiny",
}
"""What every experiment here is cut down to; it is digits on a few nodes unless the documentation says another."""
ASSUMED = """
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.contract import Rule
from coterie.lessons import Classroom, Lesson, Pupil
from coterie.protocols import Merge, Place, Protocol, Receive, Round, Send, Train

"""
"""The imports that docs/design.md leaves out."""


def blocks(page: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    text = (ROOT / page).read_text("utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.S | re.M)


def commands(shell: str) -> Iterator[list[str]]:
    """The arguments of every `coterie` command in a block of shell."""
    for line in shell.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "coterie":
            yield words[1:]


def parts(page: str) -> Iterator[Any]:
    """Python that defines a part and runs nothing, with the block beneath it that uses it."""
    found = blocks(page)
    for (language, code), (beneath, use) in itertools.pairwise(found):
        if language == "python" and not runs(code):
            names = [n.name for n in ast.parse(code).body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
            yield pytest.param(code, beneath, use, id=f"{page} {names[0]}")


def runs(code: str) -> bool:
    """Whether a script does something beyond its definitions."""
    return any(isinstance(statement, ast.Expr) for statement in ast.parse(code).body)


def tiny(arguments: list[str]) -> list[str]:
    """A command with everything small that it does not choose itself."""
    added = TINY if arguments[0] == "run" else {}
    return [*arguments, *(w for flag, value in added.items() if flag not in arguments for w in (flag, value))]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own; and no figures, which are most of the time that so short a run takes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("coterie.report.figures.write_figures", lambda *_, **__: [])
    monkeypatch.setattr("coterie.page.single.write_page", lambda folders, path: path)


@pytest.mark.parametrize(("code", "language", "use"), [*parts("docs/guide.md"), *parts("README.md")])
def test_a_part_of_ones_own_runs_as_the_page_says(code: str, language: str, use: str, tmp_path: Path) -> None:
    assert language == "sh"
    for arguments in commands(use):
        for name in re.findall(r"\./(\w+\.py):", " ".join(arguments)):
            (tmp_path / name).write_text(code)
        if arguments[0] == "study":
            show_study(arguments[1], tmp_path)
        else:
            assert main(tiny(arguments)) == 0
    assert [*tmp_path.glob("*.py")]


def show_study(name: str, folder: Path) -> None:
    """Every exhibit from runs that are as its own, but shorter and in this process."""
    small = {"rounds": 1, "seeds": (0,), "total": 400, "batches": 1, "engine": LOOP}
    for exhibit in find("studies", name).make()("smoke").values():
        runs = {run: settings.model_copy(update=small).run().records for run, settings in exhibit.runs.items()}
        shown = list(exhibit.show(Results(runs, {}), folder))
        assert len(shown) == len(runs)
        assert all(path.is_file() for path in shown)


def test_parts_of_every_kind_are_shown() -> None:
    used = " ".join(use for _, _, use in (p.values for p in parts("docs/guide.md")))
    kinds = ("rule", "topology", "partition", "dataset", "model", "objective", "protocol", "protocol.lesson")
    assert all(re.search(rf"--{kind} \./\w+\.py:", used) for kind in kinds)
    assert re.search(r"coterie study \./\w+\.py:", used)


@pytest.mark.parametrize(("code", "language", "use"), [*parts("docs/design.md")])
def test_a_part_that_the_design_sketches_runs(code: str, language: str, use: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ASSUMED + code)
    if language != "toml":
        use = 'topology = "line"\nprotocol = "./mine.py:Chain"\n'
    (tmp_path / "mine.toml").write_text(use)
    assert main(tiny(["run", "mine.toml"])) == 0


SCRIPTS = [
    pytest.param(code, id=f"{page} {number}")
    for page in ("docs/guide.md", "README.md")
    for number, (language, code) in enumerate(blocks(page))
    if language == "python" and runs(code)
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_experiment_in_python_runs(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"rounds": 1, "seeds": (0,), "total": 400, "batches": 1, "engine": LOOP}
    run = Experiment.run

    def shortly(self: Experiment, *given: Any, **more: Any) -> pl.DataFrame:
        return run(self.model_copy(update=small), *given, **more)

    monkeypatch.setattr(Experiment, "run", shortly)
    exec(compile(script, "script", "exec"), {})
    told = capsys.readouterr().out
    assert "decavg" in told or "halfway" in told


def test_a_run_directory_is_read_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tiny(["run", "--methods", "decavg", "--measures", "spread", "--out", "runs/default-1"])) == 0
    capsys.readouterr()
    scripts = [code for language, code in blocks("docs/records.md") if language == "python"]
    assert len(scripts) >= 2
    for script in scripts:
        exec(compile(script, "docs/records.md", "exec"), {})
        assert "decavg" in capsys.readouterr().out or "print" not in script


EVERY = [
    pytest.param(arguments, id=f"{page} {' '.join(arguments)}")
    for page in ("docs/guide.md", "README.md", "docs/gain-by-rule.md")
    for language, text in blocks(page)
    if language == "sh"
    for arguments in commands(text)
    if arguments[0] == "run" and not re.search(r"\.py:|\.toml|/|--help", " ".join(arguments))
]


@pytest.mark.parametrize("arguments", EVERY)
def test_every_run_that_is_printed_is_one_that_can_be(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its flags are known and its parts fit together; it is not carried out."""
    seen: list[Experiment] = []

    def stop(experiment: Experiment, out: Any, display: Any) -> pl.DataFrame:
        seen.append(experiment)
        raise CoterieError("enough")

    monkeypatch.setattr(runner, "run", stop)
    assert main(arguments) == 2
    assert [method for experiment in seen for method in experiment.resolved]


PAGES = sorted(str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DOTTED = [
    (page, name)
    for page in PAGES
    if page != "CHANGELOG.md"
    for name in sorted({*re.findall(r"`(coterie(?:\.\w+)+)", (ROOT / page).read_text("utf-8"))})
]


@pytest.mark.parametrize(("page", "name"), DOTTED)
def test_every_dotted_name_exists(page: str, name: str) -> None:
    assert pydoc.locate(name) is not None


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_links_to_exists(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    targets = [t.partition("#")[0] for t in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text)]
    assert [t for t in targets if t and not ((ROOT / page).parent / t).exists()] == []


def test_every_promise_names_tests_that_there_are() -> None:
    """docs/security.md: each row names files, and in them tests."""
    text = (ROOT / "docs/security.md").read_text("utf-8")
    promises = [line for line in text.splitlines() if line.startswith("| ") and "tests/" in line]
    assert len(promises) > 20
    for line in promises:
        file = ""
        for said in re.findall(r"`((?:tests/|test_)[\w/.]+)`", line):
            file = said if said.startswith("tests/") else file
            assert (ROOT / file).is_file(), line
            assert said == file or f"def {said}(" in (ROOT / file).read_text("utf-8"), said

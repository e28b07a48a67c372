"""Parts are found by looking, describe themselves, and may be the user's own."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from coterie import methods
from coterie.errors import ConfigError
from coterie.parts import ROOMS, described, find, names
from coterie.runs.experiment import Experiment

ALL = [(room, name) for room in ROOMS for name in names(room)]


@pytest.mark.parametrize("room", ROOMS)
def test_names_are_the_files(room: str) -> None:
    folder = Path(str(importlib.import_module(f"coterie.{room}").__file__)).parent
    files = {f.stem for f in folder.glob("*.py") if not f.stem.startswith("_")}
    assert set(names(room)) == files
    assert list(names(room)) == sorted(names(room))


@pytest.mark.parametrize(("room", "name"), ALL)
class TestEveryPart:
    def test_says_what_it_is(self, room: str, name: str) -> None:
        part = find(room, name)
        assert part.summary.endswith(".")
        assert "\n" not in part.summary
        assert "Reference:" not in part.summary + part.body

    def test_cites_where_it_says_so(self, room: str, name: str) -> None:
        part = find(room, name)
        text = inspect.getdoc(part.target) or ""
        if "Reference" in text or "et al." in text:
            assert any(character.isalpha() for character in part.reference)

    def test_settings_have_types(self, room: str, name: str) -> None:
        for setting, (annotation, _) in find(room, name).parameters.items():
            assert annotation is not inspect.Parameter.empty, setting

    def test_a_name_with_dashes_finds_the_part(self, room: str, name: str) -> None:
        assert find(room, name.replace("_", "-")).target is find(room, name).target


@pytest.mark.parametrize("name", names("rules"))
def test_every_rule_cites_its_paper(name: str) -> None:
    assert find("rules", name).reference


@pytest.mark.parametrize("name", methods.names())
def test_every_method_is_described_and_can_be_resolved(name: str) -> None:
    summary, reference = methods.describe(name)
    assert summary.endswith(".")
    assert reference
    assert list(Experiment(methods=[name]).resolved) == [name]


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown rule 'decavgg'.*Did you mean 'decavg'"):
        find("rules", "decavgg")


def test_a_name_like_no_other_lists_them_all() -> None:
    with pytest.raises(ConfigError, match=r"Choose from: .*decavg.*median"):
        find("rules", "qqqqqqqq")


class TestUsersOwn:
    def write(self, folder: Path, text: str = "") -> Path:
        file = folder / "mine.py"
        file.write_text(
            text
            or '''
from dataclasses import dataclass
from coterie.contract import Rule

@dataclass(frozen=True)
class Mine(Rule):
    """My own."""

    share: float = 0.5

def grid_of_mine(nodes, rng, *, side: int = 2):
    """A network."""
'''
        )
        return file

    def test_by_file(self, tmp_path: Path) -> None:
        part = find("rules", f"{self.write(tmp_path)}:Mine")
        assert part.summary == "My own."
        assert part.parameters["share"][1] == 0.5
        assert part.make(share=0.25).share == 0.25
        assert list(find("topologies", f"{tmp_path / 'mine.py'}:grid_of_mine").parameters) == ["side"]

    def test_by_relative_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.write(tmp_path)
        monkeypatch.chdir(tmp_path)
        assert find("rules", "./mine.py:Mine").target is find("rules", f"{tmp_path / 'mine.py'}:Mine").target

    def test_by_module(self) -> None:
        assert find("rules", "coterie.rules.decavg:DecAvg").target is find("rules", "decavg").target

    def test_files_of_one_name_are_kept_apart(self, tmp_path: Path) -> None:
        found = []
        for folder in (tmp_path / "a", tmp_path / "b"):
            folder.mkdir()
            found.append(find("rules", f"{self.write(folder)}:Mine").target)
        assert found[0] is not found[1]

    def test_in_an_experiment(self, tmp_path: Path) -> None:
        name = f"{self.write(tmp_path)}:Mine"
        (one,) = Experiment(rule={"name": name, "share": 0.1}).resolved.values()
        assert one.rule == {"name": name, "share": 0.1}
        with pytest.raises(ConfigError, match=r"rule\.shar.*Did you mean rule\.share"):
            Experiment(rule={"name": name, "shar": 0.1})

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("/nowhere/mine.py:Mine", "no such file.*Check the path"),
            ("no.such.module:Mine", "cannot import 'no.such.module'"),
            ("coterie.rules.decavg:DecAvgg", "Did you mean 'DecAvg'"),
        ],
    )
    def test_mistakes_in_naming_a_part_are_explained(self, name: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            find("rules", name)

    def test_a_file_with_a_mistake_in_it(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"mine\.py"):
            find("rules", f"{self.write(tmp_path, 'def f(:')}:Mine")
        with pytest.raises(ConfigError, match=r"mine\.py"):
            find("rules", f"{self.write(tmp_path, 'import no_such_thing')}:Mine")
        with pytest.raises(ConfigError, match=r"mine\.py"):  # and again: nothing half-made is kept
            find("rules", f"{self.write(tmp_path, 'import no_such_thing')}:Mine")


@pytest.mark.parametrize("room", ROOMS)
def test_parts_are_described_without_importing_them(room: str) -> None:
    for name in names(room):
        part = find(room, name)
        assert described(room, name) == (part.summary, part.reference)


@pytest.mark.parametrize("words", [["--help"], ["list"], ["list", "rules"], ["list", "studies"]])
def test_what_there_is_is_told_at_once(words: list[str]) -> None:
    code = (
        f"import sys; from coterie.app.cli import main; main({words}); print(*{{'torch', 'polars'}} & {{*sys.modules}})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""

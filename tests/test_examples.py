"""The examples run as they are: scripts as a user starts them, the notebook in a kernel of its own."""

import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from coterie.runs.experiment import Experiment
from small import LOOP

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("own_*.py"))
LEARNT = {"own_rule": ("careful", 0.5), "own_transformer": ("decavg", 0.8)}
"""What an example's method reaches at least, where it is an accuracy."""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_learns(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "cache"))
    run = Experiment.run

    def here(self: Experiment, *given: Any, **more: Any) -> Any:
        return run(self.model_copy(update={"engine": LOOP}), *given, **more)  # the same numbers, and no processes

    monkeypatch.setattr(Experiment, "run", here)
    runpy.run_path(str(script), run_name="__main__")
    out = capsys.readouterr().out
    numbers = {row[0]: [float(n) for n in row[1:]] for row in map(_cells, out.splitlines()) if len(row) > 1}
    if script.stem in LEARNT:
        method, bound = LEARNT[script.stem]
        assert numbers[method][0] > bound
    else:
        assert numbers["decavg"][0] < 0.75  # of 1, the variance of the targets


def _cells(line: str) -> list[str]:
    """A row of a table: its name, and the numbers."""
    cells = [cell.strip() for cell in re.split(r"[│┆]", line) if cell.strip()]
    return cells if cells and all(re.fullmatch(r"[\d.e+]+", cell) for cell in cells[1:]) else []


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In ten lines: an experiment of parts that were typed in, its results and a trained model."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "cache"))
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    client.execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code[1].source.splitlines() + code[2].source.splitlines()) <= 10
    bar, table = (output.data for output in code[1].outputs if "data" in output)
    assert 'value="8"' in bar["text/html"]
    assert "done, accuracy" in bar["text/html"]
    assert "| halfway |" in table["text/markdown"]
    assert any("image/png" in output.data for output in code[2].outputs)
    told = "".join(output.text for output in code[3].outputs)
    accuracy = re.search(r"node 3: ([\d.]+)", told)
    assert accuracy
    assert float(accuracy[1]) > 0.8
    kept = {path.name.partition("-")[0]: path.read_text() for path in (tmp_path / "runs/notebook/parts").iterdir()}
    assert kept["Net"].startswith("class Net(nn.Module):")
    assert kept["Halfway"].startswith("@dataclass(frozen=True)\nclass Halfway(Rule):")
    assert (tmp_path / "runs/notebook/report.html").is_file()

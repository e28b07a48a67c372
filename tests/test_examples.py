"""The examples run as they are: scripts as a user starts them, notebooks in kernels of their own."""

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


def test_a_sweep_has_every_cell_and_computes_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "cache"))
    sweep = Experiment.sweep

    def here(self: Experiment, *given: Any, **more: Any) -> Any:
        return sweep(self.model_copy(update={"engine": LOOP}), *given, **more)

    monkeypatch.setattr(Experiment, "sweep", here)
    said = []
    for _ in range(2):
        runpy.run_path(str(EXAMPLES / "sweep.py"), run_name="__main__")
        said.append(capsys.readouterr().out)
        kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "sweeps").rglob("done.parquet")}
        assert len(kept) == 16  # one for each seed of a cell
        if len(said) == 1:
            before = kept
    assert kept == before
    assert said[0] == said[1]
    rows = [row for row in map(_all_cells, said[0].splitlines()) if row]
    cells = {(network, alpha): [float(n) for n in numbers] for network, alpha, *numbers in rows}
    assert {network for network, _ in cells} == {"ring", "ws(k 4, p 0.2)"}
    for decavg, dechw, gain in cells.values():
        assert gain == pytest.approx(dechw - decavg, abs=1e-5)
    assert all(cells[network, "10"][0] > 0.5 > cells[network, "0.1"][0] for network, _ in cells)


def _all_cells(line: str) -> list[str]:
    """A row of the last table, of five columns, if this is one."""
    cells = [cell.strip() for cell in re.split(r"[│┆]", line) if cell.strip()]
    return cells if len(cells) == 5 and re.fullmatch(r"-?[\d.]+", cells[-1]) else []


def _cells_of(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The cells of a notebook with code, once they have run in a folder."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    monkeypatch.setenv("COTERIE_CACHE", str(folder / "cache"))
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    client = NotebookClient(notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": folder}})
    client.execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_networks_are_told_apart_by_numbers_and_by_learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = _cells_of("networks.ipynb", tmp_path, monkeypatch)
    facts, last = (code[i].outputs[-1].data["text/plain"] for i in (1, -1))
    slow = [line for line in facts.splitlines() if "19.201" in line]
    assert len(slow) == 1
    assert "ring" in slow[0]
    assert last.count("gain-decavg") == 4
    assert any("image/png" in output.data for output in code[3].outputs)


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In ten lines: an experiment of parts that were typed in, its results and a trained model."""
    code = _cells_of("notebook.ipynb", tmp_path, monkeypatch)
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

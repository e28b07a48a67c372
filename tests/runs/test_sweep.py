"""Sweeps: every combination of some settings once, kept, shown as a table, as LaTeX, as CSV and as curves."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from coterie.app.cli import main
from coterie.config import grid
from coterie.errors import ConfigError
from coterie.runs.experiment import Experiment
from small import SMALL, Noted, small

FILE = """
nodes = 4
rounds = 2
batches = 1
batch_size = 8
total = 200
test_share = 0.2
topology = "ring"
seeds = "0-1"

[sweep]
"partition.alpha" = [0.1, 1.0]
"""
GRID = {"partition": ["iid", "dirichlet"], "rule": ["decavg", "isolation"]}
TINY = {**SMALL, "rounds": 2, "nodes": 4, "seeds": (0, 1)}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "out"
    small(rounds=2, nodes=4, seeds=(0, 1)).sweep(GRID, out, jobs=2)
    return out


def begun(out: Path, cells: dict[str, list[Any]], **more: Any) -> list[str]:
    """The runs that a sweep of small experiments carries out into a folder."""
    seen = Noted()
    small(rounds=2, nodes=4, seeds=(0, 1)).sweep(cells, out, jobs=2, observers=[seen], **more)
    return [task["name"] for e in seen.named("begin") if "tasks" in e.data for task in e["tasks"].values()]


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("partition.alpha=0.1,0.5", "partition.alpha", [0.1, 0.5]),
        ("rule=decavg, dechw", "rule", ["decavg", "dechw"]),
        ("model=cnn[32,64],mlp{sizes=[8,4]}", "model", ["cnn[32,64]", "mlp{sizes=[8,4]}"]),
        ("model='mlp[8],mlp[4]',logistic", "model", ["mlp[8],mlp[4]", "logistic"]),
        ("model.sizes=[64],[64,32]", "model.sizes", [[64], [64, 32]]),
        ("batch-size=8", "batch_size", [8]),
        ("pooled=true,false", "pooled", [True, False]),
    ],
)
def test_grids_are_typed(text: str, key: str, values: list[Any]) -> None:
    assert grid.typed([text]) == {key: values}


def test_grids_in_files_may_be_nested() -> None:
    assert grid.written({"partition": {"alpha": [1, 2]}, "rule": ["decavg"]}) == {
        "partition.alpha": [1, 2],
        "rule": ["decavg"],
    }


def test_cells_are_all_combinations_as_settings() -> None:
    cells = list(grid.cells({"nodes": [4, 5], "rule": ["dechw"], "rule.theta": [1, 30]}))
    assert [tuple(cell.values()) for cell in cells] == [(n, "dechw", t) for n in (4, 5) for t in (1, 30)]
    assert grid.settings(cells[-1]) == {"nodes": 5, "rule": {"name": "dechw", "theta": 30}}


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({}, "nothing is varied"),
        ({"seeds": [0, 1]}, "seeds are no part of a grid.*--seeds"),
        ({"rule": []}, "at least one value"),
        ({"nodes": range(3, 203), "rounds": range(1, 101)}, "at most 10,000.*20,000"),
        ({"partition.alpha": [0.1, 0.1]}, "values that differ"),
        ({"partition.beta": [0.1]}, "partition.beta 0.1: .*beta"),
        ({"rule": ["decavgg"]}, "rule decavgg: .*Did you mean 'decavg'"),
    ],
)
def test_grids_that_make_no_sense_are_refused(tmp_path: Path, cells: dict[str, list[Any]], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        small(partition={"name": "dirichlet"}).sweep(cells, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_cells_are_computed_once_and_a_larger_grid_computes_what_is_new(swept: Path) -> None:
    assert begun(swept, GRID) == []
    assert begun(swept, {"rule": ["isolation"], "partition": ["dirichlet"]}) == []  # the same, said otherwise
    new = begun(swept, {**GRID, "partition": ["iid", "zipf"]})
    assert new == [f"partition zipf, rule {rule}: {rule}, seed {s}" for rule in ("decavg", "isolation") for s in (0, 1)]


def test_a_cell_is_what_the_experiment_alone_would_be(swept: Path) -> None:
    alone = Experiment(**{**TINY, "partition": "dirichlet", "rule": "isolation"}).run().records
    out = small(rounds=2, nodes=4, seeds=(0, 1)).sweep(GRID, swept, jobs=2)
    cell = out.records.filter((pl.col("partition") == "dirichlet") & (pl.col("rule") == "isolation"))
    assert cell["test_accuracy"].to_list() == alone["test_accuracy"].to_list()
    row = out.table().filter((pl.col("partition") == "dirichlet") & (pl.col("rule") == "isolation")).row(0, named=True)
    assert row["accuracy"] == pytest.approx(
        alone.filter(pl.col("round") == 2).group_by("seed").agg(pl.col("test_accuracy").mean())["test_accuracy"].mean()
    )


def test_a_sweep_is_a_table_latex_csv_and_curves(swept: Path) -> None:
    out = small(rounds=2, nodes=4, seeds=(0, 1)).sweep(GRID, swept, jobs=2)
    sheet, table = out.pivot(), out.table()
    assert list(sheet.headings) == ["partition", "decavg", "isolation"]
    assert [row[0] for row in sheet.rows] == ["iid", "dirichlet"]
    first = table.row(0, named=True)
    assert sheet.rows[0][1] == f"{first['accuracy']:.3f} ± {first['accuracy_ci']:.3f}"
    assert r"partition & decavg & isolation \\" in (swept / "table.tex").read_text()
    assert (
        pl.read_csv(swept / "table.csv").select("partition", "rule").rows() == table.select("partition", "rule").rows()
    )
    assert (swept / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_methods_of_a_cell_are_the_columns(tmp_path: Path) -> None:
    both = small(rounds=1, nodes=3, methods=["decavg", "isolation"])
    assert list(both.sweep({"links": [0.5, 1.0]}, tmp_path / "out", jobs=2).pivot().headings) == [
        "links",
        "decavg",
        "isolation",
    ]


def test_objects_can_be_varied(tmp_path: Path) -> None:
    def steep(logits: Any, target: Any, me: Any) -> Any:
        return 10 * (logits.logsumexp(-1) - logits.gather(-1, target[..., None]).squeeze(-1))

    out = small(rounds=1, nodes=3).sweep({"objective": ["cross_entropy", steep]}, tmp_path / "out")
    assert out.table().height == 2


def test_the_command_reads_the_grid_of_the_file_and_of_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_text(FILE)
    assert main(["sweep", "my.toml", "--grid", "rule=decavg,isolation", "--seeds", "0", "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    assert "4 runs to do, 0 kept" in said
    assert "sweeps/my/table.csv" in said
    assert pl.read_csv("sweeps/my/table.csv").select("partition.alpha", "rule").rows() == [
        (a, rule) for a in (0.1, 1.0) for rule in ("decavg", "isolation")
    ]
    assert main(["run", "my.toml"]) == 2
    assert "`coterie sweep my.toml` carries it out" in capsys.readouterr().err
    assert main(["sweep", "my.toml", "--metric", "bleu"]) == 2
    assert "--metric: expected one of accuracy, f1, loss, got 'bleu'" in capsys.readouterr().err


def test_a_cluster_runs_each_task_as_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_text(FILE)
    grid_ = ["--grid", "partition.alpha=1.0", "--seeds", "0", "--rounds", "1"]
    assert main(["sweep", "my.toml", *grid_, "--cluster", "local", "--out", "out"]) == 0
    assert list(Path("out/submitit").glob("*_log.out"))
    assert pl.read_csv("out/table.csv").height == 1
    assert main(["sweep", "my.toml", *grid_, "--cluster", "nowhere", "--out", "other"]) == 2

"""Every exhibit of every study can be drawn from runs that are as its own, but shorter."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

import pictures
from coterie import records
from coterie.config.networks import network
from coterie.parts import find, names
from coterie.report.sheets import Sheet
from coterie.runs import runner
from coterie.runs.exhibits import SCALES, Exhibit, Results
from small import LOOP

SHOWN: dict[str, tuple[str, ...]] = {
    "initialisation": ("figure 3g", "figure 4", "figure 5", "figure 7", "figure 9b", "figure 10", "figure start"),
    "decdiff": (
        "table II",
        "table III",
        "table IV",
        "table cost",
        "table pairs",
        "figure 1",
        "figure 3",
        "figure 4",
        "figure 6",
    ),
    "dechw": (
        "table I",
        "table II",
        "table III",
        "table V",
        "table VI",
        "table cost",
        "table pairs",
        "figure 2",
        "figure digits",
    ),
    "deployments": ("table III", "table IV", "table XIV", "table svm", "table cost", "table bounds", "figure svm"),
    "dfml": ("table 6a", "table 8a", "table local", "table cost", "figure 5", "figure 22"),
}
"""Some of each: all would take minutes."""
ALSO = {
    "decdiff": ("table claims", "figure 5", "figure bytes"),
    "initialisation": ("figure 3a", "figure 3c", "figure 3e", "table A2"),
    "dfml": ("figure 10",),
    "dechw": ("table claims", "figure 1", "figure 4", "figure 6", "figure 7"),
}


def exhibits(study: str, scale: str) -> dict[str, Exhibit]:
    made: dict[str, Exhibit] = find("studies", study).make()(scale)
    return made


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("study", names("studies"))
def test_every_scale_is_sound(study: str, scale: str) -> None:
    made = exhibits(study, scale)
    if scale == "full":
        assert all(e.so_far and e.runs and label.startswith("cell ") for label, e in made.items())
        return
    assert len(made) > 8
    for label, exhibit in made.items():
        assert label.split()[0] in ("figure", "table")
        for run in exhibit.runs.values():
            assert run.resolved
        assert (
            scale == "paper" or not exhibit.runs or exhibit.scaled or "found out" in exhibit.title or label[-1] in "27d"
        )


def shortened(exhibit: Exhibit, cache: dict[str, pl.DataFrame], folder: Path) -> Results:
    """What shorter runs bring; a run that several exhibits share is done once."""
    found, measured = {}, {}
    for name, run in exhibit.runs.items():
        small = run.model_copy(update={"rounds": 2, "seeds": (0,), "engine": LOOP, "evaluate": 1, "test_share": 0.2})
        key = small.to_toml()
        if key not in cache:
            out = folder / f"run-{len(cache)}"
            cache[key] = runner.run(small, out).records
            cache[f"{key} measures"] = records.measures(out) if small.measures else pl.DataFrame()
        found[name] = cache[key]
        if small.measures:
            measured[name] = cache[f"{key} measures"]
    return Results(found, measured)


PANELS: dict[str, dict[str, list[tuple[str, int, set[str]]]]] = {
    "initialisation": {
        "plateau-complete-graph-adamw.png": [
            ("communication round", 8, {"n = 4", "n = 8", "n = 16", "n = 32"}),
            ("round / n^0.50", 4, {"n = 4", "n = 8", "n = 16", "n = 32"}),
        ],
        "failing.png": [("communication round", 4, {"p = 1", "p = 0.2"})] * 2,
        "effect-of-items.png": [
            ("wall-clock equivalent (mini-batches of a node)", 6, {"20 items", "40 items", "80 items"})
        ],
    },
    "decdiff": {
        "disruption.png": [("communication round", 2 * 20 + 3, {"FedAvg", "DecHetero", "Centralised"})],
        "test_accuracy-by-sent_bytes-digits.png": [("sent per node", 13, {"DecDiff+VT", "CFA", "Centralised"})],
    },
    "dechw": {
        "common-start.png": [("communication round", 3, {"DecHomo", "DecHetero", "DecHW"})],
        "curves-digits.png": [("communication round", 8, {"DecHetero", "CFA", "DecHW"})] * 2,
        "trace.png": [("communication round", 10, {f"node {i}" for i in range(10)})],
    },
    "deployments": {},
    "dfml": {
        "curves-h2-digits.png": [("communication round", 5, {"DFML", "DFML, peak models", "Dec. FedAvg"})] * 2,
        "clusters.png": [("communication round", 6, {"mlp[16,8], DFML", "mlp[8], Dec. FedAvg"})] * 2,
        "epochs.png": [
            ("communication round", 3, {"K = 1", "K = 2", "Dec. FedAvg"}),
            ("epochs of a model that takes part", 3, {"K = 1", "K = 2", "Dec. FedAvg"}),
        ],
    },
}
"""Of some figures, for each panel: its x axis, how many lines it has, and some that its legend names."""


@pytest.mark.parametrize("study", names("studies"))
def test_exhibits_show_what_they_promise(study: str, tmp_path: Path, figures: dict[str, Figure]) -> None:
    cache: dict[str, pl.DataFrame] = {}
    made = exhibits(study, "smoke")
    for label in (*SHOWN[study], *ALSO.get(study, ())):
        harvest = shortened(made[label], cache, tmp_path)
        figures.clear()
        shown = list(made[label].show(harvest, tmp_path))
        assert shown, label
        for item in shown:
            if isinstance(item, Sheet):
                assert item.rows, label
                assert all(len(row) == len(item.headings) for row in item.rows), label
        drawn = [item for item in shown if isinstance(item, Path)]
        assert {path.name for path in drawn} == set(figures), label
        assert drawn or not label.startswith("figure"), label
        for name, figure in figures.items():
            for axes in pictures.panels(figure):
                assert axes.get_xlabel() or axes.get_ylabel(), name
                assert axes.has_data(), name
                assert all(len(pictures.points(line)) for line in axes.lines), name
            for axes, (x, count, some) in zip(figure.axes, PANELS[study].get(name, []), strict=False):
                assert axes.get_xlabel() == x
                assert len(axes.lines) == count
                assert some <= set(pictures.legend(axes))


@pytest.mark.parametrize(("study", "label"), [("decdiff", "table II"), ("dechw", "table I"), ("dechw", "table II")])
def test_small_data_are_called_by_their_name(study: str, label: str, tmp_path: Path) -> None:
    """No digit is headed as MNIST, and no number of a paper stands beside data that the paper has not."""
    exhibit = exhibits(study, "smoke")[label]
    for item in exhibit.show(shortened(exhibit, {}, tmp_path), tmp_path):
        assert isinstance(item, Sheet)
        told = " ".join([item.title, *item.headings])
        assert "MNIST" not in told
        assert "paper" not in item.headings


@pytest.mark.parametrize(("study", "label"), [("decdiff", "table claims"), ("dechw", "table claims")])
def test_races_at_the_size_of_a_laptop_follow_the_rule(study: str, label: str) -> None:
    """The paper's batches, epochs and momentum; one learning rate for all, by momentum; seeds that chose nothing."""
    small, paper = (exhibits(study, scale)[label].runs for scale in ("laptop", "paper"))
    for name, run in small.items():
        for method, ours in run.resolved.items():
            theirs = paper[name].resolved[method]
            assert (ours.batch_size, ours.epochs) == (theirs.batch_size, theirs.epochs)
            step = {**ours.optimiser}
            assert step["momentum"] == theirs.optimiser["momentum"]
            assert step["lr"] / (1 - step["momentum"]) == pytest.approx(0.1)
            assert ours.partition == theirs.partition
        assert min(run.seeds) >= 30


def test_runs_are_evaluated_in_the_first_rounds_and_in_the_last_ones() -> None:
    assert exhibits("decdiff", "smoke")["table II"].runs["digits"].evaluate == (*range(6), *range(6, 21, 2))
    (last,) = {run.evaluate for run in exhibits("dechw", "paper")["table I"].runs.values()}
    assert isinstance(last, tuple)
    assert last[:6] == (0, 1, 2, 3, 4, 5)
    assert last[-10:] == tuple(range(991, 1001))  # the rounds that the paper averages


def test_the_weights_of_figure_7_are_shares_of_a_neighbourhood(tmp_path: Path, figures: dict[str, Figure]) -> None:
    exhibit = exhibits("dechw", "smoke")["figure 7"]
    list(exhibit.show(shortened(exhibit, {}, tmp_path), tmp_path))
    lines = figures["trace.png"].axes[1].lines
    (method,) = next(iter(exhibit.runs.values())).resolved.values()
    assert len(lines) == 1 + len(network(method, 0).graph(1).neighbours(0)) < 10
    np.testing.assert_allclose(np.sum([line.get_ydata() for line in lines], axis=0), 1)


def test_families_of_figure_8_have_about_as_many_links(tmp_path: Path) -> None:
    """Power-law networks too, which had half as many."""
    _, sheet = exhibits("initialisation", "smoke")["figure 8"].show(Results({}, {}), tmp_path)
    assert isinstance(sheet, Sheet)
    means = [float(row[1]) for row in sheet.rows if row[1]]
    assert means == pytest.approx([8.0] * 4, rel=0.25)


def test_times_of_table_a2_are_medians_over_seeds(tmp_path: Path) -> None:
    rows = [
        {"method": "he", "seed": s, "round": r, "node": n, "train_seconds": 30.0 * r * (s + 1), "merge_seconds": 0.0}
        for s in range(3)
        for r in (1, 2)
        for n in range(2)
    ]
    records = pl.DataFrame(rows).with_columns(evaluate_seconds=pl.lit(None, pl.Float64))
    exhibit = exhibits("initialisation", "smoke")["table A2"]
    (sheet,) = exhibit.show(Results({"A he 8": records}, {}), tmp_path)
    assert isinstance(sheet, Sheet)
    assert sheet.rows == [["A", "8", "4.00", "0.20", "2", "9.3"]]  # 2, 4 and 6 minutes of both nodes


def test_emnist_has_as_many_letters_as_the_paper() -> None:
    run = exhibits("decdiff", "paper")["table II"].runs["EMNIST"]
    assert run.total == 20_800
    assert round(20_800 * run.test_share) == 3_280  # of the 20,800 letters of the test part


def test_the_ablation_stands_beside_the_papers_differences(tmp_path: Path) -> None:
    rows = [
        {"method": m, "seed": 0, "round": r, "node": 0, "test_accuracy": 0.5, "test_loss": 1.0, "sent_bytes": 0}
        for m in ("dechetero", "decdiff", "decdiff-vt", "decdiff-rvt")
        for r in (0, 1)
    ]
    found = Results({"EMNIST": pl.DataFrame(rows)}, {})
    _, sheet = exhibits("decdiff", "paper")["table III"].show(found, tmp_path)
    assert isinstance(sheet, Sheet)
    assert [row[-1] for row in sheet.rows] == ["-0.0087", "+0.0352", "+0.0439"]  # in percentage points, as printed


def test_dechw_has_every_alpha_of_the_paper_with_its_deviations(tmp_path: Path) -> None:
    runs = exhibits("dechw", "paper")["table I"].runs
    assert [*runs] == [f"{name} {alpha:g}" for name in ("mnist", "fashion", "cifar10") for alpha in (1, 0.5, 0.2)]
    rows = [
        {
            "method": m,
            "seed": s,
            "round": 1,
            "node": 0,
            "test_accuracy": 0.5 + s / 100,
            "test_loss": 1.0,
            "sent_bytes": 0,
        }
        for m in ("dechw", "cfa")
        for s in range(3)
    ]
    (sheet,) = exhibits("dechw", "paper")["table I"].show(Results({"fashion 0.2": pl.DataFrame(rows)}, {}), tmp_path)
    assert isinstance(sheet, Sheet)
    printed = {row[0]: row[2] for row in sheet.rows}
    assert printed == {"CFA": "76.82 ± 0.024", "DecHW": "80.36 ± 0.011"}


def test_losses_stand_beside_accuracies_without_accumulation(tmp_path: Path, figures: dict[str, Figure]) -> None:
    exhibit = exhibits("dechw", "smoke")["figure 6"]
    list(exhibit.show(shortened(exhibit, {}, tmp_path), tmp_path))
    assert [axes.get_ylabel().split(",")[0] for axes in figures["accumulation.png"].axes] == [
        "test accuracy",
        "test loss",
    ]


def test_laws_of_the_mixing_time_are_fitted(tmp_path: Path) -> None:
    _, sheet = exhibits("initialisation", "smoke")["figure mixing"].show(Results({}, {}), tmp_path)
    assert isinstance(sheet, Sheet)
    assert sheet.headings[-3:] == ["log n", "log² n", "n^(2/d), d = 2"]
    for row in sheet.rows:
        assert all(cell == "—" or 0 <= float(cell) <= 1 for cell in row[-3:])
    assert any(cell != "—" for row in sheet.rows for cell in row[-3:])


def test_more_epochs_are_no_more_work() -> None:
    runs = exhibits("initialisation", "laptop")["figure 9d"].runs
    work = {name: run.rounds * run.epochs for name, run in runs.items() if "pooled" not in name}
    assert work["8 epochs"] == work["4 epochs"] == 80


def test_what_of_the_test_set_is_used_is_told() -> None:
    """All of it at the paper's scale; else each exhibit says how much."""
    shares = {0.1: "a tenth of the test set", 0.05: "a twentieth of the test set"}
    for label, exhibit in exhibits("initialisation", "laptop").items():
        for run in exhibit.runs.values() if label != "table A2" else ():
            assert run.test_share == 1 or shares[run.test_share] in exhibit.scaled, label
    for exhibit in exhibits("initialisation", "paper").values():
        assert {run.test_share for run in exhibit.runs.values()} <= {1.0}


def test_setting_b_has_enough_images_at_the_papers_scale() -> None:
    for run in exhibits("initialisation", "paper")["figure 3c"].runs.values():
        assert run.items * run.nodes <= run.dataset["limit"]

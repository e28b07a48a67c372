"""Measures by hand, in run directories, through interruptions, at peers, and as figures."""

import asyncio
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from matplotlib.figure import Figure
from polars.testing import assert_frame_equal

import pictures
from coterie import records
from coterie.app.cli import main
from coterie.contract import Layout
from coterie.errors import ConfigError, RunError
from coterie.mail.pace import Timing
from coterie.node.confusion import Confusion
from coterie.node.measures import KINDS, Steps, layers, spread, tensor_means
from coterie.peers import deployment
from coterie.peers.checkpoint import kept_measures
from coterie.peers.runtime import PeerRuntime
from coterie.report.measures import draw_spread, draw_steps, draw_told, plot_measures
from coterie.runs import runner
from coterie.runs.experiment import Experiment
from peering import peer_configs, together
from small import LOOP, At, interrupt, interrupted, small

LAYOUT = Layout(("a", "nothing", "b"), ((2, 2), (0, 3), (2,)))
ALL = ",".join(KINDS)


# By hand.


def test_spread_by_hand() -> None:
    assert layers(LAYOUT) == [None, "a", "b"]
    found = spread(torch.tensor([1.0, 3, 1, 3, -5, -5]), LAYOUT)
    np.testing.assert_allclose(found, [math.sqrt(70 / 6 - (2 / 6) ** 2), 1, 0])


def test_spread_survives_a_large_mean() -> None:
    """The mean square less the squared mean would lose all digits."""
    row = 1000 + torch.tensor([-1.0, 1, -1, 1, -1, 1]) / 1024
    np.testing.assert_allclose(spread(row, LAYOUT), [1 / 1024] * 3, rtol=1e-12)


def test_means_by_hand() -> None:
    np.testing.assert_allclose(tensor_means(torch.tensor([1.0, 3, 1, 3, -5, -5]), LAYOUT), [-2 / 6, 2, -5])


def test_steps_by_hand() -> None:
    """Merged, trained, merged and trained again: what is no training is aggregation."""
    row = torch.tensor([5.0, 0, 0, 0, 0, 0])
    steps = Steps.beside(row)
    steps.begin(row)
    row += torch.tensor([1.0, 0, 0, 0, 0, 0])  # a merge
    for train, merge in (([0.0, 1, 0, 0, 0, 0], [1.0, 0, 0, 0, 0, 0]), ([0.0, 2, 0, 0, 0, 0], [0.0, 4, 0, 0, 0, 3])):
        steps.before_training(row)
        row += torch.tensor(train)
        steps.after_training(row)
        row += torch.tensor(merge)
    found = steps.end(row, LAYOUT)
    np.testing.assert_allclose(found["train_step"], [3, 3, 0])
    np.testing.assert_allclose(found["merge_step"], [math.sqrt(4 + 16 + 9), math.sqrt(20), 3])
    np.testing.assert_allclose(found["total_step"], [math.sqrt(4 + 49 + 9), math.sqrt(53), 3])
    np.testing.assert_allclose(found["step_cosine"], [4 / math.sqrt(29), 4 / math.sqrt(20), np.nan])
    steps.begin(row)
    assert all(not steps.end(row, LAYOUT)[name].any() for name in ("train_step", "merge_step", "total_step"))


# Asking for them.


def test_measures_are_named_in_many_ways() -> None:
    for said in ("spread,steps", "spread, steps", ["spread", "steps", "spread"], ("spread", "steps")):
        experiment = small(measures=said)
        assert experiment.measures == ("spread", "steps")
        assert all(method.measures == ("spread", "steps") for method in experiment.resolved.values())
    assert small().measures == ()


def test_confusions_of_more_classes_than_can_be_looked_at_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 100 classes, got 101"):
        Confusion().add(torch.zeros(1, 3, 101), torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 3))


def test_unknown_measures_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown measure 'step'\. Did you mean 'steps'"):
        small(measures="spread,step")
    with pytest.raises(ConfigError, match="measures"):
        small(measures=3)


def test_a_method_cannot_have_measures_of_its_own() -> None:
    with pytest.raises(ConfigError, match="unknown setting of a method 'measures'"):
        small(methods={"decavg": {"measures": ["spread"]}})


def test_measures_asked_for_come_back_from_the_configuration_file(tmp_path: Path) -> None:
    small(methods=["decavg", "cfa"], rounds=1, measures=KINDS).run(tmp_path / "x")
    assert records.configuration(tmp_path / "x").measures == KINDS


# In a run directory.


def test_nothing_is_written_or_kept_unless_asked_for(tmp_path: Path) -> None:
    plain, measured = (
        small(rounds=2).run(tmp_path / "x").records,
        small(rounds=2, measures=ALL).run(tmp_path / "y").records,
    )
    assert not list(tmp_path.glob("x/**/*measures*"))
    assert_frame_equal(*(f.drop(c for c in f.columns if c.endswith("_seconds")) for f in (plain, measured)))
    with pytest.raises(RunError, match=r"has no measures.*--measures"):
        records.measures(tmp_path / "x")


def test_measures_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    for workers in (1, 2):
        experiment = small(rule="dechw", rounds=3, measures=ALL, engine={**LOOP, "workers": workers})
        experiment.run(tmp_path / str(workers))
    assert_frame_equal(*(records.measures(tmp_path / str(workers)) for workers in (1, 2)), check_exact=True)


@pytest.mark.parametrize("engine", [LOOP, {"name": "memory"}], ids=["local", "memory"])
def test_a_resumed_run_has_the_same_measures(tmp_path: Path, engine: dict[str, Any]) -> None:
    settings = {"methods": ["decavg", "dechw"], "links": 0.7, "merge_first": True, "evaluate": 2}
    experiment = small(**settings, measures=ALL, engine=engine)
    interrupted(experiment, tmp_path / "x")
    assert set(records.measures(tmp_path / "x")["round"]) == {0, 2}
    with pytest.raises(runner.Interrupted):
        runner.resume(tmp_path / "x", [At(5, interrupt, "dechw")])
    runner.resume(tmp_path / "x")
    experiment.run(tmp_path / "straight")
    resumed, straight = (records.measures(tmp_path / name) for name in ("x", "straight"))
    assert_frame_equal(resumed, straight, check_exact=True)
    assert set(straight["round"]) == {0, 2, 4, 6}
    left = {path.name for path in tmp_path.glob("x/jobs/*/*")}
    assert left == {"done.parquet", "done.measures.parquet", "models.safetensors", "nodes.parquet"}


def test_a_job_that_fails_keeps_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Steps, "before_training", _fail_in_third_round())
        with pytest.raises(OSError, match="third"):
            small(measures="steps,spread").run(tmp_path / "x")
    assert set(records.measures(tmp_path / "x")["round"]) == {0, 1, 2}
    runner.resume(tmp_path / "x")
    small(measures="steps,spread").run(tmp_path / "straight")
    assert_frame_equal(*(records.measures(tmp_path / name) for name in ("x", "straight")), check_exact=True)


def _fail_in_third_round() -> Any:
    calls = []

    def fail(self: Steps, row: torch.Tensor) -> None:
        calls.append(row)
        if len(calls) > 2 * 6:
            raise OSError("the third round")
        self.trained.sub_(row)

    return fail


# At peers.


def test_peers_measure_what_the_simulator_does(tmp_path: Path) -> None:
    """Each for itself, through a restart, and brought together as one run."""
    settings: dict[str, Any] = {"nodes": 4, "rounds": 3, "rule": "dechw", "measures": KINDS}
    given = peer_configs(small(**settings), tmp_path / "peers", timing=Timing(deadline=60))
    asyncio.run(asyncio.wait_for(together(given), 120))
    small(**settings, engine={"name": "memory"}).run(tmp_path / "memory")
    wanted = records.measures(tmp_path / "memory")
    again = [PeerRuntime(a) for a in given]
    for peer in again:
        assert peer.keeper.restore(peer.journal) == 3
        peer.worker.shutdown()
    unfinished, finished = [peer.keeper.measures for peer in again], [kept_measures(a.folder) for a in given]
    for frames in (unfinished, finished):
        whole = pl.concat(f for f in frames if f is not None).sort("round", "node", maintain_order=True)
        assert_frame_equal(whole, wanted, check_exact=False, rel_tol=1e-3, abs_tol=1e-4)
    for a in given:
        (a.folder / "config.toml").write_text(records.frozen(small(**settings)))
    deployment.collect([a.home.path for a in reversed(given)], tmp_path / "together")
    assert_frame_equal(records.measures(tmp_path / "together"), wanted, check_exact=False, rel_tol=1e-3, abs_tol=1e-4)


# As figures.


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("measures") / "x"
    small(methods=["decavg", "dechw", "isolation", "cfa"], seeds="0-1", rounds=3, measures=ALL).run(out)
    return out


def test_all_figures_are_drawn_and_shown(
    measured: Path, capsys: pytest.CaptureFixture[str], figures: dict[str, Figure]
) -> None:
    assert main(["plot", str(measured)]) == 0
    out = capsys.readouterr().out
    assert all(f"{name}.png" in out for name in ("parameter_spread", "steps", "told", "epochs"))
    frame, methods = records.measures(measured), ["cfa", "decavg", "dechw", "isolation"]

    def mean(method: str, measure: str) -> pl.Series:
        mine = frame.filter(pl.col("method") == method, pl.col("measure") == measure, pl.col("layer").is_null())
        return mine.group_by("round").agg(pl.col("value").mean()).sort("round")["value"]

    spreads = pictures.panels(figures["parameter_spread.png"])
    assert [pictures.title(axes) for axes in spreads] == methods
    for axes, method in zip(spreads, methods, strict=True):
        for line, measure in zip(axes.lines[-2:], ("sigma_ap", "sigma_an"), strict=True):
            np.testing.assert_allclose(pictures.points(line)[:, 1], mean(method, measure))
    assert pictures.legend(spreads[-1])[-1] == "whole model"
    steps = pictures.panels(figures["steps.png"])
    assert len(steps) == 2 * len(methods)
    moves = pictures.named(steps[0])
    assert [*moves] == ["training", "aggregation", "both together"]
    np.testing.assert_allclose(pictures.points(moves["training"])[:, 1], mean("cfa", "train_step"))
    assert "cosine between training and aggregation" in pictures.words(figures["steps.png"])
    told = pictures.panels(figures["told.png"])
    assert all("dechw" in pictures.title(axes) for axes in told)
    assert [*pictures.named(told[0])] == [f"node {i}" for i in range(6)]
    assert main(["resume", str(measured)]) == 0
    assert "measures.parquet" in capsys.readouterr().out
    inside = re.search(r'id="data">(.*?)</script>', (measured / "report.html").read_text())
    assert inside
    assert {"train_step", "sigma_an", "h_norm"} <= set(json.loads(inside[1])["overview"]["columns"])


def test_figures_without_measures_are_left_out(measured: Path, tmp_path: Path) -> None:
    frame = records.measures(measured)
    only = frame.filter(pl.col("measure") == "h_norm")
    assert [p.stem for p in plot_measures(only, tmp_path)] == ["told"]
    for draw in (draw_spread, draw_steps):
        with pytest.raises(RunError, match="nothing to draw"):
            draw(only, tmp_path / "x.png")
    with pytest.raises(RunError, match="expected h_element"):
        draw_told(only, tmp_path / "x.png", ("h_element",))


def test_figures_of_awkward_measures(tmp_path: Path, figures: dict[str, Figure]) -> None:
    """One round, no spread at all, nobody merges, many tensors, many nodes, a name that is no mathematics."""
    rows = [
        ("_$x$", 0, number, node, layer, None, measure, 0.0 if number == 0 else 1.0 + node)
        for number in (0, 40)
        for node in range(8)
        for layer in [None, *(f"{i}.{kind}" for i in range(20) for kind in ("weight", "bias"))]
        for measure in ("sigma_ap", "train_step", "told")
    ]
    frame = pl.DataFrame(rows, schema=records.MEASURES, orient="row")
    assert len(plot_measures(frame, tmp_path)) == 3
    (axes,) = figures["parameter_spread.png"].axes
    assert pictures.title(axes) == r" _\$x\$"
    assert len(pictures.legend(axes)) == 7  # six tensors of forty, weights only, and the whole model
    assert all(text.endswith("weight") for text in pictures.legend(axes)[:-1])
    assert "6 of 40 tensors" in pictures.words(figures["parameter_spread.png"])
    (axes,) = figures["told.png"].axes
    assert len(axes.lines) == 9  # eight nodes, and their median
    assert pictures.points(axes.lines[-1]).tolist() == [[0, 0], [40, 4.5]]
    assert len(plot_measures(frame.filter(pl.col("round") == 0), tmp_path)) == 3


def test_a_rule_of_ones_own_may_tell(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from coterie.contract import Rule\n\n\nclass Frank(Rule):\n    '''Tells its size.'''\n\n"
        "    def tell(self, me, params, state):\n        return {'data': me.size, 'round': me.size * 0 + me.round}\n"
    )
    out = tmp_path / "x"
    Experiment(**{**small(rounds=2).model_dump(), "rule": f"{tmp_path}/mine.py:Frank", "measures": "rule"}).run(out)
    found = records.measures(out)
    assert set(found["measure"]) == {"data", "round"}
    assert found.filter(pl.col("measure") == "round")["value"].to_list() == [1.0] * 6 + [2.0] * 6

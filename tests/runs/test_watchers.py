"""Watchers: whoever is handed the moment sees the records and models as they are, and cannot change them."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import coterie
from coterie.errors import ConfigError, RunError
from coterie.records import Event, Moment, Sight
from coterie.runs.runner import Interrupted
from small import LOOP, At, assert_same, interrupt, small


class Seen(coterie.Watcher):
    """Remembers all that it is handed."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.frames: dict[int, pl.DataFrame] = {}
        self.norms: list[float] = []
        self.ends: list[Any] = []
        self.closed = 0

    def on_round(self, now: Moment) -> None:
        self.rounds.append(now.round)
        for model in now.models.values():
            self.norms.append(float(model.row.norm()))
            model.row.zero_()  # a copy

    def on_evaluation(self, now: Moment) -> None:
        self.frames[now.round] = now.records

    def on_end(self, now: Moment) -> None:
        self.ends.append((now.method, now.seed, now.event["how"], now.records.height))

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("engine", [LOOP, {"name": "memory"}, {"name": "local", "workers": 2, "mode": "stack"}])
def test_a_watcher_sees_and_changes_nothing(engine: dict[str, Any]) -> None:
    seen = Seen()
    run = small(rounds=3, seeds="0-1", engine=engine).run(observers=[seen])
    assert_same(run.records, small(rounds=3, seeds="0-1", engine=engine).run().records)
    assert seen.rounds == [1, 2, 3] * 2
    assert [frame["round"].max() for frame in seen.frames.values()] == [0, 1, 2, 3]
    assert seen.ends == [("decavg", 0, "done", 24), ("decavg", 1, "done", 24)]
    assert seen.closed == 1
    last = torch.tensor([float(model.row.norm()) for model in run.models(seed=1).values()])
    torch.testing.assert_close(last, torch.tensor(seen.norms[-6:]))


def test_models_that_peers_keep_are_not_seen_before_the_end() -> None:
    moment = Moment(Event("end", {"method": "decavg", "seed": 0}), Sight(pl.DataFrame))
    assert moment.records.is_empty()
    with pytest.raises(RunError, match=r"keep their models to themselves.*run\.models\(\)"):
        _ = moment.models


def test_a_run_is_opened_resumed_and_reported(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    with pytest.raises(Interrupted, match=r"coterie\.open\('.*x'\)\.resume\(\)"):
        small(rounds=3).run(folder, observers=[At(2, interrupt)])
    half = coterie.open(folder)
    assert half.records["round"].max() == 2
    run = half.resume()
    assert_same(run.records, small(rounds=3).run().records)
    assert "decavg" in (folder / "report.html").read_text()
    assert run.report() == folder / "report.html"
    with pytest.raises(RunError, match="Name a folder when it begins"):
        small(rounds=1).run().report()
    with pytest.raises(RunError, match="Name a folder when it begins"):
        small(rounds=1).run().resume()


def test_an_experiment_comes_from_a_file_and_goes_into_one(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(small(rule={"name": "decdiff", "s": 2.0}).to_toml())
    again = coterie.Experiment.from_toml(tmp_path / "a.toml")
    assert again == coterie.Experiment(**small(rule={"name": "decdiff", "s": 2.0}).model_dump(exclude_none=True))
    with pytest.raises(ConfigError, match="no such configuration file"):
        coterie.Experiment.from_toml(tmp_path / "b.toml")


def test_a_run_is_shown_to_whoever_starts_it(capsys: pytest.CaptureFixture[str]) -> None:
    run = coterie.Experiment(**small(rounds=2).model_dump(exclude_none=True)).run()
    captured = capsys.readouterr()
    assert "decavg, seed 0" in captured.err
    assert not captured.out  # for what is printed of it
    assert run.plot().axes
    small(rounds=2).run(progress=False)
    assert not capsys.readouterr().err

"""How it is found out what is faster here: told, kept, and not for a run that is done sooner."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coterie import waiting
from coterie.config.build import build, load_samples
from coterie.engines import Need
from coterie.engines.local import Local
from coterie.errors import ConfigError
from coterie.job import Job
from small import small


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path))


def made(**settings: Any) -> Job:
    (method,) = small(**settings).resolved.values()
    return build(method, load_samples(method), 0)


def chosen(job: Job, times: int = 1, workers: int = 1) -> tuple[bool, list[str]]:
    """Whether the first architecture is stacked, and what was told meanwhile."""
    told: list[str] = []
    session = Local(workers=workers).open()
    with waiting.heard_by(lambda text, done, total: told.append(text)):
        plan = session.choose(job, times)
    session.close()
    return plan["modes"][0]["stack"], told


def test_a_short_run_is_not_calibrated(tmp_path: Path) -> None:
    assert chosen(made(rounds=1)) == (False, [])
    assert list(tmp_path.glob("modes-*")) == []


def test_a_long_run_is_calibrated_once() -> None:
    job = made(rounds=1_000_000)
    first, told = chosen(job)
    assert [text.partition(":")[0] for text in told] == ["calibrating mlp", "calibrated mlp"]
    assert chosen(job) == (first, [])


def test_it_is_measured_at_all_workers_and_anew_for_other_numbers_of_them() -> None:
    job = made(rounds=1_000_000)
    first, told = chosen(job, workers=2)
    which = told[-1].partition(": ")[2].partition(" is fastest")[0]
    assert which.startswith("stacks of" if first else "one by one")
    assert which in told[-1].partition("ms a node: ")[2], "what was chosen is among what was measured"
    assert chosen(job, workers=2) == (first, [])
    assert chosen(job, workers=1)[1] != []


def test_many_short_jobs_are_a_long_run() -> None:
    assert chosen(made(rounds=1), times=1_000_000)[1] != []


def test_what_a_job_needs_grows_with_its_nodes_and_its_memory() -> None:
    session = Local(workers=1).open()
    few, many = (session.need(made(nodes=n)) for n in (5, 10))
    assert few.each == many.each
    assert many.all - few.all == pytest.approx(5 * few.each)
    assert session.need(made(keep_optimiser=True, momentum=0.9)).each > few.each
    session.close()


def test_what_cannot_fit_is_refused_with_what_would() -> None:
    Need(3, 1e6, 1e6).check("decavg")
    with pytest.raises(ConfigError, match=r"does not fit into memory.*up to .*about 1\.0 PB.*--nodes \d+") as why:
        Need(1_000_000, 1e9, 0).check("decavg")
    assert 1 < int(str(why.value).split("--nodes ")[1].split(";")[0]) < 1000


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs Linux")
def test_a_run_that_cannot_fit_is_refused_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=1, f_frsize=4096))
    with pytest.raises(ConfigError, match=r"decavg does not fit into memory.*up to 4\.1 kB.*smaller model"):
        small().run(tmp_path / "run")
    assert not (tmp_path / "run").exists()

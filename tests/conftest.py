"""What every test needs: a cache of its own, and one thread, so that tests neither see nor leave anything behind."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from matplotlib.figure import Figure

import driving
from coterie.net.identity import Home

settings.register_profile("house", deadline=None)  # how busy the machine is decides no test
settings.load_profile("house")


@pytest.fixture(scope="session", autouse=True)
def _alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = os.environ.get("COTERIE_CACHE")
    os.environ["COTERIE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    torch.set_num_threads(1)
    yield
    driving.close_all()
    if before is None:
        del os.environ["COTERIE_CACHE"]
    else:
        os.environ["COTERIE_CACHE"] = before


@pytest.fixture
def heeding() -> Iterator[None]:
    """SIGHUP is not ignored, as under `nohup` it would be."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def homes(tmp_path: Path) -> Callable[[str], Home]:
    """Homes by name, made when first asked for."""
    made: dict[str, Home] = {}

    def home(name: str) -> Home:
        if name not in made:
            made[name] = Home.create(tmp_path / name, name, "127.0.0.1:7001")
        return made[name]

    return home


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """Figures by the name of the file they were saved to."""
    found: dict[str, Figure] = {}
    save = Figure.savefig

    def savefig(self: Figure, path: Any, **options: Any) -> None:
        save(self, path, **options)
        found[Path(path).name] = self

    monkeypatch.setattr(Figure, "savefig", savefig)
    return found

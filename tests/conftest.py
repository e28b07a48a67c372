"""What every test needs: a cache of its own, and one thread, so that tests neither see nor leave anything behind."""

import os
from collections.abc import Iterator

import pytest
import torch

import driving


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

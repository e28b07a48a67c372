"""Engines are opened once for all contracts, and closed after them."""

from collections.abc import Iterator

import driving
import pytest


@pytest.fixture(scope="session", autouse=True)
def _engines() -> Iterator[None]:
    yield
    driving.close_all()
